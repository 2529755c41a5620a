//! The audit log on the wire: who did what, and why.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::Timestamp;

/// One act of an operator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditEntry {
    /// The entry.
    pub id: i64,
    /// When.
    pub at: Timestamp,
    /// Who, as authenticated.
    pub actor: String,
    /// What was done.
    pub action: String,
    /// To what: a job, a dead letter, a version, a kind.
    pub subject: String,
    /// Why, and with what.
    #[schema(schema_with = crate::schema::any_json)]
    pub detail: serde_json::Value,
}

/// Which part of the audit log to list, the newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct AuditFilter {
    /// Acts of this actor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
    /// This act, such as `dead_letter.replay`, or all acts on dead letters: `dead_letter`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// Acts on this job, dead letter, version, kind or token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// Acts from this time on.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<String>)]
    pub since: Option<Timestamp>,
    /// Acts before this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<String>)]
    pub until: Option<Timestamp>,
    /// How many at most on a page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Where the page starts: the `next_cursor` of the one before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}
