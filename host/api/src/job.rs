//! Jobs on the wire: how they are sent in and how they are shown. What is shown was redacted before it came here.

use std::collections::BTreeMap;

use leasehold_domain::JobState;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use utoipa::{IntoParams, ToSchema};

use crate::{DeadLetterSummary, ReplayView, Timestamp};

/// A job to enqueue. Exactly one of `payload` and `payload_base64` is given.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EnqueueRequest {
    /// The job type.
    pub kind: String,
    /// The job's stable idempotency key; one that is sent again gives the first job back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// What the job shares a rate limit with: a customer, a host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lane: Option<String>,
    /// The payload as JSON, kept byte for byte as sent.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = crate::schema::any_json)]
    pub payload: Option<Box<RawValue>>,
    /// The payload as any bytes, in standard base64 with padding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload_base64: Option<String>,
    /// The payload's media type; `application/json` for `payload`, else `application/octet-stream`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// Each step moves the job's place in line forward by the configured time; 0 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// How long after its enqueue the job becomes visible. Not together with `run_at`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<u64>,
    /// When the job becomes visible, by the wall clock, which it follows when that is set. Not together with `delay_ms`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_at: Option<Timestamp>,
    /// Names and values that travel with the job.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
}

impl EnqueueRequest {
    /// A job of that kind with nothing further said.
    #[must_use]
    pub fn new(kind: impl Into<String>) -> Self {
        Self {
            kind: kind.into(),
            key: None,
            lane: None,
            payload: None,
            payload_base64: None,
            content_type: None,
            priority: None,
            delay_ms: None,
            run_at: None,
            metadata: BTreeMap::new(),
        }
    }
}

/// Reads a payload of `null` as a payload, not as an absent one.
pub(crate) fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(Some)
}

/// What became of a job that was sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EnqueueAnswer {
    /// The job's id: the new one's, or the first one's with that key.
    pub id: i64,
    /// Whether a job with that kind and key was there already.
    pub duplicate: bool,
    /// The job's state.
    #[schema(schema_with = crate::schema::job_state)]
    pub state: JobState,
}

/// What became of one line of a batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum BatchAnswer {
    /// The line's job is in the queue.
    Accepted {
        /// The line's number, from 1; empty lines count and get no answer.
        line: u64,
        /// The job's id.
        id: i64,
        /// Whether it was there already.
        duplicate: bool,
    },
    /// The line was refused; the others were not held up.
    Refused {
        /// The line's number, from 1.
        line: u64,
        /// A stable code for programs.
        code: String,
        /// What is wrong, and what is allowed.
        detail: String,
    },
}

/// Where a job stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobStateAnswer {
    /// The job.
    pub id: i64,
    /// Its state.
    #[schema(schema_with = crate::schema::job_state)]
    pub state: JobState,
    /// Whether it has ended, so that nothing further happens to it by itself.
    pub ended: bool,
}

/// A job in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobSummary {
    /// The job.
    pub id: i64,
    /// Its type.
    pub kind: String,
    /// Its lane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lane: Option<String>,
    /// Where it stands.
    #[schema(schema_with = crate::schema::job_state)]
    pub state: JobState,
    /// Its priority.
    pub priority: i32,
    /// The number of its latest attempt; 0 before the first.
    pub attempt: u32,
    /// How many attempts have counted against the cap.
    pub attempts_used: u32,
    /// When it was enqueued.
    pub enqueued_at: Timestamp,
    /// When it becomes or became visible, while it is queued.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub visible_at: Option<Timestamp>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// Why it was suppressed or cancelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Who enqueued it.
    pub enqueued_by: String,
    /// The payload's media type.
    pub content_type: String,
    /// The payload's length.
    pub payload_bytes: u64,
}

/// A job with all that is known of it, redacted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobView {
    /// What the list shows.
    #[serde(flatten)]
    pub summary: JobSummary,
    /// How many attempts may count; absent for a kind that the configuration no longer has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts_max: Option<u32>,
    /// Its result in base64, for the one who enqueued it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_base64: Option<String>,
    /// A keyed digest of its payload: equal over replays that do not correct it. Digests of two jobs can't be compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload_digest: Option<String>,
    /// Its attempts, the first one first.
    pub attempts: Vec<AttemptView>,
    /// Its steps.
    pub steps: Vec<StepView>,
    /// Its deaths.
    pub dead_letters: Vec<DeadLetterSummary>,
    /// Its replays.
    pub replays: Vec<ReplayView>,
    /// What other jobs noted on it, such as a bounce of the mail that it sent.
    #[serde(default)]
    pub notes: Vec<NoteView>,
}

/// A note that another job made on a job's record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NoteView {
    /// When it was made.
    pub at: Timestamp,
    /// What it is about.
    pub class: String,
    /// For a person, redacted.
    pub text: String,
    /// The job with whose success it was made.
    pub by_job_id: i64,
    /// That job's type.
    pub by_kind: String,
}

/// One attempt at a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AttemptView {
    /// Its number, which never goes back.
    pub number: u32,
    /// When its lease was taken.
    pub started_at: Timestamp,
    /// When it ended; absent while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// The handler version that it ran on, as `name@version`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handler: Option<String>,
    /// That version's digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// How it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_as: Option<String>,
    /// Whether it counts against the cap.
    pub counted: bool,
    /// The class of its failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_class: Option<String>,
    /// What went wrong, redacted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The steps that it left in doubt.
    #[serde(default)]
    pub in_doubt_steps: Vec<String>,
    /// The replay that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay_id: Option<i64>,
    /// The tail of what the guest logged, redacted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
    /// The frames of the guest's trap, redacted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trap: Option<String>,
}

/// One side effect of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StepView {
    /// Its name.
    pub name: String,
    /// `begun`, `applied` or `taken_back`.
    pub state: String,
    /// The attempt that began it last.
    pub begun_by_attempt: u32,
    /// When it was begun last.
    pub begun_at: Timestamp,
    /// When its result was stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied_at: Option<Timestamp>,
    /// Each run of its effect.
    pub runs: Vec<StepRunView>,
}

/// One run of a step's effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StepRunView {
    /// The attempt that ran it.
    pub attempt: u32,
    /// When it began.
    pub begun_at: Timestamp,
    /// Whether the step was in doubt when it began.
    pub in_doubt: bool,
    /// `applied`, `taken_back` or `stale`; absent when the run's end is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_as: Option<String>,
}

/// Which jobs to list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct JobFilter {
    /// Of this kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// In this state.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(schema_with = crate::schema::job_state)]
    pub state: Option<JobState>,
    /// The one that a client sent with this key, of the kind that is named beside it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Of this lane.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lane: Option<String>,
    /// How many at most on a page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Where the page starts: the `next_cursor` of the one before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// How long to wait for a job's end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct WaitQuery {
    /// How long the call waits at most; then it answers with the state as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q17_a_payload_is_kept_byte_for_byte() {
        let sent = "{ \"amount\" : 1.0e2, \"deep\": [[[ ]]], \"big\": 123456789012345678901234567890 }";
        let request: EnqueueRequest =
            serde_json::from_str(&format!("{{\"kind\": \"pay\", \"payload\": {sent} }}")).unwrap();
        assert_eq!(request.payload.unwrap().get(), sent);
    }

    #[test]
    fn q17_a_payload_may_nest_to_any_depth() {
        let deep = format!("{}{}", "[".repeat(20_000), "]".repeat(20_000));
        let request: EnqueueRequest =
            serde_json::from_str(&format!("{{\"kind\":\"pay\",\"payload\":{deep}}}")).unwrap();
        assert_eq!(request.payload.unwrap().get(), deep);
    }

    #[test]
    fn q17_null_is_a_payload_and_none_is_not() {
        let null: EnqueueRequest = serde_json::from_str("{\"kind\":\"a\",\"payload\":null}").unwrap();
        assert_eq!(null.payload.unwrap().get(), "null");
        let none: EnqueueRequest = serde_json::from_str("{\"kind\":\"a\"}").unwrap();
        assert!(none.payload.is_none());
    }

    #[test]
    fn f1_a_misspelt_field_is_named() {
        let error = serde_json::from_str::<EnqueueRequest>("{\"kind\":\"a\",\"delay\":5}").unwrap_err();
        assert!(error.to_string().contains("unknown field `delay`"), "{error}");
    }

    #[test]
    fn f1_an_answer_tells_accepted_lines_from_refused_ones() {
        for text in [
            "{\"line\":1,\"id\":7,\"duplicate\":false}",
            "{\"line\":2,\"code\":\"unknown_kind\",\"detail\":\"no kind x\"}",
        ] {
            let answer: BatchAnswer = serde_json::from_str(text).unwrap();
            assert_eq!(serde_json::to_string(&answer).unwrap(), text);
        }
    }
}
