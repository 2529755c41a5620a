//! Turns the end of a guest's run into an outcome. What the host refused or remembered counts for more than the trap that
//! the guest ended with.

use leasehold_domain::{ErrorClass, Outcome, Problem, Said};
use wasmtime::{PoolConcurrencyLimitError, Trap, WasmBacktrace};
use wasmtime_wasi::I32Exit;

use crate::{
    attempt::{Attempt, HostGone},
    bindings::leasehold::job::types::{Failure, Problem as WitProblem, Success},
    job_log::cut,
    limits::Refused,
    stop::Ended,
};

/// How much of a trap's report is kept.
const REPORT_MAX_BYTES: usize = 8 << 10;
/// How much of a guest's own words is kept.
const MESSAGE_MAX_BYTES: usize = 8 << 10;
/// The engine's words for a call, or a result, that carries more than a store allows. It has no public type.
const TOO_MUCH_CARRIED: &str = "fuel allocated for hostcalls has been exhausted";

/// What a panic over memory says.
const ALLOCATION: &str = "memory allocation";

/// How a run came to its end.
pub(crate) enum End {
    /// The guest returned.
    Returned(Result<Success, Failure>),
    /// The guest trapped, or was interrupted in its own code.
    Trapped(wasmtime::Error),
    /// The deadline came while the guest waited for the host, or gave way to others.
    Deadline {
        /// Whether the guest was in its own code.
        in_guest: bool,
    },
    /// The switch was set while the guest waited for the host.
    Stopped(Ended),
}

/// What the outcome is read from, beside the attempt's books.
pub(crate) struct Facts {
    pub(crate) end: End,
    pub(crate) refused: Option<Refused>,
    pub(crate) requests_in_flight: usize,
}

/// The outcome of a run.
pub(crate) fn of(facts: Facts, attempt: &Attempt) -> Outcome {
    let outcome = match facts.end {
        End::Stopped(ended) => of_ended(ended),
        End::Deadline { in_guest } => at_deadline(in_guest, facts.requests_in_flight),
        End::Trapped(error) => of_trap(&error, facts.refused, attempt),
        End::Returned(result) => of_result(result, attempt),
    };
    let in_progress = attempt.ledger().in_progress.take();
    match (in_progress, outcome) {
        // The attempt is given back, whatever the guest made of the refusal; unless the host ended it first.
        (
            Some(step),
            Outcome::Done { .. } | Outcome::Suppressed { .. } | Outcome::Failed { .. } | Outcome::Broke { .. },
        ) => Outcome::StepInProgress { step },
        (_, outcome) => outcome,
    }
}

/// A report of the trap for whoever has to mend the guest.
pub(crate) fn trap_report(end: &End, attempt: &Attempt) -> Option<String> {
    let End::Trapped(error) = end else { return None };
    if error.downcast_ref::<Ended>().is_some() {
        return None;
    }
    let mut report = attempt.log.panic().unwrap_or_default();
    if report.is_empty() {
        report = error.root_cause().to_string();
    }
    if let Some(backtrace) = error.downcast_ref::<WasmBacktrace>() {
        report = format!("{report}\n{backtrace}");
    }
    Some(cut(&report, REPORT_MAX_BYTES).to_owned())
}

fn of_ended(ended: Ended) -> Outcome {
    match ended {
        Ended::Stopped(reason) => Outcome::Stopped(reason),
        Ended::ByGuest(outcome) => *outcome,
    }
}

fn at_deadline(in_guest: bool, requests_in_flight: usize) -> Outcome {
    if requests_in_flight > 0 && !in_guest {
        let message = "the deadline came while the guest waited for an answer to an outbound request";
        return Outcome::DownstreamTimeout { problem: Problem::new("downstream.timeout", message) };
    }
    let doing = if in_guest { "ran" } else { "waited in the host" };
    broke("limit.time", format!("the deadline came while the guest {doing}"))
}

fn of_trap(error: &wasmtime::Error, refused: Option<Refused>, attempt: &Attempt) -> Outcome {
    if let Some(ended) = error.downcast_ref::<Ended>() {
        return of_ended(ended.clone());
    }
    if let Some(unavailable) = host_failure(error) {
        return Outcome::HandlerUnavailable { message: unavailable };
    }
    if let Some(exit) = error.downcast_ref::<I32Exit>() {
        return broke("handler.exit", format!("the guest exited with code {}", exit.0));
    }
    match error.downcast_ref::<Trap>() {
        Some(Trap::Interrupt) => {
            let ended = attempt.stop.ended().cloned();
            return ended.map_or_else(|| at_deadline(true, 0), of_ended);
        }
        Some(Trap::StackOverflow) => return broke("limit.stack", "the guest's stack overflowed".into()),
        _ => {}
    }
    // A guest that coped with a refusal and panics over something else has panicked; one that could not cope ends in its
    // allocator, which does not panic, or says what it was about.
    match (refused, attempt.log.panic()) {
        (_, Some(panic)) if !panic.contains(ALLOCATION) => return broke("handler.panic", panic),
        (Some(refused), _) => return broke("limit.memory", refused.to_string()),
        (None, Some(panic)) => return broke("handler.panic", panic),
        (None, None) => {}
    }
    let cause = error.root_cause().to_string();
    if cause.contains(TOO_MUCH_CARRIED) {
        return too_much_carried(error, attempt);
    }
    broke("handler.trap", cause)
}

/// A call into the host is made from guest code, so its error carries the guest's frames; the reading of the result has
/// none.
fn too_much_carried(error: &wasmtime::Error, attempt: &Attempt) -> Outcome {
    let in_call = error.downcast_ref::<WasmBacktrace>().is_some_and(|backtrace| !backtrace.frames().is_empty());
    if in_call {
        return broke("limit.host_calls", "the guest handed the host too much in one call".into());
    }
    output_too_large(attempt.limits.output_max_bytes)
}

fn host_failure(error: &wasmtime::Error) -> Option<String> {
    if error.downcast_ref::<HostGone>().is_some() {
        return Some(HostGone.to_string());
    }
    error.downcast_ref::<PoolConcurrencyLimitError>().map(ToString::to_string)
}

fn of_result(result: Result<Success, Failure>, attempt: &Attempt) -> Outcome {
    // What the guest set in motion without waiting for it counts all the same.
    if let Some(Ended::ByGuest(outcome)) = attempt.stop.ended() {
        return (**outcome).clone();
    }
    let most = attempt.limits.output_max_bytes;
    match result {
        Ok(Success::Done(Some(output))) if output.len() > most => output_too_large(most),
        Ok(Success::Done(output)) => Outcome::Done { output },
        Ok(Success::Suppressed(reason)) => Outcome::Suppressed { reason: shortened(reason) },
        Err(Failure::Retry(problem)) => failed(Said::Retry, problem, attempt),
        Err(Failure::RateLimited((problem, delay_ms))) => {
            let retry_after_ms = delay_ms.map(|delay_ms| i64::try_from(delay_ms).unwrap_or(i64::MAX));
            failed(Said::RateLimited { retry_after_ms }, problem, attempt)
        }
        Err(Failure::Rejected(problem)) => failed(Said::Rejected, problem, attempt),
        Err(Failure::Poison(problem)) => failed(Said::Poison, problem, attempt),
    }
}

/// A request that was refused for want of a step is a defect of the handler, and no failure of downstream.
fn failed(said: Said, problem: WitProblem, attempt: &Attempt) -> Outcome {
    let problem = Problem { class: ErrorClass::new(&problem.class), message: shortened(problem.message) };
    let Some(refusal) = attempt.ledger().refused_outside_step.take() else { return Outcome::Failed { said, problem } };
    let problem = Problem::new("effect.outside_step", format!("{refusal} (the guest said: {})", problem.message));
    match said {
        Said::Retry | Said::RateLimited { .. } => Outcome::Broke { problem },
        Said::Rejected | Said::Poison => Outcome::Failed { said, problem },
    }
}

fn output_too_large(most: usize) -> Outcome {
    broke("limit.output", format!("the guest's result is larger than the {most} bytes that are allowed"))
}

fn broke(class: &str, message: String) -> Outcome {
    Outcome::Broke { problem: Problem::new(class, shortened(message)) }
}

fn shortened(text: String) -> String {
    if text.len() <= MESSAGE_MAX_BYTES { text } else { cut(&text, MESSAGE_MAX_BYTES).to_owned() }
}

/// The outcome of an attempt whose run was lost in the sandbox itself.
pub(crate) fn lost() -> Outcome {
    Outcome::HandlerUnavailable { message: "the sandbox lost the attempt; the daemon's log says more".into() }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use leasehold_domain::{StepName, StopReason};

    use super::*;

    fn attempt() -> Attempt {
        Attempt::for_tests(Instant::now())
    }

    fn outcome(end: End, attempt: &Attempt) -> Outcome {
        of(Facts { end, refused: None, requests_in_flight: 0 }, attempt)
    }

    fn failure(kind: fn(WitProblem) -> Failure) -> End {
        End::Returned(Err(kind(WitProblem { class: "guest.said".into(), message: "m".into() })))
    }

    fn class_of(outcome: &Outcome) -> &str {
        match outcome {
            Outcome::Broke { problem } | Outcome::Failed { problem, .. } => problem.class.as_str(),
            _ => "",
        }
    }

    #[test]
    fn h6_a_refusal_outside_a_step_gives_the_failure_its_class() {
        for (kind, is_final) in [(Failure::Retry as fn(_) -> _, false), (Failure::Poison, true)] {
            let attempt = attempt();
            attempt.ledger().refused_outside_step = Some("POST was refused".into());
            let outcome = outcome(failure(kind), &attempt);
            assert_eq!(class_of(&outcome), "effect.outside_step");
            assert_eq!(matches!(outcome, Outcome::Failed { said: Said::Poison, .. }), is_final);
        }
        assert_eq!(class_of(&outcome(failure(Failure::Retry), &attempt())), "guest.said");
    }

    #[test]
    fn h5_a_limit_that_the_guest_did_not_wait_for_counts_all_the_same() {
        let attempt = attempt();
        assert!(attempt.count_call().is_err());
        assert_eq!(class_of(&outcome(End::Returned(Ok(Success::Done(None))), &attempt)), "limit.host_calls");
    }

    #[test]
    fn q16_a_guest_that_ended_before_it_was_stopped_has_ended() {
        let attempt = attempt();
        attempt.stop.end(Ended::Stopped(StopReason::Cancelled));
        let ended = outcome(End::Returned(Ok(Success::Done(None))), &attempt);
        assert_eq!(ended, Outcome::Done { output: None });
    }

    #[test]
    fn i2_a_step_in_progress_outweighs_what_the_guest_made_of_it_but_not_the_hosts_stop() {
        let step = StepName::new("send").unwrap();
        let in_progress = || {
            let attempt = attempt();
            attempt.ledger().in_progress = Some(step.clone());
            attempt
        };
        let returned = outcome(failure(Failure::Poison), &in_progress());
        assert_eq!(returned, Outcome::StepInProgress { step: step.clone() });
        let stopped = outcome(End::Stopped(Ended::Stopped(StopReason::Shutdown)), &in_progress());
        assert_eq!(stopped, Outcome::Stopped(StopReason::Shutdown));
    }

    #[test]
    fn h5_a_panic_about_memory_that_was_refused_is_the_limits() {
        let refused = Some(Refused { wanted: 2, allowed: 1, unit: "bytes of memory" });
        for (panic, class) in [("memory allocation of 2 bytes failed", "limit.memory"), ("other", "handler.panic")] {
            let attempt = attempt();
            attempt.log.note_panic(panic);
            let end = End::Trapped(Trap::UnreachableCodeReached.into());
            assert_eq!(class_of(&of(Facts { end, refused, requests_in_flight: 0 }, &attempt)), class);
        }
    }
}
