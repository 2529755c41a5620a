//! Bulk replays on the wire: what is selected, what a preview shows, and how one stands.

use std::collections::BTreeMap;

use leasehold_domain::Cause;
use serde::{Deserialize, Deserializer, Serialize, de};
use utoipa::{IntoParams, ToSchema};

use crate::Timestamp;

/// Which open dead letters to replay.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReplaySelection {
    /// Of this kind.
    pub kind: String,
    /// Of this error class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// Of this cause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = crate::schema::cause)]
    pub cause: Option<Cause>,
    /// That died on this handler version, as `1.2.0` or `name@1.2.0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub died_on: Option<String>,
    /// That died at this time or later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// That died before this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

/// What to preview.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BulkReplayPreviewRequest {
    /// The dead letters.
    pub selection: ReplaySelection,
    /// The handler version to run on, as `1.2.0` or `name@1.2.0`; the handler's current one when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Why to go ahead on a version that the jobs have died on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub override_reason: Option<String>,
}

/// What a bulk replay would do as things stand.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BulkReplayPreview {
    /// How many open dead letters match.
    pub matching: u64,
    /// How many of them would go through.
    pub replayable: u64,
    /// The handler version that they would run on, as `name@version`; absent when it is not live, or nothing matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// That version's digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// How many died of each cause.
    pub by_cause: BTreeMap<String, u64>,
    /// How many died with each error class.
    pub by_class: BTreeMap<String, u64>,
    /// How many died on each handler version.
    pub by_version: BTreeMap<String, u64>,
    /// Those that would be refused now, by reason.
    pub refused: Vec<RefusedReplays>,
    /// How many have steps that were applied: those are not applied again.
    pub with_applied_steps: u64,
    /// How many have steps in doubt.
    pub with_steps_in_doubt: u64,
    /// What to start it with; absent when nothing would go through. It fixes the set: whatever dies later is not in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// Until when it can be started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
}

/// Dead letters that are refused for one reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RefusedReplays {
    /// The stable code of the reason.
    pub code: String,
    /// How many.
    pub count: u64,
    /// What is said of one of them, and what would make it go through.
    pub detail: String,
    /// The first few, by id.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<i64>,
}

/// What to start: what was previewed, with the preview's token.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BulkReplayRequest {
    /// The dead letters, as previewed.
    pub selection: ReplaySelection,
    /// The handler version to run on, as previewed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Why to go ahead on a version that the jobs have died on, as previewed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub override_reason: Option<String>,
    /// The preview's token, without which nothing is started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// Why; it is kept with each replay.
    pub reason: String,
    /// How many jobs a second, as a number, or a rate such as `20/s`, `600/m` or `100/h`; as fast as can be when absent.
    #[serde(default, deserialize_with = "text_or_number", skip_serializing_if = "Option::is_none")]
    pub rate: Option<String>,
    /// Whether one member is tried before the rest, which go only when its job ends well.
    #[serde(default)]
    pub probe: bool,
}

/// Reads a rate that is written as a number as well.
fn text_or_number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    match Option::<serde_json::Value>::deserialize(deserializer)? {
        None => Ok(None),
        Some(serde_json::Value::String(text)) => Ok(Some(text)),
        Some(serde_json::Value::Number(number)) => Ok(Some(number.to_string())),
        Some(_) => Err(de::Error::custom("a rate is a number of jobs a second, or a text such as \"600/m\"")),
    }
}

/// Where a bulk replay stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum BulkReplayState {
    /// One member is tried; the rest waits for how its job ends.
    Probing,
    /// Its members go.
    Running,
    /// No further member goes until it is resumed.
    Stopped,
    /// Every member has had its turn.
    Done,
}

impl BulkReplayState {
    /// The state as it is written.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Probing => "probing",
            Self::Running => "running",
            Self::Stopped => "stopped",
            Self::Done => "done",
        }
    }
}

/// A bulk replay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BulkReplayView {
    /// Its id.
    pub id: i64,
    /// Where it stands.
    pub state: BulkReplayState,
    /// Whether nothing of it is under way: it has stopped or every member has had its turn, and all replayed jobs ended.
    pub settled: bool,
    /// The dead letters that it was started for.
    pub selection: ReplaySelection,
    /// The handler version that its members are bound to, as `name@version`.
    pub version: String,
    /// That version's digest.
    pub digest: String,
    /// Who started it.
    pub actor: String,
    /// Why.
    pub reason: String,
    /// Why on a version that the jobs had died on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub override_reason: Option<String>,
    /// How fast it goes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<String>,
    /// Whether one member is tried before the rest.
    pub probe: bool,
    /// When it was started.
    pub started_at: Timestamp,
    /// When it stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped_at: Option<Timestamp>,
    /// Who stopped it; absent when it stopped by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped_by: Option<String>,
    /// Why it stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<String>,
    /// When its last member had had its turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub done_at: Option<Timestamp>,
    /// How far it has come.
    pub counts: BulkReplayCounts,
    /// The members that were refused at their turn, by reason.
    pub refused: Vec<RefusedReplays>,
}

/// How far a bulk replay has come.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BulkReplayCounts {
    /// How many dead letters it has, fixed at its start.
    pub members: u64,
    /// How many have not had their turn.
    pub pending: u64,
    /// How many were replayed.
    pub replayed: u64,
    /// How many were refused at their turn.
    pub refused: u64,
    /// How many of the replayed jobs have not ended.
    pub running: u64,
    /// How many of them are done.
    pub done: u64,
    /// How many were suppressed.
    pub suppressed: u64,
    /// How many died again.
    pub dead: u64,
    /// How many were cancelled.
    pub cancelled: u64,
    /// How many dead letters of the preview are no members, since they had been replayed or discarded by the start.
    pub left_out_closed: u64,
    /// How many are no members, since they waited in another bulk replay at the start.
    pub left_out_in_others: u64,
}

/// What became of a request to stop or resume a bulk replay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BulkReplayChange {
    /// Whether anything was changed; false when it was so already.
    pub changed: bool,
    /// How it stands now.
    pub bulk_replay: BulkReplayView,
}

/// A member of a bulk replay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BulkReplayMember {
    /// The dead letter.
    pub dead_letter_id: i64,
    /// Its job.
    pub job_id: i64,
    /// `pending`, `replayed` or `refused`.
    pub state: String,
    /// When it had its turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    /// Its replay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay_id: Option<i64>,
    /// The state that its job ended in; absent until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// The stable code with which it was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Why it was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// Which bulk replays to list, the newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct BulkReplayFilter {
    /// How many at most on a page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Where the page starts: the `next_cursor` of the one before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// Which members to list, in the order of their turns.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct BulkReplayMemberFilter {
    /// In this state: `pending`, `replayed` or `refused`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// How many at most on a page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Where the page starts: the `next_cursor` of the one before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r6_a_rate_is_a_text_or_a_number() {
        let rate = |rate: &str| {
            let text = format!("{{\"selection\":{{\"kind\":\"a\"}},\"reason\":\"r\",\"rate\":{rate}}}");
            serde_json::from_str::<BulkReplayRequest>(&text).map(|request| request.rate)
        };
        assert_eq!(rate("\"600/m\"").unwrap().as_deref(), Some("600/m"));
        assert_eq!(rate("20").unwrap().as_deref(), Some("20"));
        assert_eq!(rate("0.5").unwrap().as_deref(), Some("0.5"));
        assert_eq!(rate("null").unwrap(), None);
        assert!(rate("true").unwrap_err().to_string().contains("600/m"));
    }
}
