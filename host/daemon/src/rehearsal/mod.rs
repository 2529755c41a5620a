//! Rehearsals: a dead letter is run on any stored version with everything recorded and nothing applied, as the first
//! attempt of a replay would run. The act is in the audit log; nothing else is written, sent or counted.

mod answers;
mod host;
mod report;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use leasehold_api::{RehearsalAnswer, RehearsalReport};
use leasehold_domain::{
    AttemptNumber, DeadLetterId, HandlerName, HandlerVersion, JobKey, Kind, KindPolicy, Lane, StopReason,
};
use leasehold_sandbox::{AttemptRequest, JobView, Prepared, ReplayView, RunReport, Stopper};
use leasehold_store::{Contents, Rehearsable, StoreError, VersionRow};
use serde_json::json;
use tokio::sync::OwnedSemaphorePermit;

use crate::{
    clock::wall_ms,
    daemon::{Daemon, InForce},
    handlers::HandlerError,
    intake::{self, IntakeError, SentJob},
};

use answers::Script;
use host::{Record, RehearsalHost};

/// What an operator wants to see.
#[derive(Debug, Clone, Default)]
pub struct RehearsalWish {
    /// The version to run on; the handler's current one when absent.
    pub version: Option<HandlerVersion>,
    /// A payload in place of the original.
    pub payload: Option<Vec<u8>>,
    /// Answers to the requests that the handler sends.
    pub answers: Vec<RehearsalAnswer>,
}

/// Why a dead letter could not be rehearsed.
#[derive(Debug, thiserror::Error)]
pub enum RehearsalError {
    /// It was replayed or discarded.
    #[error("it is {state} already; only an open dead letter can be rehearsed")]
    NotOpen {
        /// Where it stands.
        state: String,
    },
    /// The kind has no handler in the configuration.
    #[error("kind {0} is not configured; its dead letters can't be rehearsed until it is")]
    UnknownKind(String),
    /// The payload is gone.
    #[error("the original was not kept; give the payload with the rehearsal")]
    OriginalNotKept,
    /// The payload that was given is not acceptable.
    #[error(transparent)]
    Payload(#[from] IntakeError),
    /// An answer that was given is none.
    #[error("answer {place} can't be given: {why}")]
    Answer {
        /// Its place, from 1.
        place: usize,
        /// What is wrong and what is allowed.
        why: String,
    },
    /// The version is another handler's.
    #[error("kind {kind} is served by the handler {handler}; {version} is a version of another one")]
    OtherHandler {
        /// The kind.
        kind: Kind,
        /// Its handler.
        handler: HandlerName,
        /// What was asked for.
        version: HandlerVersion,
    },
    /// No version was named and none is current.
    #[error("the handler {handler} has no current version; name a stored one (stored: {stored})")]
    NoCurrentVersion {
        /// The handler.
        handler: HandlerName,
        /// What is stored of it.
        stored: String,
    },
    /// The version can't be had or can't run under its handler's grants.
    #[error(transparent)]
    Handler(#[from] HandlerError),
    /// The report can't be shown.
    #[error("the report could not be redacted, or not in time; nothing of it is shown")]
    NotRedacted,
    /// The run was lost.
    #[error("the rehearsal was lost in the daemon; its log says more")]
    Lost,
    /// The queue failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl RehearsalError {
    /// The stable code of the error.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotOpen { state } if state == "replayed" => "already_replayed",
            Self::NotOpen { .. } => "already_discarded",
            Self::UnknownKind(_) => "unknown_kind",
            Self::OriginalNotKept => "original_not_kept",
            Self::Payload(error) => error.code(),
            Self::Answer { .. } => "invalid_answer",
            Self::OtherHandler { .. } => "version_of_other_handler",
            Self::NoCurrentVersion { .. } => "no_current_version",
            Self::Handler(error) => error.code(),
            Self::NotRedacted => "redaction_failed",
            Self::Lost => "rehearsal_lost",
            Self::Store(error) => error.code(),
        }
    }
}

/// Everything that is known of a rehearsal before its guest runs.
struct Rehearsal {
    id: DeadLetterId,
    found: Rehearsable,
    in_force: Arc<InForce>,
    policy: Arc<KindPolicy>,
    version: VersionRow,
    /// What the guest is given.
    contents: Arc<Contents>,
    /// The original's contents where another payload was given: its values are masked too.
    original: Option<Arc<Contents>>,
    is_corrected: bool,
}

impl Daemon {
    /// Runs a dead letter and reports what the run would do. None when there is no such dead letter. Dropping the future
    /// stops the guest.
    pub async fn rehearse(
        self: &Arc<Self>,
        id: DeadLetterId,
        wish: RehearsalWish,
        actor: &str,
    ) -> Result<Option<RehearsalReport>, RehearsalError> {
        let script = Script::read(wish.answers)?;
        let Some(found) = self.store.rehearsable(id).await? else { return Ok(None) };
        let rehearsal = self.plan(id, found, wish.version, wish.payload).await?;
        // Rehearsals have places of their own, so that they neither take a job's nor wait for one.
        let place = Arc::clone(&self.rehearsals).acquire_owned().await.map_err(|_| StoreError::Closed)?;
        let prepared = self.component(&rehearsal).await?;
        let version = &rehearsal.version;
        let detail = json!({
            "job": rehearsal.found.job, "version": version.version, "digest": version.digest,
            "payload_corrected": rehearsal.is_corrected,
        });
        self.store.record_act(actor, "dead_letter.rehearse", &id.to_string(), detail, self.now_ms()).await?;
        let record = Arc::new(Record::new(script));
        let ended = self.run_rehearsal(&rehearsal, &prepared, &record, place).await?;
        report::make(rehearsal, record.take(), ended, self.now_ms()).await.map(Some)
    }

    async fn plan(
        &self,
        id: DeadLetterId,
        found: Rehearsable,
        version: Option<HandlerVersion>,
        payload: Option<Vec<u8>>,
    ) -> Result<Rehearsal, RehearsalError> {
        if found.state != "open" {
            return Err(RehearsalError::NotOpen { state: found.state });
        }
        let in_force = self.in_force();
        let policy = Kind::new(found.kind.clone()).ok().and_then(|kind| in_force.config.kinds.get(&kind).cloned());
        let policy = policy.ok_or_else(|| RehearsalError::UnknownKind(found.kind.clone()))?;
        if let Some(payload) = &payload {
            let sent = SentJob { kind: found.kind.clone(), payload: payload.clone(), ..SentJob::default() };
            intake::check(&in_force.config, sent, self.now_ms())?;
        }
        let with = |payload| Arc::new(Contents { payload, key: found.key.clone(), metadata: found.metadata.clone() });
        let is_corrected = payload.is_some();
        let (contents, original) = match (payload, &found.payload) {
            (Some(payload), original) => (with(payload), original.clone().map(with)),
            (None, Some(original)) => (with(original.clone()), None),
            (None, None) => return Err(RehearsalError::OriginalNotKept),
        };
        let version = self.version_to_rehearse(&policy, version).await?;
        Ok(Rehearsal { id, found, in_force, policy, version, contents, original, is_corrected })
    }

    /// The stored version that was named, whatever its state, or the handler's current one.
    async fn version_to_rehearse(
        &self,
        policy: &KindPolicy,
        asked: Option<HandlerVersion>,
    ) -> Result<VersionRow, RehearsalError> {
        let handler = policy.handler.clone();
        if let Some(version) = asked {
            if version.name != handler {
                return Err(RehearsalError::OtherHandler { kind: policy.kind.clone(), handler, version });
            }
            let row = self.store.version(&version).await?;
            return Ok(row.ok_or(HandlerError::NotStored { version })?);
        }
        let versions: Vec<_> =
            self.store.versions().await?.into_iter().filter(|row| row.version.name == handler).collect();
        let stored: Vec<_> = versions.iter().map(|row| row.version.to_string()).collect();
        versions.into_iter().find(|row| row.current).ok_or_else(|| {
            let stored = if stored.is_empty() { "none".to_owned() } else { stored.join(", ") };
            RehearsalError::NoCurrentVersion { handler, stored }
        })
    }

    /// The version's component, ready to run. Its stored file has to be intact also where it runs from memory.
    async fn component(&self, rehearsal: &Rehearsal) -> Result<Prepared, RehearsalError> {
        let Rehearsal { version, in_force, .. } = rehearsal;
        self.artefacts.get(version.digest).await.map_err(HandlerError::from)?;
        Ok(self.prepared(in_force, &version.version.name, version.digest).await?)
    }

    async fn run_rehearsal(
        self: &Arc<Self>,
        rehearsal: &Rehearsal,
        prepared: &Prepared,
        record: &Arc<Record>,
        place: OwnedSemaphorePermit,
    ) -> Result<RunReport, RehearsalError> {
        let deadline_ms = u64::try_from(rehearsal.policy.deadline_ms).unwrap_or(0);
        let request = AttemptRequest {
            job: job_view(rehearsal)?,
            deadline: Instant::now() + Duration::from_millis(deadline_ms),
            in_doubt: rehearsal.policy.in_doubt,
            answers: Some(record.answers()),
        };
        let host = RehearsalHost::new(self, rehearsal, record);
        let guest = self.sandbox.start(prepared, request, Arc::new(host));
        let _stop = StopWhenDropped(guest.stopper());
        let (id, version) = (rehearsal.id, rehearsal.version.version.clone());
        tracing::info!(dead_letter = %id, %version, "a rehearsal runs");
        // The place is held until the guest is gone, also when nobody waits for the report any more.
        let ended = tokio::spawn(async move {
            let ended = guest.report().await;
            tracing::info!(dead_letter = %id, %version, run_ms = ended.run_ms, "a rehearsal has ended");
            drop(place);
            ended
        });
        ended.await.map_err(|_| RehearsalError::Lost)
    }
}

/// Stops the guest when whoever asked for the rehearsal goes away. One that has ended is left alone.
struct StopWhenDropped(Stopper);

impl Drop for StopWhenDropped {
    fn drop(&mut self) {
        self.0.stop(StopReason::Shutdown);
    }
}

/// The job as the first attempt of a replay would see it.
fn job_view(rehearsal: &Rehearsal) -> Result<JobView, RehearsalError> {
    let Rehearsal { found, policy, contents, .. } = rehearsal;
    let unexpected = |error: leasehold_domain::NameError| StoreError::Unexpected(error.to_string());
    Ok(JobView {
        id: found.job,
        kind: policy.kind.clone(),
        key: JobKey::new(contents.key.clone()).map_err(unexpected)?,
        lane: found.lane.clone().map(Lane::new).transpose().map_err(unexpected)?,
        attempt: next_attempt(found),
        attempts_used: 1,
        attempts_max: policy.attempts_max,
        enqueued_at_ms: found.enqueued_at_ms,
        deadline_ms: wall_ms() + policy.deadline_ms,
        content_type: found.content_type.clone(),
        payload: contents.payload.clone(),
        metadata: contents.metadata.clone(),
        replay: Some(ReplayView { number: found.replays + 1, actor: REHEARSAL_ACTOR.to_owned(), at_ms: wall_ms() }),
    })
}

/// Who replays, as the guest of a rehearsal sees it: nobody does.
const REHEARSAL_ACTOR: &str = "rehearsal";

fn next_attempt(found: &Rehearsable) -> AttemptNumber {
    AttemptNumber(found.attempt.0.saturating_add(1))
}
