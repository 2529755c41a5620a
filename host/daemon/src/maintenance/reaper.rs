//! Takes leases that ran out, at the moment they do, and has each attempt decided and settled like any other. It never
//! takes a lease that a waiting heartbeat or settlement would have saved.

use std::{sync::Arc, time::Duration};

use leasehold_domain::{HandlerName, KindPolicy, Outcome, verdict::JobFacts};
use leasehold_store::{ExpiredLease, StoreError};

use crate::{
    attempt::{self, Ended},
    daemon::Daemon,
    metrics, settlement,
};

/// How many leases are taken at a time.
const BATCH: usize = 100;
/// How long the reaper rests after the queue failed.
const REST_AFTER_FAILURE: Duration = Duration::from_secs(1);
/// The longest sleep; only a safeguard, since a lease that is taken rings.
const SLEEP_MAX_MS: i64 = 60_000;

/// Reaps until the daemon's end.
pub(crate) async fn run(daemon: Arc<Daemon>) {
    loop {
        if let Err(error) = reap(&daemon).await {
            tracing::error!(code = error.code(), %error, "looking for expired leases failed");
            tokio::time::sleep(REST_AFTER_FAILURE).await;
        }
    }
}

async fn reap(daemon: &Arc<Daemon>) -> Result<(), StoreError> {
    let now_ms = daemon.now_ms();
    let due_ms = daemon.store.next_expiry_ms().await?.unwrap_or(i64::MAX);
    if due_ms > now_ms {
        let until = daemon.clock.instant_at(due_ms.min(now_ms + SLEEP_MAX_MS));
        tokio::select! {
            () = daemon.reap.notified() => {}
            () = tokio::time::sleep_until(until.into()) => {}
        }
        return Ok(());
    }
    let expired = daemon.store.expired_leases(daemon.now_ms(), BATCH).await?;
    for lease in expired {
        expire(daemon, lease).await?;
    }
    daemon.claimable.notify_one();
    Ok(())
}

async fn expire(daemon: &Daemon, lease: ExpiredLease) -> Result<(), StoreError> {
    attempt::lose_lease(daemon, lease.token);
    metrics::lease_expired(lease.kind.as_str());
    tracing::warn!(token = %lease.token, kind = %lease.kind, "a lease ran out");
    end_without_worker(daemon, &lease, Outcome::LeaseExpired, true).await
}

/// Decides about an attempt whose worker is gone and settles it.
pub(super) async fn end_without_worker(
    daemon: &Daemon,
    lease: &ExpiredLease,
    outcome: Outcome,
    only_if_expired: bool,
) -> Result<(), StoreError> {
    let in_force = daemon.in_force();
    let unconfigured = || KindPolicy::of_unconfigured(&lease.kind, HandlerName::of_kind(&lease.kind));
    let policy = in_force.config.kinds.get(&lease.kind).cloned().unwrap_or_else(unconfigured);
    let facts = JobFacts {
        job: lease.token.job,
        attempt: lease.token.attempt,
        attempts_used: lease.attempts_used,
        releases_running: lease.releases_running,
        cancel_requested: lease.cancel_requested,
    };
    let contents = daemon.store.contents(lease.token).await.unwrap_or_else(|error| {
        tracing::error!(token = %lease.token, code = error.code(), %error, "a job's payload does not open");
        None
    });
    let ended = Ended::without_run(outcome);
    settlement::settle(daemon, &in_force, &policy, &facts, contents.as_ref(), ended, only_if_expired).await;
    Ok(())
}
