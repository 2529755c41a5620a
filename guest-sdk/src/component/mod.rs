//! The component's side: how the host's call reaches the handler's function, and how its answer goes back. It never looks
//! into a payload.

#[cfg(feature = "arena")]
mod allocator;
pub(crate) mod imports;
mod outgoing_http;

use crate::{Failure, Job, Payload, Problem, Replay, Success, bindings, host, log::Level};

/// Runs a handler's function for one call of the host. The `handler` attribute calls it.
pub fn run<T: Payload>(
    handle: fn(Job<T>) -> Result<Success, Failure>,
    job: bindings::Job,
) -> Result<bindings::Success, bindings::Failure> {
    std::panic::set_hook(Box::new(|panic| host::log(Level::Critical, "panic", &panic.to_string())));
    from_wit(job).parsed().and_then(handle).map(success_to_wit).map_err(failure_to_wit)
}

fn from_wit(job: bindings::Job) -> Job<Vec<u8>> {
    Job {
        id: job.id,
        kind: job.kind,
        key: job.key,
        lane: job.lane,
        attempt: job.attempt,
        attempts_used: job.attempts_used,
        attempts_max: job.attempts_max,
        enqueued_at_ms: job.enqueued_at,
        deadline_ms: job.deadline,
        content_type: job.content_type,
        payload: job.payload,
        metadata: job.metadata,
        replay: job.replay.map(|replay| Replay { number: replay.number, actor: replay.actor, at_ms: replay.at }),
    }
}

fn success_to_wit(success: Success) -> bindings::Success {
    match success {
        Success::Done(result) => bindings::Success::Done(result),
        Success::Suppressed(reason) => bindings::Success::Suppressed(reason),
    }
}

fn failure_to_wit(failure: Failure) -> bindings::Failure {
    let problem =
        |problem: Problem| bindings::leasehold::job::types::Problem { class: problem.class, message: problem.message };
    match failure {
        Failure::Retry(retry) => bindings::Failure::Retry(problem(retry)),
        Failure::RateLimited(limited, after_ms) => bindings::Failure::RateLimited((problem(limited), after_ms)),
        Failure::Rejected(rejected) => bindings::Failure::Rejected(problem(rejected)),
        Failure::Poison(poison) => bindings::Failure::Poison(problem(poison)),
    }
}
