//! Runs one guest from a fresh store to its report. The deadline covers instantiation, the call and the reading of its
//! result; what the guest left running is dropped before its steps are settled.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

use wasmtime::{Engine, Store};

use crate::{
    AttemptHost, AttemptRequest, JobView, Prepared, RunReport,
    attempt::Attempt,
    bindings::leasehold::job::types::{Job, Replay},
    outcome::{self, End, Facts},
    state::{self, GuestState},
    stop::StopSwitch,
};

/// One attempt, from its first instruction to its last step.
pub(crate) async fn run(
    engine: Engine,
    prepared: Prepared,
    request: AttemptRequest,
    host: Arc<dyn AttemptHost>,
    stop: Arc<StopSwitch>,
) -> RunReport {
    let begun = Instant::now();
    let AttemptRequest { job, deadline, in_doubt, answers } = request;
    let grants = prepared.grants().clone();
    let attempt = Arc::new(Attempt::new(host, grants, prepared.limits(), in_doubt, deadline, answers, stop));
    let mut store = state::store(&engine, &attempt, prepared.settings());
    let end = drive(&mut store, &prepared, &job_of(job), &attempt).await;
    let requests_in_flight = attempt.ledger().requests_in_flight;
    let facts = Facts { end, refused: store.data().limiter.refused(), requests_in_flight };
    let memory_peak_bytes = store.data().limiter.memory_peak_bytes();
    // Dropping the store also drops requests under way and finishes the last line of stderr.
    drop(store);
    attempt.close().await;
    let trap = outcome::trap_report(&facts.end, &attempt);
    let outcome = outcome::of(facts, &attempt);
    let mut ledger = attempt.ledger();
    RunReport {
        outcome,
        effects: ledger.take_effects(),
        log: attempt.log.take(),
        trap,
        run_ms: u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
        memory_peak_bytes,
        steps: ledger.counts,
    }
}

async fn drive(store: &mut Store<GuestState>, prepared: &Prepared, job: &Job, attempt: &Attempt) -> End {
    let call = async {
        let handler = prepared.pre().instantiate_async(&mut *store).await?;
        handler.call_handle(&mut *store, job).await
    };
    tokio::select! {
        biased;
        result = call => match result {
            Ok(result) => End::Returned(result),
            Err(error) => End::Trapped(error),
        },
        ended = attempt.stop.wait() => End::Stopped(ended),
        () = tokio::time::sleep_until(attempt.deadline.into()) => {
            End::Deadline { in_guest: attempt.yielding.load(Ordering::Acquire) }
        }
    }
}

fn job_of(job: JobView) -> Job {
    // Times before 1970 and negative ids don't exist; they would show as zero.
    let unsigned = |number: i64| u64::try_from(number).unwrap_or_default();
    Job {
        id: unsigned(job.id.0),
        kind: job.kind.into(),
        key: job.key.into(),
        lane: job.lane.map(Into::into),
        attempt: job.attempt.0,
        attempts_used: job.attempts_used,
        attempts_max: job.attempts_max,
        enqueued_at: unsigned(job.enqueued_at_ms),
        deadline: unsigned(job.deadline_ms),
        content_type: job.content_type,
        payload: job.payload,
        metadata: job.metadata,
        replay: job.replay.map(|replay| Replay {
            number: replay.number,
            actor: replay.actor,
            at: unsigned(replay.at_ms),
        }),
    }
}
