//! A job as it is sent over the wire, on its way to the intake's checks and back. It never changes a byte of a payload
//! and puts nothing into the queue.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::StatusCode;
use leasehold_api::{EnqueueRequest, Problem};
use leasehold_domain::{Kind, TimestampMs};
use leasehold_store::{EnqueueAnswer, EnqueueJob};
use serde_json::value::RawValue;

use super::refusal::{conflict, invalid};
use crate::{
    clock::wall_ms,
    config::Config,
    intake::{self, IntakeError, SentJob},
};

/// The job that the request makes, or what is wrong with it.
pub(super) fn check(request: EnqueueRequest, config: &Config, now_ms: TimestampMs) -> Result<EnqueueJob, Problem> {
    let (delay_ms, run_at_wall_ms) = when(&request, wall_ms())?;
    let sent = SentJob {
        delay_ms,
        run_at_wall_ms,
        payload: payload(request.payload.as_deref(), request.payload_base64.as_deref())?,
        kind: request.kind,
        key: request.key,
        lane: request.lane,
        content_type: request.content_type,
        metadata: request.metadata.into_iter().collect(),
        priority: request.priority.unwrap_or(0),
    };
    intake::check(config, sent, now_ms).map_err(|error| problem(&error))
}

/// The payload's bytes, as sent.
pub(super) fn payload(json: Option<&RawValue>, base64: Option<&str>) -> Result<Vec<u8>, Problem> {
    match (json, base64) {
        (Some(json), None) => Ok(json.get().as_bytes().to_vec()),
        (None, Some(base64)) => BASE64_STANDARD
            .decode(base64)
            .map_err(|_| invalid("malformed_payload", "payload_base64 is no standard base64 with padding")),
        (Some(_), Some(_)) => Err(invalid("invalid_job", "give payload or payload_base64, not both")),
        (None, None) => Err(invalid("invalid_job", "give the payload, as payload or payload_base64")),
    }
}

/// The delay, or the wall time that the job waits for. A time that the wall shows already is no reason to wait.
fn when(request: &EnqueueRequest, wall_ms: TimestampMs) -> Result<(i64, Option<TimestampMs>), Problem> {
    match (request.delay_ms, request.run_at) {
        (None, None) => Ok((0, None)),
        (Some(delay_ms), None) => Ok((i64::try_from(delay_ms).unwrap_or(i64::MAX), None)),
        (None, Some(run_at)) if run_at.as_ms() <= wall_ms => Ok((0, None)),
        (None, Some(run_at)) if run_at.as_ms() - wall_ms > intake::DELAY_MAX_MS => {
            Err(invalid("invalid_job", format!("run_at {run_at} is more than ten years ahead")))
        }
        (None, Some(run_at)) => Ok((0, Some(run_at.as_ms()))),
        (Some(_), Some(_)) => Err(invalid("invalid_job", "give delay_ms or run_at, not both")),
    }
}

/// A job that the intake refuses.
pub(super) fn problem(error: &IntakeError) -> Problem {
    match error {
        IntakeError::TooLarge { max, .. } => {
            Problem::new(StatusCode::PAYLOAD_TOO_LARGE, error.code(), error.to_string()).with("limit_bytes", *max)
        }
        _ => invalid(error.code(), error.to_string()),
    }
}

/// There is no such kind, and what there is.
pub(super) fn unknown_kind(kind: &str, config: &Config) -> Problem {
    let known: Vec<_> = config.kinds.keys().map(Kind::as_str).collect();
    let detail = format!("kind {kind:?} is not configured; known kinds: {}", known.join(", "));
    Problem::new(StatusCode::NOT_FOUND, "unknown_kind", detail)
}

/// What the queue's answer means for the one who sent the job: its id and whether it was there already, or why not.
pub(super) fn outcome(answer: &EnqueueAnswer, config: &Config) -> Result<leasehold_api::EnqueueAnswer, Problem> {
    let (id, duplicate, state) = match *answer {
        EnqueueAnswer::Enqueued { id, state } => (id, false, state),
        EnqueueAnswer::Duplicate { id, state } => (id, true, state),
        EnqueueAnswer::KeyConflict { id } => {
            let detail =
                format!("job {id} has this kind and key with another payload; use another key for another job");
            return Err(conflict("key_conflict", detail).with("id", id.0));
        }
        EnqueueAnswer::QueueFull => return Err(queue_full(config)),
    };
    Ok(leasehold_api::EnqueueAnswer { id: id.0, duplicate, state })
}

fn queue_full(config: &Config) -> Problem {
    let limit = config.queue.queue_depth_max;
    let detail = format!("the queue holds as many jobs as it may, {limit}; try again when some have ended");
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "queue_full", detail).with("limit", limit)
}
