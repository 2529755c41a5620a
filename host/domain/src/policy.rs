//! What the configuration says of a kind, validated. It never reads a file.

use crate::{DurationMs, HandlerName, Kind, backoff::Backoff};

/// What to do with a step that is in doubt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InDoubtPolicy {
    /// Begin the step again with the same downstream key: downstream deduplicates.
    BeginAgain,
    /// End the job as a dead letter for an operator to resolve.
    DeadLetter,
}

/// How the payload of a kind is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PayloadFormat {
    /// Well-formed JSON, stored byte for byte as sent.
    Json,
    /// Any bytes.
    Bytes,
}

/// The rules of one kind.
#[derive(Debug, Clone, PartialEq)]
pub struct KindPolicy {
    /// The kind.
    pub kind: Kind,
    /// The handler that serves it.
    pub handler: HandlerName,
    /// Who answers for it; shown to operators.
    pub owner: String,
    /// How the payload is checked.
    pub payload: PayloadFormat,
    /// How long a lease holds without a heartbeat.
    pub visibility_timeout_ms: DurationMs,
    /// How often a lease is extended.
    pub heartbeat_ms: DurationMs,
    /// How long one attempt may run; it may exceed the visibility timeout.
    pub deadline_ms: DurationMs,
    /// How many attempts count before the job dies.
    pub attempts_max: u32,
    /// The delay before a retry.
    pub backoff: Backoff,
    /// The longest delay that downstream can ask for.
    pub retry_after_max_ms: DurationMs,
    /// How many jobs of the kind run at once; no limit of its own when absent.
    pub concurrency: Option<u32>,
    /// How many jobs of one lane run at once; no limit when absent.
    pub lane_concurrency: Option<u32>,
    /// Whether a rate limit holds back the other jobs of the same lane.
    pub cooldown: bool,
    /// What to do with a step in doubt.
    pub in_doubt: InDoubtPolicy,
    /// Whether the sealed original is kept in the kind's dead letters.
    pub keep_original: bool,
}

impl KindPolicy {
    /// The rules of a kind that is no longer configured: its jobs never die by themselves; they wait until the kind is
    /// configured again.
    #[must_use]
    pub fn of_unconfigured(kind: &Kind, handler: HandlerName) -> Self {
        Self {
            kind: kind.clone(),
            handler,
            owner: String::new(),
            payload: PayloadFormat::Bytes,
            visibility_timeout_ms: 30_000,
            heartbeat_ms: 5_000,
            deadline_ms: 30_000,
            attempts_max: u32::MAX,
            backoff: Backoff { min_ms: 1_000, max_ms: 600_000 },
            retry_after_max_ms: 3_600_000,
            concurrency: None,
            lane_concurrency: None,
            cooldown: false,
            in_doubt: InDoubtPolicy::DeadLetter,
            keep_original: true,
        }
    }
}
