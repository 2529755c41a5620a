//! What the queue does about an outcome: one pure decision, the same for a live worker, the reaper and a restart.

use crate::{
    AttemptNumber, Cause, DurationMs, ErrorClass, JobId, KindPolicy, Outcome, Problem, Said, StopReason, TimestampMs,
    Treatment, Vocabulary, backoff::Jitter,
};

/// What is known of a job at the end of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobFacts {
    /// The job.
    pub job: JobId,
    /// The attempt that ended.
    pub attempt: AttemptNumber,
    /// How many attempts have counted, this one included.
    pub attempts_used: u32,
    /// How many times running the host has given the attempt back.
    pub releases_running: u32,
    /// Whether somebody asked for the job to be cancelled.
    pub cancel_requested: bool,
    /// How many unclean stops in a row the job was running at before this attempt.
    pub unclean_stops: u32,
}

/// A job that was running at this many unclean stops in a row is a suspect: it may be what stops the daemon. Suspects
/// run one at a time, so that the next stop tells.
pub const SUSPECT_AFTER: u32 = 2;

impl JobFacts {
    /// Whether the daemon's last stops make the job a suspect.
    #[must_use]
    pub const fn is_suspect(&self) -> bool {
        self.unclean_stops >= SUSPECT_AFTER
    }

    /// How many unclean stops in a row the job was running at, after an attempt that ended so. Any other end than a
    /// stop of the daemon clears it; a stop beside a suspect says nothing about it.
    #[must_use]
    pub const fn unclean_stops_after(&self, outcome: &Outcome) -> u32 {
        match outcome {
            Outcome::DaemonStopped { beside_suspect: true } | Outcome::DaemonStoppedAtOnce => self.unclean_stops,
            Outcome::DaemonStopped { beside_suspect: false } => self.unclean_stops.saturating_add(1),
            _ => 0,
        }
    }
}

/// What is done with the job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It is done.
    Complete {
        /// Its result.
        output: Option<Vec<u8>>,
    },
    /// It ends with nothing to be done.
    Suppress {
        /// Why.
        reason: String,
    },
    /// It is tried again.
    Retry {
        /// When it becomes visible.
        visible_at_ms: TimestampMs,
        /// Until when the other jobs of its lane are held back.
        cooldown_until_ms: Option<TimestampMs>,
    },
    /// It is tried again and the attempt does not count.
    Release {
        /// When it becomes visible.
        visible_at_ms: TimestampMs,
    },
    /// It leaves the queue for the dead letters.
    Die {
        /// Why.
        cause: Cause,
        /// Until when the other jobs of its lane are held back: a rate limit is the lane's, whichever job meets it.
        cooldown_until_ms: Option<TimestampMs>,
    },
    /// It ends as cancelled.
    Cancel,
}

/// A verdict and what is recorded of the attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// What is done with the job.
    pub verdict: Verdict,
    /// What went wrong, if anything did; the class is one of the vocabulary.
    pub problem: Option<Problem>,
    /// Whether the guest's class is not in the vocabulary.
    pub unknown_class: bool,
    /// Whether the vocabulary and the guest disagree.
    pub mismatch: bool,
}

/// The configuration's numbers that every kind shares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReleaseBounds {
    /// How many times running the host gives an attempt back before it counts.
    pub release_max: u32,
    /// The delay after a release that is not part of a shutdown.
    pub release_delay_ms: DurationMs,
}

/// Decides what becomes of a job after an attempt.
#[must_use]
pub fn decide(
    facts: &JobFacts,
    outcome: &Outcome,
    policy: &KindPolicy,
    vocabulary: &Vocabulary,
    bounds: ReleaseBounds,
    now_ms: TimestampMs,
    jitter: Jitter,
) -> Decision {
    let deciding = Deciding { facts, policy, vocabulary, bounds, now_ms, jitter };
    match outcome {
        Outcome::Done { output } => plain(Verdict::Complete { output: output.clone() }),
        Outcome::Suppressed { reason } => plain(Verdict::Suppress { reason: reason.clone() }),
        _ if facts.cancel_requested => plain(Verdict::Cancel),
        Outcome::Stopped(StopReason::Cancelled) => plain(Verdict::Cancel),
        Outcome::Stopped(StopReason::Shutdown) => deciding.release(now_ms, None),
        Outcome::StepInProgress { .. } => deciding.release(now_ms + bounds.release_delay_ms, None),
        Outcome::HandlerUnavailable { message } => {
            deciding.release(now_ms + bounds.release_delay_ms, Some(Problem::new("handler.unavailable", message)))
        }
        Outcome::Failed { said, problem } => deciding.failed(*said, problem),
        Outcome::Broke { problem } => deciding.broke(problem),
        Outcome::DownstreamTimeout { problem } => deciding.retry_or_die(Cause::Exhausted, problem.clone()),
        Outcome::StepInDoubt { step } => {
            die(Cause::InDoubt, Problem::new("step.in_doubt", format!("step {step} is in doubt")))
        }
        Outcome::LeaseExpired | Outcome::Stopped(StopReason::LeaseLost) => {
            deciding.again_at_once_or_die(Problem::new("lease.expired", "the lease ran out"))
        }
        Outcome::DaemonStopped { beside_suspect } => deciding.daemon_stopped(*beside_suspect),
        Outcome::DaemonStoppedAtOnce => {
            deciding.again_at_once_or_die(Problem::new("daemon.stopped", "the daemon was stopped at once"))
        }
        Outcome::ReplayTargetNotLive { message } => {
            die(Cause::ReplayRefused, Problem::new("replay.version_not_live", message))
        }
    }
}

struct Deciding<'a> {
    facts: &'a JobFacts,
    policy: &'a KindPolicy,
    vocabulary: &'a Vocabulary,
    bounds: ReleaseBounds,
    now_ms: TimestampMs,
    jitter: Jitter,
}

impl Deciding<'_> {
    /// What the guest said, corrected by the vocabulary: a class mapped to retry or rate-limited is never made poison.
    fn failed(&self, said: Said, problem: &Problem) -> Decision {
        let classified = self.vocabulary.classify(&problem.class);
        let recorded = Problem { class: classified.class, message: problem.message.clone() };
        let treatment = classified.treatment.unwrap_or(match said {
            Said::Retry => Treatment::Retry,
            Said::RateLimited { .. } => Treatment::RateLimited,
            Said::Rejected => Treatment::Rejected,
            Said::Poison => Treatment::Poison,
        });
        let decision = match treatment {
            Treatment::Retry => self.retry_or_die(Cause::Exhausted, recorded),
            Treatment::RateLimited => self.rate_limited(said, recorded),
            Treatment::Rejected => die(Cause::Rejected, recorded),
            Treatment::Poison => die(Cause::Poison, recorded),
        };
        let mismatch = classified.treatment.is_some_and(|treatment| !treatment.agrees_with(said));
        Decision { unknown_class: classified.unknown, mismatch, ..decision }
    }

    /// Traps and broken limits are retried to the cap and are poison there, unless the vocabulary says otherwise.
    fn broke(&self, problem: &Problem) -> Decision {
        match self.vocabulary.classify(&problem.class).treatment {
            Some(Treatment::Retry) => self.retry_or_die(Cause::Exhausted, problem.clone()),
            Some(Treatment::RateLimited) => {
                self.rate_limited(Said::RateLimited { retry_after_ms: None }, problem.clone())
            }
            Some(Treatment::Rejected) => die(Cause::Rejected, problem.clone()),
            Some(Treatment::Poison) => die(Cause::Poison, problem.clone()),
            None => self.retry_or_die(Cause::Poison, problem.clone()),
        }
    }

    fn rate_limited(&self, said: Said, problem: Problem) -> Decision {
        let asked_ms = match said {
            Said::RateLimited { retry_after_ms: Some(asked_ms) } => asked_ms.clamp(0, self.policy.retry_after_max_ms),
            _ => 0,
        };
        let visible_at_ms = self.now_ms + asked_ms.max(self.backoff_ms());
        let cooldown_until_ms = self.policy.cooldown.then_some(visible_at_ms);
        if self.is_last_attempt() {
            return failed_with(Verdict::Die { cause: Cause::Exhausted, cooldown_until_ms }, problem);
        }
        failed_with(Verdict::Retry { visible_at_ms, cooldown_until_ms }, problem)
    }

    fn retry_or_die(&self, cause: Cause, problem: Problem) -> Decision {
        if self.is_last_attempt() {
            return die(cause, problem);
        }
        let visible_at_ms = self.now_ms + self.backoff_ms();
        failed_with(Verdict::Retry { visible_at_ms, cooldown_until_ms: None }, problem)
    }

    /// An attempt whose worker is gone has waited already: its job is visible again at once, until the cap.
    fn again_at_once_or_die(&self, problem: Problem) -> Decision {
        if self.is_last_attempt() {
            return die(Cause::Exhausted, problem);
        }
        failed_with(Verdict::Retry { visible_at_ms: self.now_ms, cooldown_until_ms: None }, problem)
    }

    /// A suspect under which the daemon stopped again is to blame, and its neighbours are not: they get their attempts
    /// back. Without a suspect nobody knows, and all attempts count.
    fn daemon_stopped(&self, beside_suspect: bool) -> Decision {
        let problem = Problem::new("daemon.stopped", "the daemon stopped under the attempt");
        if self.facts.is_suspect() {
            return die(Cause::Crashed, problem);
        }
        if beside_suspect {
            return failed_with(Verdict::Release { visible_at_ms: self.now_ms }, problem);
        }
        self.again_at_once_or_die(problem)
    }

    /// A release gives the attempt back, a bounded number of times in a row; then it counts as a failure.
    fn release(&self, visible_at_ms: TimestampMs, problem: Option<Problem>) -> Decision {
        if self.facts.releases_running < self.bounds.release_max {
            let verdict = Verdict::Release { visible_at_ms };
            return Decision { verdict, problem, unknown_class: false, mismatch: false };
        }
        let released_too_often = || Problem::new("handler.unavailable", "given back too many times in a row");
        self.retry_or_die(Cause::Exhausted, problem.unwrap_or_else(released_too_often))
    }

    fn is_last_attempt(&self) -> bool {
        self.facts.attempts_used >= self.policy.attempts_max
    }

    fn backoff_ms(&self) -> DurationMs {
        self.policy.backoff.delay_ms(self.facts.attempts_used, self.jitter)
    }
}

fn plain(verdict: Verdict) -> Decision {
    Decision { verdict, problem: None, unknown_class: false, mismatch: false }
}

fn failed_with(verdict: Verdict, problem: Problem) -> Decision {
    Decision { verdict, problem: Some(problem), unknown_class: false, mismatch: false }
}

fn die(cause: Cause, problem: Problem) -> Decision {
    failed_with(Verdict::Die { cause, cooldown_until_ms: None }, problem)
}

impl Decision {
    /// The class to record, if the attempt failed.
    #[must_use]
    pub fn class(&self) -> Option<&ErrorClass> {
        self.problem.as_ref().map(|problem| &problem.class)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HandlerName, Kind, StepName};

    const NOW_MS: TimestampMs = 1_000_000;
    const BOUNDS: ReleaseBounds = ReleaseBounds { release_max: 2, release_delay_ms: 500 };

    fn policy() -> KindPolicy {
        let kind = Kind::new("job").unwrap();
        KindPolicy {
            attempts_max: 3,
            cooldown: true,
            retry_after_max_ms: 60_000,
            ..KindPolicy::of_unconfigured(&kind, HandlerName::of_kind(&kind))
        }
    }

    fn facts() -> JobFacts {
        JobFacts {
            job: JobId(7),
            attempt: AttemptNumber(9),
            attempts_used: 1,
            releases_running: 0,
            cancel_requested: false,
            unclean_stops: 0,
        }
    }

    fn decide_so(facts: &JobFacts, outcome: &Outcome) -> Decision {
        let vocabulary = Vocabulary::new([
            (ErrorClass::new("down"), Treatment::Retry),
            (ErrorClass::new("slow"), Treatment::RateLimited),
            (ErrorClass::new("gone"), Treatment::Rejected),
            (ErrorClass::new("bad"), Treatment::Poison),
        ]);
        decide(facts, outcome, &policy(), &vocabulary, BOUNDS, NOW_MS, Jitter::new(0.0))
    }

    fn failed(said: Said, class: &str) -> Outcome {
        Outcome::Failed { said, problem: Problem::new(class, "") }
    }

    fn dead(cause: Cause) -> Verdict {
        Verdict::Die { cause, cooldown_until_ms: None }
    }

    fn last() -> JobFacts {
        JobFacts { attempts_used: 3, ..facts() }
    }

    #[test]
    fn d1_the_vocabulary_wins_over_the_guest() {
        let cases = [
            (Said::Poison, "down", Verdict::Retry { visible_at_ms: NOW_MS + 1_000, cooldown_until_ms: None }, true),
            (Said::Retry, "gone", dead(Cause::Rejected), true),
            (Said::Retry, "bad", dead(Cause::Poison), true),
            (Said::Rejected, "gone", dead(Cause::Rejected), false),
            (Said::Poison, "handler.trap", dead(Cause::Poison), false),
        ];
        for (said, class, verdict, mismatch) in cases {
            let decision = decide_so(&facts(), &failed(said, class));
            assert_eq!(decision.class(), Some(&ErrorClass::new(class)));
            assert_eq!((decision.verdict, decision.mismatch), (verdict, mismatch), "{said:?} {class}");
            assert!(!decision.unknown_class, "{class}");
        }
        assert_eq!(decide_so(&facts(), &Outcome::Done { output: None }).class(), None);
    }

    #[test]
    fn d1_a_class_outside_the_vocabulary_is_recorded_as_unclassified_and_counted() {
        let decision = decide_so(&facts(), &failed(Said::Rejected, "surprise"));
        assert_eq!(decision.class(), Some(&ErrorClass::new("unclassified")));
        assert_eq!((decision.verdict, decision.unknown_class), (dead(Cause::Rejected), true));
    }

    #[test]
    fn d1_what_outlasts_the_cap_is_exhausted_and_never_poison() {
        for outcome in [
            failed(Said::Retry, "down"),
            failed(Said::Poison, "down"),
            failed(Said::RateLimited { retry_after_ms: None }, "slow"),
            failed(Said::Poison, "slow"),
            Outcome::LeaseExpired,
            Outcome::DownstreamTimeout { problem: Problem::new("downstream.timeout", "") },
        ] {
            let verdict = decide_so(&last(), &outcome).verdict;
            assert!(matches!(verdict, Verdict::Die { cause: Cause::Exhausted, .. }), "{outcome:?}: {verdict:?}");
        }
        let trap = Outcome::Broke { problem: Problem::new("handler.trap", "") };
        assert_eq!(decide_so(&last(), &trap).verdict, dead(Cause::Poison));
    }

    #[test]
    fn q9_a_rate_limit_waits_for_the_later_of_both_delays_within_the_bound() {
        for (asked_ms, waited_ms) in [(None, 1_000), (Some(10), 1_000), (Some(30_000), 30_000), (Some(900_000), 60_000)]
        {
            let outcome = failed(Said::RateLimited { retry_after_ms: asked_ms }, "slow");
            let visible_at_ms = NOW_MS + waited_ms;
            let expected = Verdict::Retry { visible_at_ms, cooldown_until_ms: Some(visible_at_ms) };
            assert_eq!(decide_so(&facts(), &outcome).verdict, expected, "{asked_ms:?}");
        }
    }

    #[test]
    fn q12_a_release_is_bounded_in_a_row() {
        let outcome = Outcome::Stopped(StopReason::Shutdown);
        assert_eq!(decide_so(&facts(), &outcome).verdict, Verdict::Release { visible_at_ms: NOW_MS });
        let often = JobFacts { releases_running: 2, ..facts() };
        assert!(matches!(decide_so(&often, &outcome).verdict, Verdict::Retry { .. }));
        let often_and_last = JobFacts { releases_running: 2, ..last() };
        assert_eq!(decide_so(&often_and_last, &outcome).verdict, dead(Cause::Exhausted));
    }

    #[test]
    fn q12_what_is_given_back_while_the_daemon_runs_waits_before_it_is_tried_again() {
        let step = StepName::new("charge").unwrap();
        let unavailable = Outcome::HandlerUnavailable { message: "no component".to_owned() };
        for (outcome, class) in
            [(Outcome::StepInProgress { step }, None), (unavailable, Some(ErrorClass::new("handler.unavailable")))]
        {
            let decision = decide_so(&facts(), &outcome);
            assert_eq!(decision.class(), class.as_ref());
            assert_eq!(decision.verdict, Verdict::Release { visible_at_ms: 1_000_500 }, "{outcome:?}");
        }
    }

    #[test]
    fn q13_only_a_suspect_dies_of_crashes_and_its_neighbours_get_their_attempts_back() {
        let alone = Outcome::DaemonStopped { beside_suspect: false };
        let beside = Outcome::DaemonStopped { beside_suspect: true };
        let suspect = JobFacts { unclean_stops: SUSPECT_AFTER, ..facts() };
        let again = Verdict::Retry { visible_at_ms: NOW_MS, cooldown_until_ms: None };
        assert_eq!(decide_so(&facts(), &alone).verdict, again);
        assert_eq!(decide_so(&suspect, &beside).verdict, dead(Cause::Crashed));
        assert_eq!(decide_so(&last(), &beside).verdict, Verdict::Release { visible_at_ms: NOW_MS });
        assert_eq!(decide_so(&last(), &alone).verdict, dead(Cause::Exhausted));
    }

    #[test]
    fn q12_a_stop_at_once_blames_nobody_and_the_attempt_counts() {
        let stopped = Outcome::DaemonStoppedAtOnce;
        let suspect = JobFacts { unclean_stops: SUSPECT_AFTER, ..facts() };
        let again = Verdict::Retry { visible_at_ms: NOW_MS, cooldown_until_ms: None };
        assert_eq!(decide_so(&suspect, &stopped).verdict, again);
        assert_eq!(decide_so(&last(), &stopped).verdict, dead(Cause::Exhausted));
        assert_eq!(suspect.unclean_stops_after(&stopped), SUSPECT_AFTER);
        assert_eq!(facts().unclean_stops_after(&stopped), 0);
    }

    #[test]
    fn q13_stops_count_in_a_row() {
        let once = JobFacts { unclean_stops: 1, ..facts() };
        assert_eq!(once.unclean_stops_after(&Outcome::DaemonStopped { beside_suspect: false }), 2);
        assert_eq!(once.unclean_stops_after(&Outcome::DaemonStopped { beside_suspect: true }), 1);
        assert_eq!(once.unclean_stops_after(&failed(Said::Retry, "down")), 0);
    }

    #[test]
    fn q16_a_cancelled_job_is_never_tried_again_but_stays_done_when_it_was() {
        let cancelled = JobFacts { cancel_requested: true, ..facts() };
        for outcome in [failed(Said::Retry, "down"), Outcome::LeaseExpired, Outcome::Stopped(StopReason::Shutdown)] {
            assert_eq!(decide_so(&cancelled, &outcome).verdict, Verdict::Cancel, "{outcome:?}");
        }
        let done = decide_so(&cancelled, &Outcome::Done { output: None });
        assert_eq!(done.verdict, Verdict::Complete { output: None });
    }
}
