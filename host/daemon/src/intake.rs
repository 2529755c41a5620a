//! What a job has to hold to before it goes in: a known kind, a payload of its format, and the bounds of the
//! configuration. Nothing is truncated or changed; what is over a bound is refused with the bound.

use leasehold_domain::{
    JobKey, Kind, Lane, NewJob, TimestampMs,
    policy::PayloadFormat,
    redaction::{detect, is_well_formed},
};
use leasehold_sandbox::EnqueueRefusal;
use leasehold_store::EnqueueJob;

use crate::config::Config;

/// The media type of a payload that names none, by its kind's format.
const JSON: &str = "application/json";
const BYTES: &str = "application/octet-stream";
/// The longest media type.
const CONTENT_TYPE_MAX_BYTES: usize = 128;
/// The longest delay: ten years, far below what a timestamp holds.
pub(crate) const DELAY_MAX_MS: i64 = 3_650 * 86_400_000;

/// A job as somebody sent it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SentJob {
    /// The kind.
    pub kind: String,
    /// The client's key.
    pub key: Option<String>,
    /// The lane.
    pub lane: Option<String>,
    /// The payload's media type.
    pub content_type: Option<String>,
    /// The payload as sent.
    pub payload: Vec<u8>,
    /// Names and values that travel with it.
    pub metadata: Vec<(String, String)>,
    /// How long until it becomes visible.
    pub delay_ms: i64,
    /// The wall time that it waits for, in place of a delay.
    pub run_at_wall_ms: Option<TimestampMs>,
    /// Its priority.
    pub priority: i32,
}

/// Why a job is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IntakeError {
    /// The kind is not configured.
    #[error("kind {kind:?} is not configured; known kinds: {known}")]
    UnknownKind {
        /// What was sent.
        kind: String,
        /// What there is.
        known: String,
    },
    /// Something is longer than the configuration allows.
    #[error("the {what} is {size} bytes long; at most {max} are allowed ({setting} under [queue])")]
    TooLarge {
        /// What is too long.
        what: &'static str,
        /// How long it is.
        size: usize,
        /// How long it may be.
        max: usize,
        /// The key that sets the bound.
        setting: &'static str,
    },
    /// The payload is no JSON.
    #[error("the payload is no well-formed JSON: {0}")]
    MalformedPayload(String),
    /// Something else is not acceptable.
    #[error("{0}")]
    Invalid(String),
}

impl IntakeError {
    /// The stable code of the error.
    pub fn code(&self) -> &'static str {
        match self {
            Self::UnknownKind { .. } => "unknown_kind",
            Self::TooLarge { what: "payload", .. } => "payload_too_large",
            Self::TooLarge { what: "key", .. } => "key_too_long",
            Self::TooLarge { what: "lane", .. } => "lane_too_long",
            Self::TooLarge { .. } => "metadata_too_large",
            Self::MalformedPayload(_) => "malformed_payload",
            Self::Invalid(_) => "invalid_job",
        }
    }
}

/// Checks a job against the configuration.
pub fn check(config: &Config, job: SentJob, now_ms: TimestampMs) -> Result<EnqueueJob, IntakeError> {
    let policy = Kind::new(job.kind.clone()).ok().and_then(|kind| config.kinds.get(&kind)).ok_or_else(|| {
        let known: Vec<_> = config.kinds.keys().map(Kind::as_str).collect();
        IntakeError::UnknownKind { kind: job.kind.chars().take(64).collect(), known: known.join(", ") }
    })?;
    check_bounds(config, &job)?;
    if policy.payload == PayloadFormat::Json {
        is_well_formed(&job.payload).map_err(|error| IntakeError::MalformedPayload(error.to_string()))?;
    }
    let invalid = |error: leasehold_domain::NameError| IntakeError::Invalid(error.to_string());
    let default_type = if policy.payload == PayloadFormat::Json { JSON } else { BYTES };
    Ok(EnqueueJob {
        kind: policy.kind.clone(),
        key: job.key.map(JobKey::new).transpose().map_err(invalid)?,
        lane: job.lane.map(Lane::new).transpose().map_err(invalid)?,
        content_type: job.content_type.unwrap_or_else(|| default_type.to_owned()),
        payload: job.payload,
        metadata: job.metadata,
        visible_at_ms: now_ms + job.delay_ms,
        run_at_wall_ms: job.run_at_wall_ms,
        priority: job.priority,
    })
}

fn check_bounds(config: &Config, job: &SentJob) -> Result<(), IntakeError> {
    let queue = &config.queue;
    let metadata_bytes = job.metadata.iter().map(|(name, value)| name.len() + value.len()).sum();
    let bounds = [
        ("payload", job.payload.len(), queue.payload_max_bytes, "payload_max"),
        ("key", job.key.as_ref().map_or(0, String::len), queue.key_length_max_bytes, "key_length_max"),
        ("lane", job.lane.as_ref().map_or(0, String::len), queue.lane_length_max_bytes, "lane_length_max"),
        ("metadata", metadata_bytes, queue.metadata_max_bytes, "metadata_max"),
    ];
    for (what, size, max, setting) in bounds {
        if size > max {
            return Err(IntakeError::TooLarge { what, size, max, setting });
        }
    }
    let priority_max = queue.priority_max;
    if job.priority.unsigned_abs() > priority_max.unsigned_abs() {
        return Err(IntakeError::Invalid(format!(
            "priority {} is not between -{priority_max} and {priority_max} (priority_max under [queue])",
            job.priority
        )));
    }
    if !(0..=DELAY_MAX_MS).contains(&job.delay_ms) {
        return Err(IntakeError::Invalid(format!("the delay of {} ms is not between 0 and ten years", job.delay_ms)));
    }
    check_content_type(job.content_type.as_deref().unwrap_or(JSON), config.detects())
}

fn check_content_type(content_type: &str, detects: bool) -> Result<(), IntakeError> {
    let well_formed = (1..=CONTENT_TYPE_MAX_BYTES).contains(&content_type.len())
        && content_type.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ');
    if !well_formed {
        let allowed = format!("a content type is 1 to {CONTENT_TYPE_MAX_BYTES} visible ASCII characters");
        return Err(IntakeError::Invalid(allowed));
    }
    match detect(content_type).next().filter(|_| detects) {
        None => Ok(()),
        Some(found) => Err(IntakeError::Invalid(format!(
            "the content type holds what looks like personal data or a secret ({}); it is kept in the clear, so put \
             that into the payload or the metadata",
            found.class
        ))),
    }
}

/// Checks a job that a guest enqueues.
pub(crate) fn check_new_job(config: &Config, job: &NewJob) -> Result<(), EnqueueRefusal> {
    let sent = SentJob {
        kind: job.kind.as_str().to_owned(),
        key: job.key.as_ref().map(|key| key.as_str().to_owned()),
        lane: job.lane.as_ref().map(|lane| lane.as_str().to_owned()),
        content_type: Some(job.content_type.clone()),
        payload: job.payload.clone(),
        metadata: job.metadata.clone(),
        delay_ms: job.delay_ms,
        run_at_wall_ms: None,
        priority: job.priority,
    };
    check(config, sent, 0).map(drop).map_err(|error| match error {
        IntakeError::UnknownKind { .. } => EnqueueRefusal::UnknownKind,
        IntakeError::TooLarge { .. } => EnqueueRefusal::TooLarge(error.to_string()),
        IntakeError::MalformedPayload(_) | IntakeError::Invalid(_) => EnqueueRefusal::Invalid(error.to_string()),
    })
}
