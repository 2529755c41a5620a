//! What a start finds of the process before it: its leases, given back at once with their attempts counted, and lanes
//! that it held back. It goes by identity, not by time: only one daemon can own a database, so every lease is the old
//! one's.

use leasehold_domain::Outcome;
use leasehold_store::StoreError;

use super::reaper::end_without_worker;
use crate::daemon::Daemon;

/// Gives back what the process before left behind.
pub(crate) async fn run(daemon: &Daemon) -> Result<(), StoreError> {
    let leases = daemon.store.leases().await?;
    if !leases.is_empty() {
        tracing::warn!(leases = leases.len(), "the daemon did not stop cleanly; its leases are given back");
    }
    for lease in &leases {
        end_without_worker(daemon, lease, Outcome::DaemonStopped, false).await?;
    }
    daemon.store.let_go_held_lanes().await
}
