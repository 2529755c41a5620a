//! What a start finds of the process before it: its leases, given back at once with their attempts counted, and lanes
//! that it held back. It goes by identity, not by time: only one daemon can own a database, so every lease is the old
//! one's.

use std::sync::Arc;

use leasehold_domain::{Outcome, verdict::SUSPECT_AFTER};
use leasehold_store::{LeasedJob, StoreError};
use tokio::task::JoinSet;

use super::reaper::end_without_worker;
use crate::{daemon::Daemon, stop_marker};

/// The leases that the process before left behind. They are read before this one takes any. The reaper leaves them alone,
/// however long their end takes: it knows nothing of who is to blame.
pub(crate) async fn orphaned(daemon: &Daemon) -> Result<Vec<LeasedJob>, StoreError> {
    let leases = daemon.store.leases().await?;
    for lease in &leases {
        daemon.in_hand.take(lease.token);
    }
    Ok(leases)
}

/// Gives back what the process before left behind. A lease whose end can't be written yet hinders no other.
pub(crate) async fn run(daemon: Arc<Daemon>, orphaned: Vec<LeasedJob>) {
    if !orphaned.is_empty() {
        tracing::warn!(leases = orphaned.len(), "the daemon did not stop cleanly; its leases are given back");
    }
    if let Err(error) = daemon.store.let_go_held_lanes().await {
        tracing::error!(code = error.code(), %error, "lanes that were held back could not be let go; each goes on when one of its jobs ends");
    }
    let data_dir = daemon.config().daemon.data_dir.clone();
    let stopped_at_once = stop_marker::read(&data_dir);
    let is_suspect =
        |lease: &LeasedJob| lease.unclean_stops >= SUSPECT_AFTER && !stopped_at_once.contains(&lease.token);
    let beside_suspect = orphaned.iter().any(is_suspect);
    let mut ends = JoinSet::new();
    for lease in orphaned {
        if is_suspect(&lease) {
            tracing::error!(token = %lease.token, kind = %lease.kind, "the daemon stopped under a suspect, which is blamed for it");
        }
        let outcome = if stopped_at_once.contains(&lease.token) {
            Outcome::DaemonStoppedAtOnce
        } else {
            Outcome::DaemonStopped { beside_suspect }
        };
        let daemon = Arc::clone(&daemon);
        ends.spawn(async move {
            end_without_worker(&daemon, &lease, outcome, false).await;
            daemon.in_hand.let_go(lease.token);
        });
    }
    ends.join_all().await;
    stop_marker::remove(&data_dir);
    daemon.claimable.notify_one();
}
