//! What callers of the API have done to jobs, dead letters and kinds: each call is one transaction of the queue, and
//! whatever waits for it is rung. It never checks who the caller is; the API does.

use leasehold_domain::{
    DeadLetterId, Digest, HandlerName, HandlerState, HandlerVersion, JobId, Kind, StepName, StopReason,
    policy::InDoubtPolicy,
};
use leasehold_store::{Cancelled, EnqueueAnswer, EnqueueJob, ReplayAnswer, ReplayRequest, Resolution, StoreError};

use crate::{
    alerts::{Alert, DEAD_LETTERS, Met},
    daemon::Daemon,
    intake::{self, IntakeError, SentJob},
    metrics,
};

/// What an operator says with a replay.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReplayWish {
    /// The version to run on; the handler's current one when absent.
    pub version: Option<HandlerVersion>,
    /// Why.
    pub reason: String,
    /// Why it should run on a version that the job has died on.
    pub override_reason: Option<String>,
    /// A payload in place of the original.
    pub payload: Option<Vec<u8>>,
    /// What is known of steps in doubt.
    pub resolutions: Vec<(StepName, Resolution)>,
}

/// Why a replay could not be asked for.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The kind of the dead letter has no handler in the configuration.
    #[error("kind {0} is not configured; its dead letters can't be replayed until it is")]
    UnknownKind(String),
    /// The corrected payload is not acceptable.
    #[error(transparent)]
    Payload(#[from] IntakeError),
    /// The queue refused.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl ReplayError {
    /// The stable code of the error.
    pub fn code(&self) -> &'static str {
        match self {
            Self::UnknownKind(_) => "unknown_kind",
            Self::Payload(error) => error.code(),
            Self::Store(error) => error.code(),
        }
    }
}

impl Daemon {
    /// Puts checked jobs in. Answers stand in the order of the jobs and are durable.
    pub async fn enqueue(&self, jobs: Vec<EnqueueJob>, actor: &str) -> Result<Vec<EnqueueAnswer>, StoreError> {
        let queue = self.config().queue.clone();
        self.check_disk()?;
        let kinds: Vec<_> = jobs.iter().map(|job| job.kind.clone()).collect();
        let is_scheduled = jobs.iter().any(|job| job.run_at_wall_ms.is_some());
        let now_ms = self.now_ms();
        let enqueued = self.store.enqueue(jobs, actor, now_ms, queue.priority_step_ms, queue.queue_depth_max);
        // Once they wait for the writer, an idle dispatcher is rung, whose claim then stands behind them: so they are leased
        // in the commit that makes them durable.
        let (answers, ()) = tokio::join!(biased; enqueued, async { self.claimable.notify_one() });
        let answers = answers?;
        for (kind, answer) in kinds.iter().zip(&answers) {
            match answer {
                EnqueueAnswer::Enqueued { .. } => metrics::job_enqueued(kind.as_str()),
                EnqueueAnswer::Duplicate { .. } => metrics::duplicate_prevented("job"),
                EnqueueAnswer::KeyConflict { .. } | EnqueueAnswer::QueueFull => {}
            }
        }
        if is_scheduled {
            self.scheduled.notify_one();
        }
        self.claimable.notify_one();
        Ok(answers)
    }

    /// Whether an enqueue leaves enough disk to what depends on a lease.
    pub(crate) fn check_disk(&self) -> Result<(), StoreError> {
        let config = self.config();
        let reserve_bytes = config.queue.disk_reserve_bytes;
        // A file system that does not answer refuses nothing: what it can't hold fails by itself.
        let Ok(found) = rustix::fs::statvfs(&config.daemon.data_dir) else { return Ok(()) };
        let free_bytes = found.f_bavail.saturating_mul(found.f_frsize);
        if free_bytes >= reserve_bytes {
            self.alerts.clear(Alert::DiskLow, "");
            return Ok(());
        }
        let error = StoreError::DiskLow { free_bytes, reserve_bytes };
        self.alerts.raise(Met::new(Alert::DiskLow, error.code(), error.to_string()), self.now_ms());
        Err(error)
    }

    /// Cancels a job; a running one is stopped and ends as cancelled.
    pub async fn cancel(&self, job: JobId, actor: &str) -> Result<Cancelled, StoreError> {
        let cancelled = self.store.cancel(job, actor, self.now_ms()).await?;
        match cancelled {
            Cancelled::Now => {
                self.job_ended(job);
                self.replay_may_have_ended();
                self.claimable.notify_one();
            }
            Cancelled::WhenStopped(token) => {
                if !self.running.stop(token, StopReason::Cancelled) {
                    // The lease may have been taken a moment ago, and its attempt come into memory only now.
                    drop(self.leasing.lock().await);
                    self.running.stop(token, StopReason::Cancelled);
                }
            }
            Cancelled::AlreadyEnded(_) | Cancelled::NotFound => {}
        }
        Ok(cancelled)
    }

    /// Replays a dead letter onto a live version, or says why not. None when there is no such dead letter.
    pub async fn replay(
        &self,
        id: DeadLetterId,
        wish: ReplayWish,
        actor: &str,
    ) -> Result<Option<ReplayAnswer>, ReplayError> {
        let Some(letter) = self.store.dead_letter(id).await? else { return Ok(None) };
        let in_force = self.in_force();
        let kind = letter.summary.kind;
        let policy = Kind::new(kind.clone()).ok().and_then(|kind| in_force.config.kinds.get(&kind).cloned());
        let policy = policy.ok_or(ReplayError::UnknownKind(kind))?;
        if let Some(payload) = &wish.payload {
            let sent =
                SentJob { kind: policy.kind.as_str().to_owned(), payload: payload.clone(), ..SentJob::default() };
            intake::check(&in_force.config, sent, self.now_ms())?;
        }
        let damaged = self.damaged(&in_force, &policy).await?;
        let answer = self
            .store
            .replay(ReplayRequest {
                dead_letter: id,
                handler: policy.handler.clone(),
                version: wish.version,
                damaged,
                actor: actor.to_owned(),
                reason: wish.reason,
                override_reason: wish.override_reason,
                payload: wish.payload,
                resolutions: wish.resolutions,
                begin_again: policy.in_doubt == InDoubtPolicy::BeginAgain,
                bulk_replay: None,
                now_ms: self.now_ms(),
                priority_step_ms: in_force.config.queue.priority_step_ms,
            })
            .await?;
        self.claimable.notify_one();
        Ok((answer != ReplayAnswer::NotFound).then_some(answer))
    }

    /// The handler's live components that are missing or damaged at this moment, whatever they were when they went live.
    pub(crate) async fn damaged_now(&self, handler: &HandlerName) -> Result<Vec<Digest>, StoreError> {
        let versions = self.store.versions().await?.into_iter();
        let live = versions.filter(|row| row.version.name == *handler && row.state == HandlerState::Live);
        let mut damaged = Vec::new();
        for row in live {
            match self.artefacts.get(row.digest).await {
                // Until it is served again, it stays an alert.
                Ok(_) if self.in_force().damaged.contains(&row.digest) => damaged.push(row.digest),
                Ok(_) => self.alerts.clear(Alert::ComponentDamaged, &row.digest.to_string()),
                Err(error) => {
                    self.alert_damage(&row, &error.into());
                    damaged.push(row.digest);
                }
            }
        }
        Ok(damaged)
    }

    /// Pauses a kind or lets it go on. False when it was so already.
    pub async fn pause_kind(&self, kind: &Kind, pause: bool, actor: &str) -> Result<bool, StoreError> {
        let _one_at_a_time = self.pausing.lock().await;
        let changed = self.store.pause_kind(kind, pause, actor, self.now_ms()).await?;
        self.read_paused_kinds().await?;
        Ok(changed)
    }

    pub(crate) async fn read_paused_kinds(&self) -> Result<(), StoreError> {
        let paused = self.store.paused_kinds().await?.into_iter().map(|paused| paused.kind).collect();
        self.change_in_force(|in_force| in_force.paused = paused);
        Ok(())
    }

    /// The measurements in Prometheus' text form, with the depth of the queue as of now.
    pub async fn metrics_text(&self) -> Result<String, StoreError> {
        let now_ms = self.now_ms();
        let config = self.config();
        let depths = self.store.depths().await?;
        for kind in config.kinds.keys() {
            let depth = depths.iter().find(|depth| depth.kind == kind.as_str());
            let [waiting, ready, leased] = depth.map_or([0; 3], |depth| [depth.waiting, depth.ready, depth.leased]);
            let oldest_ms = depth.and_then(|depth| depth.oldest_ready_at_ms).map_or(0, |at_ms| now_ms - at_ms);
            for (state, jobs) in [("waiting", waiting), ("ready", ready), ("leased", leased)] {
                metrics::queue(kind.as_str(), state, jobs, oldest_ms);
            }
        }
        metrics::running(self.running.len());
        metrics::alert(DEAD_LETTERS, !self.store.uncovered_arrivals().await?.is_empty());
        metrics::memory(self.running.memory_bytes(), config.sandbox.memory_total_max_bytes);
        Ok(self.rendered_metrics())
    }
}
