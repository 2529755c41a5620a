//! Forgets ended jobs by age, and gives unused pages back. It never touches open dead letters or the audit log.

use std::{sync::Arc, time::Duration};

use crate::daemon::Daemon;

/// How often retention is carried out.
const INTERVAL: Duration = Duration::from_mins(1);
/// How many pages are given back at a time: little enough that no claim waits for it.
const PAGES: u32 = 256;

/// Carries retention out until the daemon's end.
pub(crate) async fn run(daemon: Arc<Daemon>) {
    let mut interval = tokio::time::interval(INTERVAL);
    loop {
        interval.tick().await;
        // The recorder folds what it has collected only when it is asked to; unasked it would grow.
        daemon.metrics.run_upkeep();
        // Looked at here too, so that the alert of a full disk comes and goes while nobody enqueues.
        let _ = daemon.check_disk();
        if let Err(error) = carry_out(&daemon).await {
            tracing::error!(code = error.code(), %error, "retention could not be carried out; it is tried again");
        }
    }
}

async fn carry_out(daemon: &Daemon) -> Result<(), leasehold_store::StoreError> {
    let queue = &daemon.config().queue;
    let now_ms = daemon.now_ms();
    let bounds = leasehold_store::Retention {
        forget_ended_before_ms: now_ms - queue.key_retention_ms,
        trim_ended_before_ms: now_ms - queue.ended_retention_ms,
        ended_jobs_max: queue.ended_jobs_max,
    };
    while daemon.store.retain(bounds).await? {}
    daemon.store.give_back_pages(PAGES).await
}
