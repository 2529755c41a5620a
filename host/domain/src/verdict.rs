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
        Outcome::DaemonStopped => {
            deciding.again_at_once_or_die(Problem::new("daemon.stopped", "the daemon stopped under the attempt"))
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
            return die(Cause::Exhausted, problem);
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
    failed_with(Verdict::Die { cause }, problem)
}

impl Decision {
    /// The class to record, if the attempt failed.
    #[must_use]
    pub fn class(&self) -> Option<&ErrorClass> {
        self.problem.as_ref().map(|problem| &problem.class)
    }
}
