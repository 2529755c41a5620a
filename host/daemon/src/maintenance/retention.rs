//! Forgets ended jobs by age and by number. It never touches the audit log, and open dead letters and their originals only
//! where a setting says so.

use std::{sync::Arc, time::Duration};

use leasehold_domain::{DurationMs, TimestampMs};
use leasehold_store::StoreError;

use crate::{config::units::duration_text, daemon::Daemon};

/// How often retention is carried out.
const INTERVAL: Duration = Duration::from_mins(1);

/// Carries retention out until the daemon's end.
pub(crate) async fn run(daemon: Arc<Daemon>) {
    let mut interval = tokio::time::interval(INTERVAL);
    loop {
        interval.tick().await;
        // Looked at here too, so that the alert of a full disk comes and goes while nobody enqueues.
        let _ = daemon.check_disk();
        if let Err(error) = carry_out(&daemon).await {
            tracing::error!(code = error.code(), %error, "retention could not be carried out; it is tried again");
        }
    }
}

async fn carry_out(daemon: &Daemon) -> Result<(), StoreError> {
    let queue = &daemon.config().queue;
    let now_ms = daemon.now_ms();
    let bounds = leasehold_store::Retention {
        forget_ended_before_ms: now_ms - queue.key_retention_ms,
        trim_ended_before_ms: now_ms - queue.ended_retention_ms,
        ended_jobs_max: queue.ended_jobs_max,
    };
    while daemon.store.retain(bounds).await? {}
    if let Some(kept_ms) = queue.dead_letter_retention_ms {
        give_up_dead_letters(daemon, now_ms, kept_ms).await?;
    }
    if let Some(kept_ms) = queue.original_retention_ms {
        erase_originals(daemon, now_ms, kept_ms).await?;
    }
    Ok(())
}

async fn give_up_dead_letters(daemon: &Daemon, now_ms: TimestampMs, kept_ms: DurationMs) -> Result<(), StoreError> {
    let reason = format!("older than dead_letter_retention, {}", duration_text(kept_ms));
    loop {
        let (count, goes_on) = daemon.store.give_up_dead_letters(now_ms - kept_ms, &reason, now_ms).await?;
        if count > 0 {
            tracing::warn!(count, "dead letters were given up: they are {reason}");
        }
        if !goes_on {
            return Ok(());
        }
    }
}

async fn erase_originals(daemon: &Daemon, now_ms: TimestampMs, kept_ms: DurationMs) -> Result<(), StoreError> {
    loop {
        let (count, goes_on) = daemon.store.erase_originals(now_ms - kept_ms, now_ms).await?;
        if count > 0 {
            tracing::info!(count, "originals of dead letters were erased: they are older than original_retention");
        }
        if !goes_on {
            return Ok(());
        }
    }
}
