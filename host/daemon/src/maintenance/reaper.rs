//! Takes leases that ran out, at the moment they do, and has each attempt decided and settled like any other. It never
//! takes a lease that a waiting heartbeat or settlement would have saved.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use leasehold_domain::{FencingToken, HandlerName, KindPolicy, Outcome, TimestampMs, verdict::JobFacts};
use leasehold_store::{ExpiredLease, StoreError};
use tokio::sync::Notify;

use crate::{
    attempt::{self, Ended},
    daemon::Daemon,
    settlement,
    trouble::Trouble,
};

/// How many leases are taken at a time, besides those that are in hand.
const BATCH: usize = 100;
/// How long the reaper rests after the queue failed, or while all that ran out is in hand.
const REST: Duration = Duration::from_secs(1);
/// The longest sleep; only a safeguard, since a lease that is taken rings.
const SLEEP_MAX_MS: i64 = 60_000;

/// The leases whose settlements are on their way, from here or from the recovery. One that can't be written is held there
/// and hinders no other.
#[derive(Debug, Default)]
pub(crate) struct InHand(Mutex<HashSet<FencingToken>>);

impl InHand {
    fn lock(&self) -> MutexGuard<'_, HashSet<FencingToken>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a lease in hand; false when it is there already.
    pub(super) fn take(&self, token: FencingToken) -> bool {
        self.lock().insert(token)
    }

    /// Lets go of a lease whose settlement has come to its end.
    pub(super) fn let_go(&self, token: FencingToken) {
        self.lock().remove(&token);
    }
}

/// When the reaper has to look next. Whoever takes a lease rings it only if that one may run out before.
#[derive(Debug)]
pub(crate) struct NextReap {
    time: Mutex<ReapTime>,
    rung: Notify,
}

#[derive(Debug)]
struct ReapTime {
    at_ms: TimestampMs,
    /// While the reaper asks the queue, it takes what was leased meanwhile into account by itself.
    is_looking: bool,
}

impl Default for NextReap {
    fn default() -> Self {
        Self { time: Mutex::new(ReapTime { at_ms: TimestampMs::MAX, is_looking: true }), rung: Notify::new() }
    }
}

impl NextReap {
    fn lock(&self) -> MutexGuard<'_, ReapTime> {
        self.time.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A lease may run out at this time.
    pub(crate) fn may_run_out_at(&self, at_ms: TimestampMs) {
        let mut time = self.lock();
        if at_ms < time.at_ms {
            time.at_ms = at_ms;
            if !time.is_looking {
                self.rung.notify_one();
            }
        }
    }

    /// Has the reaper look again.
    pub(crate) fn ring(&self) {
        self.rung.notify_one();
    }

    fn begin_to_look(&self) {
        *self.lock() = ReapTime { at_ms: TimestampMs::MAX, is_looking: true };
    }

    /// Answers when to look next: at what was found, or at the end of a lease that was taken meanwhile.
    fn found(&self, next_ms: TimestampMs) -> TimestampMs {
        let mut time = self.lock();
        *time = ReapTime { at_ms: time.at_ms.min(next_ms), is_looking: false };
        time.at_ms
    }
}

/// Reaps until the daemon's end.
pub(crate) async fn run(daemon: Arc<Daemon>) {
    fail::fail_point!("reaper.run", |_| ());
    let mut trouble = Trouble::default();
    loop {
        let reaped = reap(&daemon).await;
        trouble.note("looking for expired leases", &reaped);
        if reaped.is_err() {
            tokio::time::sleep(REST).await;
        }
    }
}

async fn reap(daemon: &Arc<Daemon>) -> Result<(), StoreError> {
    let now_ms = daemon.now_ms();
    let due_ms = next_expiry_ms(daemon, i64::MIN).await?;
    if due_ms > now_ms {
        wait(daemon, daemon.clock.instant_at(due_ms.min(now_ms + SLEEP_MAX_MS))).await;
        return Ok(());
    }
    let taken = daemon.in_hand.lock().len() + daemon.running.len();
    let expired = daemon.store.expired_leases(daemon.now_ms(), BATCH + taken).await?;
    let is_new = |lease: &ExpiredLease| {
        // A guest that has ended is being settled by its own attempt, which knows its outcome.
        !daemon.running.is_settling(lease.token) && daemon.in_hand.take(lease.token)
    };
    let new: Vec<_> = expired.into_iter().filter(is_new).collect();
    if new.is_empty() {
        // Another lease may run out while those that have are in hand.
        let due_ms = next_expiry_ms(daemon, now_ms).await?;
        wait(daemon, daemon.clock.instant_at(due_ms).min(Instant::now() + REST)).await;
    }
    for lease in new {
        tokio::spawn(expire(Arc::clone(daemon), lease));
    }
    Ok(())
}

/// When the first of the leases runs out that are to run out after a time, those that are taken meanwhile among them.
async fn next_expiry_ms(daemon: &Daemon, after_ms: TimestampMs) -> Result<TimestampMs, StoreError> {
    daemon.next_reap.begin_to_look();
    let found_ms = daemon.store.next_expiry_ms(after_ms).await?;
    Ok(daemon.next_reap.found(found_ms.unwrap_or(i64::MAX)))
}

async fn wait(daemon: &Daemon, until: Instant) {
    tokio::select! {
        () = daemon.next_reap.rung.notified() => {}
        () = tokio::time::sleep_until(until.into()) => {}
    }
}

async fn expire(daemon: Arc<Daemon>, lease: ExpiredLease) {
    attempt::lose_lease(&daemon, lease.token);
    tracing::warn!(token = %lease.token, kind = %lease.kind, "a lease ran out");
    end_without_worker(&daemon, &lease, Outcome::LeaseExpired, true).await;
    daemon.in_hand.let_go(lease.token);
    daemon.claimable.notify_one();
    daemon.next_reap.ring();
}

/// Decides about an attempt whose worker is gone and settles it.
pub(super) async fn end_without_worker(daemon: &Daemon, lease: &ExpiredLease, outcome: Outcome, only_if_expired: bool) {
    let in_force = daemon.in_force();
    let unconfigured = || Arc::new(KindPolicy::of_unconfigured(&lease.kind, HandlerName::of_kind(&lease.kind)));
    let policy = in_force.config.kinds.get(&lease.kind).cloned().unwrap_or_else(unconfigured);
    let facts = JobFacts {
        job: lease.token.job,
        attempt: lease.token.attempt,
        attempts_used: lease.attempts_used,
        releases_running: lease.releases_running,
        cancel_requested: lease.cancel_requested,
        unclean_stops: lease.unclean_stops,
    };
    let contents = daemon.store.contents(lease.token).await.unwrap_or_else(|error| {
        tracing::error!(token = %lease.token, code = error.code(), %error, "a job's payload does not open");
        None
    });
    let ended = Ended::without_run(outcome);
    settlement::settle(daemon, &in_force, &policy, &facts, contents.as_ref(), ended, only_if_expired).await;
    // Nothing here tells whether it was a replay's job, and this is rare.
    daemon.replay_may_have_ended();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_rung(next: &NextReap) -> bool {
        std::pin::pin!(next.rung.notified()).enable()
    }

    #[test]
    fn q7_a_lease_that_may_run_out_before_the_next_look_rings_and_no_other_does() {
        let next = NextReap::default();
        next.begin_to_look();
        assert_eq!(next.found(1_000), 1_000);
        for (at_ms, rings) in [(2_000, false), (1_000, false), (500, true), (600, false), (400, true)] {
            next.may_run_out_at(at_ms);
            assert_eq!(is_rung(&next), rings, "{at_ms}");
        }
    }

    #[test]
    fn q7_a_lease_that_was_taken_during_a_look_counts_and_what_was_looked_for_before_does_not() {
        let next = NextReap::default();
        next.may_run_out_at(300);
        next.begin_to_look();
        next.may_run_out_at(500);
        assert!(!is_rung(&next));
        assert_eq!(next.found(1_000), 500);
        next.begin_to_look();
        assert_eq!(next.found(1_000), 1_000);
    }
}
