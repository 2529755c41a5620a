//! Dead letters and their replays on the wire. What is shown was redacted before it came here.

use std::{collections::BTreeMap, fmt};

use leasehold_domain::Cause;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::{IntoParams, ToSchema};

use crate::{AttemptView, NoteView, StepView, Timestamp};

/// Where a dead letter stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DeadLetterState {
    /// Nobody has dealt with it.
    Open,
    /// An operator sent its job back into the queue.
    Replayed,
    /// An operator gave it up.
    Discarded,
}

impl DeadLetterState {
    /// All states.
    pub const ALL: [Self; 3] = [Self::Open, Self::Replayed, Self::Discarded];

    /// The state as it is written.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Replayed => "replayed",
            Self::Discarded => "discarded",
        }
    }

    /// The state of that name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }
}

impl fmt::Display for DeadLetterState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A dead letter in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeadLetterSummary {
    /// The dead letter's own id.
    pub id: i64,
    /// The job that died.
    pub job_id: i64,
    /// Its type.
    pub kind: String,
    /// Its lane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lane: Option<String>,
    /// Why it died.
    #[schema(schema_with = crate::schema::cause)]
    pub cause: Cause,
    /// The class of its last failure.
    pub error_class: String,
    /// What went wrong last, redacted.
    pub message: String,
    /// Where the dead letter stands.
    pub state: DeadLetterState,
    /// When the job died.
    pub died_at: Timestamp,
    /// The number of the attempt that it died at.
    pub attempt: u32,
    /// The handler version that it died on, as `name@version`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handler: Option<String>,
    /// That version's digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
}

/// A dead letter with all that is known of it, redacted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeadLetterView {
    /// What the list shows.
    #[serde(flatten)]
    pub summary: DeadLetterSummary,
    /// The job's key, redacted.
    pub key: String,
    /// The payload, redacted; masked whole when it can't be read.
    pub redacted_payload: String,
    /// Whether the sealed original was kept, without which a replay needs a payload.
    pub original_kept: bool,
    /// A keyed digest of the payload that it died with, to be compared with those of the same job's replays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload_digest: Option<String>,
    /// When it was replayed or discarded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed_at: Option<Timestamp>,
    /// By whom.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed_by: Option<String>,
    /// The job's attempts, the first one first.
    pub attempts: Vec<AttemptView>,
    /// The job's steps.
    pub steps: Vec<StepView>,
    /// The job's replays.
    pub replays: Vec<ReplayView>,
    /// What other jobs noted on the job.
    #[serde(default)]
    pub notes: Vec<NoteView>,
}

/// One replay of a dead letter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReplayView {
    /// The replay.
    pub id: i64,
    /// The dead letter that was replayed.
    pub dead_letter_id: i64,
    /// 1 for the first replay of the job.
    pub number: u32,
    /// Who asked for it.
    pub actor: String,
    /// Why.
    pub reason: String,
    /// Why it went ahead on a version that the job had died on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub override_reason: Option<String>,
    /// The handler version that it is bound to, as `name@version`.
    pub version: String,
    /// That version's digest.
    pub digest: String,
    /// Whether the payload was corrected with it.
    pub payload_corrected: bool,
    /// The bulk replay that it was a part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bulk_replay_id: Option<i64>,
    /// A keyed digest of the payload that had died, to be compared within the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload_digest_before: Option<String>,
    /// The same of the payload that was replayed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload_digest_after: Option<String>,
    /// When it was asked for.
    pub requested_at: Timestamp,
    /// The state that the job ended in; absent until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
}

/// How to replay a dead letter.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReplayRequest {
    /// The handler version to run on, as `1.2.0` or `name@1.2.0`; the handler's current one when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Why; it is kept with the replay.
    pub reason: String,
    /// Why to go ahead on a version that the job has died on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub override_reason: Option<String>,
    /// A corrected payload as JSON, kept byte for byte as sent.
    #[serde(default, deserialize_with = "crate::job::present", skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = crate::schema::any_json)]
    pub payload: Option<Box<RawValue>>,
    /// A corrected payload as any bytes, in standard base64 with padding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload_base64: Option<String>,
    /// What is known of steps in doubt, by their names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub steps: BTreeMap<String, StepResolution>,
}

/// What an operator knows of a step in doubt.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StepResolution {
    /// Whether the step was applied.
    pub applied: bool,
    /// The result that later runs of an applied step get, as JSON, kept byte for byte; `null` when absent.
    #[serde(default, deserialize_with = "crate::job::present", skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = crate::schema::any_json)]
    pub result: Option<Box<RawValue>>,
}

/// A replay that was accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReplayAnswer {
    /// The replay.
    pub replay_id: i64,
    /// The job, back in the queue under its old id.
    pub job_id: i64,
    /// The handler version that it is bound to, as `name@version`.
    pub version: String,
    /// That version's digest.
    pub digest: String,
}

/// Why a dead letter is given up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DiscardRequest {
    /// Why; it is kept in the audit log.
    pub reason: String,
}

/// Why somebody has to see the original of a dead letter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RevealRequest {
    /// Why; it is kept in the audit log.
    pub reason: String,
}

/// The original of a dead letter, in the clear.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RevealAnswer {
    /// The dead letter.
    pub id: i64,
    /// The job that died.
    pub job_id: i64,
    /// Its type.
    pub kind: String,
    /// Its lane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lane: Option<String>,
    /// The job's key.
    pub key: String,
    /// Names and values that travelled with the job.
    pub metadata: BTreeMap<String, String>,
    /// The payload's media type.
    pub content_type: String,
    /// The payload, byte for byte, in standard base64 with padding.
    pub payload_base64: String,
}

/// Which dead letters to list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct DeadLetterFilter {
    /// Of this kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Of this cause.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(schema_with = crate::schema::cause)]
    pub cause: Option<Cause>,
    /// Of this error class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// In this state; the open ones when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<DeadLetterState>,
    /// How many at most on a page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Where the page starts: the `next_cursor` of the one before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}
