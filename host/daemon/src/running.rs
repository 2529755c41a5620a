//! The attempts whose guests run in this process: what heartbeats extend, what a cancel or a lost lease stops, what
//! memory they hold. It is
//! memory alone; what it forgets in a crash, the next start finds in the database.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
};

use leasehold_domain::{
    AttemptNumber, DurationMs, FencingToken, Kind, KindPolicy, MemoryRoom, StopReason, TimestampMs,
};
use leasehold_sandbox::Stopper;
use leasehold_store::Beat;
use tokio::sync::Notify;

/// One attempt in memory.
#[derive(Debug)]
struct Running {
    kind: Kind,
    /// The memory that its guest may use, whether it does or not.
    memory_bytes: u64,
    /// Whether no other attempt may take its slot before it is settled: its verdict may hold back who would.
    keeps_slot: bool,
    /// Until when the lease is known to hold.
    lease_expires_at_ms: TimestampMs,
    next_beat_at_ms: TimestampMs,
    heartbeat_ms: DurationMs,
    visibility_timeout_ms: DurationMs,
    /// Present while the guest itself runs; before and after, only the lease is held.
    stopper: Option<Stopper>,
    /// Why the guest is to be stopped, also when it has not begun yet.
    stop: Option<StopReason>,
    beating: bool,
    guest_ended: bool,
}

impl Running {
    /// What its guest may use, as long as it has one.
    const fn guest_memory_bytes(&self) -> u64 {
        if self.guest_ended { 0 } else { self.memory_bytes }
    }
}

/// All attempts in memory.
#[derive(Debug, Default)]
pub(crate) struct RunningAttempts {
    attempts: Mutex<HashMap<FencingToken, Running>>,
    /// Rung when the next beat may have come nearer.
    pub(crate) changed: Notify,
    /// Rung when a guest has ended, and when an attempt is gone.
    pub(crate) ended: Notify,
}

/// What is due at a moment.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Due {
    /// Leases to extend.
    pub(crate) beats: Vec<Beat>,
    /// Leases that ran out before they could be extended.
    pub(crate) ran_out: Vec<FencingToken>,
    /// When to look again.
    pub(crate) next_at_ms: Option<TimestampMs>,
}

impl RunningAttempts {
    fn lock(&self) -> MutexGuard<'_, HashMap<FencingToken, Running>> {
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes an attempt in, whose lease was just taken.
    pub(crate) fn add(
        &self,
        token: FencingToken,
        policy: &KindPolicy,
        memory_bytes: u64,
        lease_expires_at_ms: TimestampMs,
    ) {
        let KindPolicy { heartbeat_ms, visibility_timeout_ms, .. } = *policy;
        let next_beat_at_ms = lease_expires_at_ms - visibility_timeout_ms + heartbeat_ms;
        let running = Running {
            kind: policy.kind.clone(),
            memory_bytes,
            keeps_slot: policy.cooldown,
            lease_expires_at_ms,
            next_beat_at_ms,
            heartbeat_ms,
            visibility_timeout_ms,
            stopper: None,
            stop: None,
            beating: false,
            guest_ended: false,
        };
        self.lock().insert(token, running);
        self.changed.notify_one();
    }

    /// The guest begins. If it is to be stopped already, it is at once.
    pub(crate) fn guest_started(&self, token: FencingToken, stopper: Stopper) {
        if let Some(running) = self.lock().get_mut(&token) {
            if let Some(reason) = running.stop {
                stopper.stop(reason);
            }
            running.stopper = Some(stopper);
        }
    }

    /// The guest has ended; the lease is held until its attempt is settled.
    pub(crate) fn guest_ended(&self, token: FencingToken) {
        if let Some(running) = self.lock().get_mut(&token) {
            running.stopper = None;
            running.guest_ended = true;
        }
        self.ended.notify_one();
    }

    /// The attempt is settled, or its lease is lost.
    pub(crate) fn remove(&self, token: FencingToken) {
        self.lock().remove(&token);
        self.ended.notify_waiters();
        self.ended.notify_one();
    }

    /// Stops one guest, also one that has not begun yet. False when none runs here.
    pub(crate) fn stop(&self, token: FencingToken, reason: StopReason) -> bool {
        let mut attempts = self.lock();
        let Some(running) = attempts.get_mut(&token) else { return false };
        running.stop = running.stop.or(Some(reason));
        match &running.stopper {
            Some(stopper) => stopper.stop(reason),
            None => return false,
        }
        true
    }

    /// Stops all guests.
    pub(crate) fn stop_all(&self, reason: StopReason) {
        for token in self.tokens() {
            self.stop(token, reason);
        }
    }

    /// Whether somebody asked for the attempt to be stopped so that its job is cancelled.
    pub(crate) fn is_cancelled(&self, token: FencingToken) -> bool {
        self.lock().get(&token).is_some_and(|running| running.stop == Some(StopReason::Cancelled))
    }

    /// How many attempts are in memory, by kind.
    pub(crate) fn count_by_kind(&self) -> BTreeMap<Kind, usize> {
        let mut counts = BTreeMap::new();
        for running in self.lock().values() {
            *counts.entry(running.kind.clone()).or_default() += 1;
        }
        counts
    }

    /// The attempts that are in memory.
    pub(crate) fn tokens(&self) -> Vec<FencingToken> {
        self.lock().keys().copied().collect()
    }

    /// How many attempts are in memory.
    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    /// How many further guests may be started where so many may run at once. Most attempts whose guests have ended take no
    /// slot while they are settled; a disk that keeps them from that still bounds how many there are.
    pub(crate) fn free_slots(&self, slots: usize) -> usize {
        let attempts = self.lock();
        let guests = attempts.values().filter(|running| !running.guest_ended || running.keeps_slot).count();
        slots.saturating_sub(guests).min((2 * slots).saturating_sub(attempts.len()))
    }

    /// The memory that the guests in memory may use together, in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.lock().values().map(Running::guest_memory_bytes).sum()
    }

    /// What they leave of the memory that there is for all.
    pub(crate) fn memory_room(&self, total_bytes: u64) -> MemoryRoom {
        MemoryRoom::left_by(self.lock().values().map(Running::guest_memory_bytes), total_bytes)
    }

    /// The other attempts of a job whose guests still run here.
    pub(crate) fn others_of(&self, token: FencingToken) -> Vec<AttemptNumber> {
        fail::fail_point!("running.forget_others", |_| Vec::new());
        let attempts = self.lock();
        let others = attempts.keys().filter(|other| other.job == token.job && other.attempt != token.attempt);
        others.map(|other| other.attempt).collect()
    }

    /// Whether an attempt's guest has ended and its settlement is on its way.
    pub(crate) fn is_settling(&self, token: FencingToken) -> bool {
        self.lock().get(&token).is_some_and(|running| running.guest_ended)
    }

    /// What heartbeats have to do now. A beat that is on its way is not sent again.
    pub(crate) fn due(&self, now_ms: TimestampMs) -> Due {
        let mut due = Due::default();
        for (token, running) in self.lock().iter_mut() {
            if running.stop == Some(StopReason::LeaseLost) {
                continue;
            }
            if running.lease_expires_at_ms <= now_ms {
                due.ran_out.push(*token);
                continue;
            }
            if running.next_beat_at_ms <= now_ms && !running.beating {
                running.beating = true;
                due.beats.push(Beat { token: *token, lease_expires_at_ms: now_ms + running.visibility_timeout_ms });
            }
            let wanted_ms = if running.beating { running.lease_expires_at_ms } else { running.next_beat_at_ms };
            due.next_at_ms = Some(due.next_at_ms.map_or(wanted_ms, |next_at_ms| next_at_ms.min(wanted_ms)));
        }
        due
    }

    /// Beats have been answered: what was extended holds longer, and the next beat is set either way.
    pub(crate) fn beaten(&self, beats: &[Beat], extended: bool, now_ms: TimestampMs) {
        let mut attempts = self.lock();
        for beat in beats {
            if let Some(running) = attempts.get_mut(&beat.token) {
                running.beating = false;
                running.next_beat_at_ms = now_ms + running.heartbeat_ms;
                if extended {
                    running.lease_expires_at_ms = beat.lease_expires_at_ms;
                }
            }
        }
        drop(attempts);
        self.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use leasehold_domain::{HandlerName, JobId};

    use super::*;

    fn token(job: i64, attempt: u32) -> FencingToken {
        FencingToken { job: JobId(job), attempt: AttemptNumber(attempt) }
    }

    fn policy(cooldown: bool) -> KindPolicy {
        let kind = Kind::new("k").unwrap();
        let unconfigured = KindPolicy::of_unconfigured(&kind, HandlerName::of_kind(&kind));
        KindPolicy { cooldown, heartbeat_ms: 5_000, visibility_timeout_ms: 30_000, ..unconfigured }
    }

    fn attempts() -> RunningAttempts {
        let attempts = RunningAttempts::default();
        attempts.add(token(1, 1), &policy(false), 1, 30_000);
        attempts
    }

    #[test]
    fn q5_a_beat_is_due_each_heartbeat_and_is_sent_once() {
        let attempts = attempts();
        assert_eq!(attempts.due(4_999), Due { next_at_ms: Some(5_000), ..Due::default() });
        let beats = attempts.due(5_000).beats;
        assert_eq!(beats, [Beat { token: token(1, 1), lease_expires_at_ms: 35_000 }]);
        assert!(attempts.due(6_000).beats.is_empty());
        attempts.beaten(&beats, true, 6_000);
        assert_eq!(attempts.due(6_000).next_at_ms, Some(11_000));
    }

    #[test]
    fn h5_a_slot_is_free_when_its_guest_has_ended_and_the_settling_are_bounded() {
        let attempts = attempts();
        assert_eq!(attempts.free_slots(2), 1);
        attempts.guest_ended(token(1, 1));
        assert_eq!((attempts.free_slots(2), attempts.memory_bytes()), (2, 0));
        for job in 2..=3 {
            attempts.add(token(job, 1), &policy(false), 1, 30_000);
            attempts.guest_ended(token(job, 1));
        }
        assert_eq!(attempts.free_slots(2), 1);
        attempts.add(token(4, 1), &policy(false), 1, 30_000);
        assert_eq!(attempts.free_slots(2), 0);
        attempts.remove(token(1, 1));
        assert_eq!(attempts.free_slots(2), 1);
    }

    #[test]
    fn q9_a_slot_is_kept_until_a_verdict_that_may_hold_others_back_is_settled() {
        let attempts = RunningAttempts::default();
        attempts.add(token(1, 1), &policy(true), 1, 30_000);
        attempts.guest_ended(token(1, 1));
        assert_eq!(attempts.free_slots(1), 0);
        attempts.remove(token(1, 1));
        assert_eq!(attempts.free_slots(1), 1);
    }

    #[test]
    fn q7_a_lease_that_could_not_be_extended_runs_out() {
        let attempts = attempts();
        let beats = attempts.due(5_000).beats;
        attempts.beaten(&beats, false, 6_000);
        assert!(attempts.due(29_999).ran_out.is_empty());
        assert_eq!(attempts.due(30_000).ran_out, [token(1, 1)]);
    }

    #[test]
    fn i2_only_the_other_attempts_of_the_same_job_count_as_running() {
        let attempts = attempts();
        attempts.add(token(1, 2), &policy(false), 1, 30_000);
        attempts.add(token(2, 7), &policy(false), 1, 30_000);
        assert_eq!(attempts.others_of(token(1, 2)), [AttemptNumber(1)]);
        assert!(attempts.others_of(token(2, 7)).is_empty());
    }
}
