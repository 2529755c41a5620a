//! Steps: named side effects that are applied once for a job, over all its attempts and replays. It never runs an effect
//! before the host has made the step's record durable, and never forgets a doubt that an earlier attempt left.

use serde::{Serialize, de::DeserializeOwned};
use sha2::{Digest, Sha256};

use crate::{
    Failure,
    host::{self, Begun, OpenStep},
};

/// Why the host did not begin a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BeginError {
    /// Another attempt's guest is running this step.
    InProgress,
    /// This attempt's lease is lost.
    LeaseLost,
    /// The name was begun by this attempt already, another step is open, or a step in doubt had another fingerprint.
    Conflict,
    /// The name is not of the form `[a-z0-9._-]{1,64}`.
    InvalidName,
    /// The record could not be written.
    Unavailable,
}

/// Why the host did not store a step's result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompleteError {
    /// A later attempt has taken the step over.
    Stale,
    /// The result is larger than the host allows.
    TooLarge,
    /// The result could not be written.
    Unavailable,
}

/// What an effect learns of the step that it runs under.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepKey {
    /// The same for every run of this step, and free of personal data: what to give downstream as its idempotency key.
    pub idempotency_key: String,
    /// Whether an earlier run of this effect may have been applied.
    pub in_doubt: bool,
}

/// Why an effect gave no result, and whether it may have happened all the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StepError {
    /// The effect was certainly not applied: the next run begins afresh.
    NotApplied(Failure),
    /// Nobody knows: the next run is told that the step is in doubt.
    Unknown(Failure),
}

impl StepError {
    /// The effect was certainly not applied by this run.
    pub fn not_applied(failure: Failure) -> Self {
        Self::NotApplied(failure)
    }

    /// The effect may or may not have been applied.
    pub fn unknown(failure: Failure) -> Self {
        Self::Unknown(failure)
    }
}

/// Runs `effect` under the step `name`, unless it was applied before; then its stored result is given.
///
/// `subject` is what the effect is about; its digest tells the host whether a later run means the same effect. The result
/// is stored as JSON. Every failure is the one the handler should end with, so `?` is all that has to follow.
pub fn once<S, R>(name: &str, subject: &S, effect: impl FnOnce(&StepKey) -> Result<R, StepError>) -> Result<R, Failure>
where
    S: Serialize + ?Sized,
    R: Serialize + DeserializeOwned,
{
    match host::begin(name, &fingerprint(name, subject)?).map_err(|error| begin_failure(name, error))? {
        Begun::Fresh(step) => run(name, step, false, effect),
        Begun::InDoubt(step) => run(name, step, true, effect),
        Begun::Applied(stored) => serde_json::from_slice(&stored).map_err(|_| {
            Failure::poison(
                "step.result_unreadable",
                format!("step `{name}`: its stored result is not of the expected form"),
            )
        }),
    }
}

/// Runs the effect under an open step and closes the step by how it went.
fn run<R: Serialize>(
    name: &str,
    step: OpenStep,
    in_doubt: bool,
    effect: impl FnOnce(&StepKey) -> Result<R, StepError>,
) -> Result<R, Failure> {
    let key = StepKey { idempotency_key: step.idempotency_key(), in_doubt };
    match effect(&key) {
        Ok(result) => {
            let stored = serde_json::to_vec(&result)
                .map_err(|error| Failure::poison("step.result_invalid", format!("step `{name}`: {error}")))?;
            step.complete(&stored).map_err(|error| complete_failure(name, error))?;
            Ok(result)
        }
        Err(StepError::NotApplied(failure)) => {
            // This run applied nothing, but what an earlier run did is still unknown: only a fresh step is taken back.
            if !in_doubt {
                // When it can't be taken back it stays begun, hence in doubt, which is the safe side; the failure of
                // the effect itself says more to whoever reads it.
                let _ = step.take_back();
            }
            Err(failure)
        }
        // Dropped open, the step is in doubt if an unsafe request has left under it.
        Err(StepError::Unknown(failure)) => Err(failure),
    }
}

/// A digest of what the effect is about, so that the host never learns the thing itself.
fn fingerprint<S: Serialize + ?Sized>(name: &str, subject: &S) -> Result<Vec<u8>, Failure> {
    let text = serde_json::to_vec(subject)
        .map_err(|error| Failure::poison("step.subject_invalid", format!("step `{name}`: {error}")))?;
    Ok(Sha256::digest(&text).to_vec())
}

fn begin_failure(name: &str, error: BeginError) -> Failure {
    match error {
        BeginError::InProgress => {
            Failure::retry("step.in_progress", format!("step `{name}`: another attempt is running it"))
        }
        BeginError::LeaseLost => Failure::retry("step.lease_lost", format!("step `{name}`: the lease is lost")),
        BeginError::Conflict => Failure::poison(
            "step.conflict",
            format!("step `{name}`: begun twice, begun beside an open step, or in doubt for another effect"),
        ),
        BeginError::InvalidName => {
            Failure::poison("step.invalid_name", format!("step `{name}`: a name is of the form [a-z0-9._-]{{1,64}}"))
        }
        BeginError::Unavailable => {
            Failure::retry("step.unavailable", format!("step `{name}`: its record could not be written"))
        }
    }
}

fn complete_failure(name: &str, error: CompleteError) -> Failure {
    match error {
        CompleteError::Stale => Failure::retry("step.stale", format!("step `{name}`: a later attempt took it over")),
        CompleteError::TooLarge => {
            Failure::poison("step.result_too_large", format!("step `{name}`: its result is larger than allowed"))
        }
        CompleteError::Unavailable => {
            Failure::retry("step.unavailable", format!("step `{name}`: its result could not be written"))
        }
    }
}
