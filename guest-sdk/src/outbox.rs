//! Jobs that a job enqueues. They become real with its success, and only then.

use serde::Serialize;

use crate::{Failure, host};

/// A job to be enqueued.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewJob {
    /// The job's type.
    pub kind: String,
    /// Its stable idempotency key; the host makes one when there is none.
    pub key: Option<String>,
    /// What the job shares a rate limit with.
    pub lane: Option<String>,
    /// The payload's media type.
    pub content_type: String,
    /// What the job is about.
    pub payload: Vec<u8>,
    /// How long after this job's success it may run, in milliseconds.
    pub delay_ms: u64,
    /// What is attached to it.
    pub metadata: Vec<(String, String)>,
}

impl NewJob {
    /// A job of that kind with a JSON payload, to be run at once.
    pub fn json(kind: impl Into<String>, payload: &impl Serialize) -> Result<Self, Failure> {
        let payload = serde_json::to_vec(payload)
            .map_err(|error| Failure::poison("outbox.payload_invalid", error.to_string()))?;
        Ok(Self {
            kind: kind.into(),
            key: None,
            lane: None,
            content_type: "application/json".into(),
            payload,
            delay_ms: 0,
            metadata: Vec::new(),
        })
    }
}

/// Why the host did not take a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EnqueueError {
    /// Not a kind of this daemon.
    UnknownKind,
    /// Over a limit of the configuration, which is named.
    TooLarge(String),
    /// Not acceptable, and why.
    Invalid(String),
}

impl From<EnqueueError> for Failure {
    fn from(error: EnqueueError) -> Self {
        match error {
            EnqueueError::UnknownKind => Self::poison("outbox.unknown_kind", "a job of an unknown kind was enqueued"),
            EnqueueError::TooLarge(limit) => {
                Self::poison("outbox.too_large", format!("an enqueued job is over a limit: {limit}"))
            }
            EnqueueError::Invalid(reason) => {
                Self::poison("outbox.invalid", format!("an enqueued job was refused: {reason}"))
            }
        }
    }
}

/// Keeps a job with the open step, or with the attempt when no step is open.
pub fn enqueue(job: NewJob) -> Result<(), EnqueueError> {
    host::enqueue(job)
}
