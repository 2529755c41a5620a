//! Acts on the queue that the running daemon has to hear of: jobs that can be claimed, guests that are to be stopped.

use leasehold_domain::{JobId, Kind, StopReason};
use leasehold_store::{Cancelled, EnqueueAnswer, EnqueueJob, ReplayAnswer, ReplayRequest, StoreError};

use crate::{config::Actor, daemon::Daemon, metrics};

/// Puts jobs in and has them run.
pub(super) async fn enqueue(
    daemon: &Daemon,
    jobs: Vec<EnqueueJob>,
    actor: &Actor,
) -> Result<Vec<EnqueueAnswer>, StoreError> {
    let queue = &daemon.config().queue;
    let kinds: Vec<_> = jobs.iter().map(|job| job.kind.clone()).collect();
    let answers = daemon
        .store()
        .enqueue(jobs, &actor.name, daemon.now_ms(), queue.priority_step_ms, queue.queue_depth_max)
        .await?;
    for (kind, answer) in kinds.iter().zip(&answers) {
        match answer {
            EnqueueAnswer::Enqueued { .. } => metrics::job_enqueued(kind.as_str()),
            EnqueueAnswer::Duplicate { .. } => metrics::duplicate_prevented("job"),
            EnqueueAnswer::KeyConflict { .. } | EnqueueAnswer::QueueFull => {}
        }
    }
    daemon.claimable.notify_one();
    Ok(answers)
}

/// Cancels a job, and stops its guest if it runs.
pub(super) async fn cancel(daemon: &Daemon, job: JobId, actor: &Actor) -> Result<Cancelled, StoreError> {
    let cancelled = daemon.store().cancel(job, &actor.name, daemon.now_ms()).await?;
    match cancelled {
        Cancelled::Now => daemon.job_ended(job),
        Cancelled::WhenStopped(token) => {
            // A guest that is not here has ended or never began; its settlement finds the request.
            daemon.running.stop(token, StopReason::Cancelled);
        }
        Cancelled::AlreadyEnded(_) | Cancelled::NotFound => {}
    }
    Ok(cancelled)
}

/// Sends a dead letter's job back into the queue and has it run.
pub(super) async fn replay(daemon: &Daemon, request: ReplayRequest) -> Result<ReplayAnswer, StoreError> {
    let answer = daemon.store().replay(request).await?;
    daemon.claimable.notify_one();
    Ok(answer)
}

/// Pauses a kind or lets it go on.
pub(super) async fn pause_kind(daemon: &Daemon, kind: &Kind, pause: bool, actor: &Actor) -> Result<(), StoreError> {
    daemon.store().pause_kind(kind, pause, &actor.name, daemon.now_ms()).await?;
    daemon.claimable.notify_one();
    Ok(())
}
