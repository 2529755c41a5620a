//! Rehearsals on the wire: what is asked for, the answers that stand in for the network, and the report of what a run
//! would do. What a report shows was redacted before it came here.

use std::collections::BTreeMap;

use leasehold_domain::Cause;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

/// How to rehearse a dead letter: it is run with nothing applied.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RehearsalRequest {
    /// The stored handler version to run on, as `1.2.0` or `name@1.2.0`, live or not; the handler's current one when
    /// absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// A payload in place of the original, as JSON.
    #[serde(default, deserialize_with = "crate::job::present", skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = crate::schema::any_json)]
    pub payload: Option<Box<RawValue>>,
    /// A payload in place of the original, as any bytes in standard base64 with padding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload_base64: Option<String>,
    /// Answers to the requests that the handler sends. A request takes the first one that matches it and was not taken.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answers: Vec<RehearsalAnswer>,
}

/// The answer to one request.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RehearsalAnswer {
    /// The request's method; any when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// The request's whole URL, where `*` stands for anything.
    pub url: String,
    /// The status; 200 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The headers.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// The body as JSON, given byte for byte. Not together with `body_text`.
    #[serde(default, deserialize_with = "crate::job::present", skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = crate::schema::any_json)]
    pub body: Option<Box<RawValue>>,
    /// The body as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_text: Option<String>,
    /// No response but this failure; then there is no status, header or body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<RequestFailure>,
}

/// How a request fails without a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RequestFailure {
    /// There is no connection; the request did not leave.
    NotConnected,
    /// The answer does not come in time.
    TimedOut,
    /// The connection breaks once the request has left.
    Broken,
}

/// What a run of a dead letter would do. Nothing of it was applied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RehearsalReport {
    /// The dead letter.
    pub dead_letter_id: i64,
    /// Its job.
    pub job_id: i64,
    /// The job's type.
    pub kind: String,
    /// The handler version that ran, as `name@version`.
    pub version: String,
    /// That version's digest.
    pub digest: String,
    /// Where that version stands.
    #[schema(schema_with = crate::schema::handler_state)]
    pub version_state: leasehold_domain::HandlerState,
    /// Whether the payload was given with the rehearsal.
    pub payload_corrected: bool,
    /// How the run ended, as an attempt's end is recorded: `done`, `suppressed` or `failed`; `unanswered` when it was
    /// stopped at a request that has no answer.
    pub ended_as: String,
    /// The class of its failure, as it would be recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_class: Option<String>,
    /// What went wrong, redacted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Why it was suppressed, redacted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Its result, redacted; masked whole when it is no JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// What would become of the job at the first attempt of a replay; absent when the run was stopped at a request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<RehearsalVerdict>,
    /// The request that has no answer, as an answer to be filled in; what was masked in its URL is a `*`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unanswered: Option<AnswerTemplate>,
    /// How many of the given answers no request took.
    pub answers_left: u64,
    /// Steps and requests, in their order.
    pub events: Vec<RehearsalEvent>,
    /// Steps that would be left in doubt.
    pub steps_in_doubt: Vec<String>,
    /// Jobs that would be enqueued with the job's success.
    pub jobs: Vec<RehearsedJob>,
    /// Values that would be stored or removed with the job's success.
    pub values: Vec<RehearsedValue>,
    /// Notes that would be made on other jobs' records with the job's success.
    pub notes: Vec<RehearsedNote>,
    /// What the guest logged, and what the host refused it, redacted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
    /// The frames of the guest's trap, redacted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trap: Option<String>,
    /// How long it ran, in milliseconds.
    pub run_ms: u64,
    /// The most memory that it held, in bytes.
    pub memory_peak_bytes: u64,
}

/// What would become of the job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RehearsalVerdict {
    /// `done`, `suppressed`, `retry`, `release` or `dead_letter`.
    pub job: String,
    /// Why it would die.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = crate::schema::cause)]
    pub cause: Option<Cause>,
    /// The shortest delay before the next attempt, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_min_ms: Option<i64>,
    /// The longest delay before the next attempt, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_max_ms: Option<i64>,
    /// Whether the guest's class is not in the configuration's vocabulary.
    pub unknown_class: bool,
    /// Whether the vocabulary decides otherwise than the guest said.
    pub class_mismatch: bool,
}

/// An answer to be filled in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AnswerTemplate {
    /// The request's method.
    pub method: String,
    /// The request's URL.
    pub url: String,
    /// The status.
    pub status: u16,
    /// The headers.
    pub headers: BTreeMap<String, String>,
    /// The body as text.
    pub body_text: String,
}

/// One thing that happened in a rehearsal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum RehearsalEvent {
    /// A step was begun.
    StepBegun {
        /// The step.
        step: String,
        /// `fresh`, `in_doubt`, `applied` (its stored result was given) or `conflict`.
        found: String,
        /// The key that its request would carry to downstream.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        idempotency_key: Option<String>,
        /// The stored result of an applied step, redacted.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        result: Option<String>,
    },
    /// A step was completed.
    StepCompleted {
        /// The step.
        step: String,
        /// Its result, redacted; masked whole when it is no JSON.
        result: String,
    },
    /// A step was taken back: its effect was certainly not applied.
    StepTakenBack {
        /// The step.
        step: String,
    },
    /// A request would have been sent.
    Request {
        /// The method.
        method: String,
        /// The URL, redacted.
        url: String,
        /// The headers in their order, redacted.
        headers: Vec<RehearsedHeader>,
        /// The body, redacted; masked whole when it is no JSON. Absent when it is empty.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        body: Option<String>,
        /// The body's length.
        body_bytes: u64,
        /// The `Idempotency-Key` that it carries, if it carries the step's own.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        idempotency_key: Option<String>,
        /// What it was answered: a status, a failure, or `unanswered`.
        answered: String,
    },
}

/// A header of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RehearsedHeader {
    /// Its name.
    pub name: String,
    /// Its value, redacted.
    pub value: String,
}

/// A job that would be enqueued.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RehearsedJob {
    /// The step that keeps it; absent outside of steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// Whether a step that an earlier attempt applied has kept it.
    pub kept_before: bool,
    /// Its type.
    pub kind: String,
    /// Its lane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lane: Option<String>,
    /// Whether it has a key of its own.
    pub has_key: bool,
    /// How long after the success it would become visible, in milliseconds.
    pub delay_ms: i64,
    /// Its payload, redacted by its own type's policy.
    pub payload: String,
}

/// A value that would be stored or removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RehearsedValue {
    /// The step that keeps it; absent outside of steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// Whether a step that an earlier attempt applied has kept it.
    pub kept_before: bool,
    /// The store.
    pub store: String,
    /// The value's key, redacted.
    pub key: String,
    /// The value's length; absent when it would be removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_bytes: Option<u64>,
}

/// A note that would be made on another job's record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RehearsedNote {
    /// The step that keeps it; absent outside of steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// Whether a step that an earlier attempt applied has kept it.
    pub kept_before: bool,
    /// The other job.
    pub job_id: i64,
    /// What it is about.
    pub class: String,
    /// For a person, redacted.
    pub text: String,
}
