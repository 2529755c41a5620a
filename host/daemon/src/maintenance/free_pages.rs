//! Gives pages of the database that nobody has needed for a while back to the file system. It works in small pieces, which
//! is what a claim may wait for, and rests between them, so that most of the writer's time stays with the queue. It never
//! gives back what the queue has just let go and is about to use again.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use leasehold_store::StoreError;
use tokio::time::MissedTickBehavior;

use crate::{daemon::Daemon, trouble::Trouble};

/// How long pages have to stand free.
const INTERVAL: Duration = Duration::from_mins(1);
/// How many pages are given back at a time: some milliseconds' work.
const PIECE: u32 = 256;
/// How much longer the rest after a piece is than the piece took.
const REST: u32 = 4;

/// Gives pages back until the daemon's end.
pub(crate) async fn run(daemon: Arc<Daemon>) {
    let mut trouble = Trouble::default();
    let mut interval = tokio::time::interval(INTERVAL);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut free_before = 0;
    loop {
        interval.tick().await;
        let given = give_back(&daemon, free_before).await;
        trouble.note("giving free pages back", &given);
        free_before = given.unwrap_or(0);
    }
}

/// Gives back as many pages as stood free at both looks. Answers how many are free now.
async fn give_back(daemon: &Daemon, free_before: u32) -> Result<u32, StoreError> {
    let mut left = daemon.store.free_pages().await?.min(free_before);
    while left > 0 {
        let begun = Instant::now();
        daemon.store.give_back_pages(left.min(PIECE)).await?;
        left = left.saturating_sub(PIECE);
        tokio::time::sleep(begun.elapsed() * REST).await;
    }
    daemon.store.free_pages().await
}
