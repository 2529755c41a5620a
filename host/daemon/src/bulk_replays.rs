//! What operators ask of bulk replays: each call is one transaction of the queue, and the loop that gives the members
//! their turns is rung. It never checks who the caller is; the API does.

use std::sync::Arc;

use leasehold_domain::{
    BulkReplayId, Digest, HandlerVersion, Kind, KindPolicy, bulk_replay::Rate, policy::InDoubtPolicy,
};
use leasehold_store::{BulkSettings, Previewed, Resumed, Selection, StartBulkReplay, Started, Stopped, StoreError};
use tokio::sync::watch;

use crate::{
    ReplayError,
    daemon::{Daemon, InForce},
    metrics,
};

/// What is to be replayed, and onto what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BulkWish {
    /// The dead letters.
    pub selection: Selection,
    /// The version to run on; the handler's current one when absent.
    pub version: Option<HandlerVersion>,
    /// Why it should run on a version that the jobs have died on.
    pub override_reason: Option<String>,
}

/// How it is to be gone about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BulkStart {
    /// The preview's token.
    pub token: String,
    /// Why.
    pub reason: String,
    /// How fast; as fast as can be when absent.
    pub rate: Option<Rate>,
    /// Whether one member is tried before the rest.
    pub probe: bool,
}

impl Daemon {
    /// Shows what a bulk replay would do.
    pub async fn preview_bulk_replay(&self, wish: BulkWish) -> Result<Previewed, ReplayError> {
        let settings = self.bulk_settings(wish).await?;
        Ok(self.store.preview_bulk_replay(settings).await?)
    }

    /// Starts a bulk replay of what its preview showed, or says why not.
    pub async fn start_bulk_replay(
        &self,
        wish: BulkWish,
        start: BulkStart,
        actor: &str,
    ) -> Result<Started, ReplayError> {
        let settings = self.bulk_settings(wish).await?;
        let kind = settings.selection.kind.clone();
        let BulkStart { token, reason, rate, probe } = start;
        let request = StartBulkReplay { settings, token, actor: actor.to_owned(), reason, rate, probe };
        let started = self.store.start_bulk_replay(request).await?;
        if let Started::Now(id) = started {
            metrics::bulk_replay_started(kind.as_str());
            tracing::info!(bulk_replay = %id, %kind, actor, "a bulk replay has started");
            self.bulk_replay_due.notify_one();
        }
        Ok(started)
    }

    /// Lets no further member of a bulk replay go.
    pub async fn stop_bulk_replay(&self, id: BulkReplayId, actor: &str) -> Result<Stopped, StoreError> {
        let stopped = self.store.stop_bulk_replay(id, actor, self.now_ms()).await?;
        if stopped == Stopped::Now {
            tracing::info!(bulk_replay = %id, actor, "a bulk replay was stopped");
            self.bulk_replay_changed();
        }
        Ok(stopped)
    }

    /// Lets a stopped bulk replay go on, if the version that it is bound to is live. None when there is none.
    pub async fn resume_bulk_replay(&self, id: BulkReplayId, actor: &str) -> Result<Option<Resumed>, ReplayError> {
        let Some(record) = self.store.bulk_replay(id).await? else { return Ok(None) };
        let in_force = self.in_force();
        let policy = policy_of(&in_force, &record.selection.kind)?;
        let damaged = self.damaged(&in_force, policy).await?;
        let resumed = self.store.resume_bulk_replay(id, &policy.handler, damaged, actor, self.now_ms()).await?;
        if resumed == Resumed::Now {
            tracing::info!(bulk_replay = %id, actor, "a bulk replay was resumed");
            self.bulk_replay_due.notify_one();
            self.bulk_replay_changed();
        }
        Ok(Some(resumed))
    }

    /// Tells whoever waits for a bulk replay to look again.
    pub(crate) fn bulk_replay_changed(&self) {
        self.bulk_replay_changes.send_replace(());
    }

    /// Rung when some bulk replay has come further, but for the ends of its jobs.
    pub fn bulk_replay_changes(&self) -> watch::Receiver<()> {
        self.bulk_replay_changes.subscribe()
    }

    /// Tells whoever waits for the jobs of replays that one of them may have ended.
    pub(crate) fn replay_may_have_ended(&self) {
        self.replay_ends.send_replace(());
    }

    /// Rung when the job of a replay may have ended, and by no other job's end.
    pub fn replay_ends(&self) -> watch::Receiver<()> {
        self.replay_ends.subscribe()
    }

    /// The handler's components that can't run at this moment.
    pub(crate) async fn damaged(&self, in_force: &InForce, policy: &KindPolicy) -> Result<Vec<Digest>, StoreError> {
        let mut damaged = in_force.damaged.clone();
        damaged.extend(self.damaged_now(&policy.handler).await?);
        Ok(damaged)
    }

    async fn bulk_settings(&self, wish: BulkWish) -> Result<BulkSettings, ReplayError> {
        let in_force = self.in_force();
        let policy = policy_of(&in_force, &wish.selection.kind)?;
        Ok(BulkSettings {
            selection: wish.selection,
            version: wish.version,
            override_reason: wish.override_reason,
            handler: policy.handler.clone(),
            damaged: self.damaged(&in_force, policy).await?,
            begin_again: policy.in_doubt == InDoubtPolicy::BeginAgain,
            now_ms: self.now_ms(),
        })
    }
}

fn policy_of<'a>(in_force: &'a InForce, kind: &Kind) -> Result<&'a Arc<KindPolicy>, ReplayError> {
    in_force.config.kinds.get(kind).ok_or_else(|| ReplayError::UnknownKind(kind.to_string()))
}
