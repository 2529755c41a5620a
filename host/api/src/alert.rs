//! Alerts and pages on the wire: what needs somebody now, and whom that was sent to. Nothing in them is a job's data.

use leasehold_domain::Cause;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::Timestamp;

/// Something that needs somebody.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AlertView {
    /// Its stable name, as in the metric `leasehold_alert_active`.
    pub alert: String,
    /// What it is about, where there can be several: a handler version, an outbox, a kind and class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// Since when.
    pub since: Timestamp,
    /// What it means.
    pub meaning: String,
    /// What was found.
    pub detail: String,
    /// What to do.
    pub to_do: String,
}

/// A page that tells somebody of dead letters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PageView {
    /// Its id in this daemon.
    pub id: i64,
    /// The id that it is sent with, by which a receiver tells repetitions.
    pub page_id: String,
    /// The kind.
    pub kind: String,
    /// The error class.
    pub error_class: String,
    /// Why the last of the jobs died.
    #[schema(schema_with = crate::schema::cause)]
    pub cause: Cause,
    /// The version that it died on, as `name@1.2.3`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handler: Option<String>,
    /// Its dead letter.
    pub dead_letter_id: i64,
    /// How many dead letters had arrived by then while no incident was open for them.
    pub arrivals: u64,
    /// When the first of them did.
    pub first_at: Timestamp,
    /// When the page was made.
    pub made_at: Timestamp,
    /// When it was sent; absent until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_at: Option<Timestamp>,
    /// By what: `webhook`, `command`, or `log` when neither is configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_by: Option<String>,
    /// How many tries have failed.
    pub failures: u32,
    /// Why the last one did, until it is sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// When it is tried again, until it is sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_try_at: Option<Timestamp>,
    /// The incident that was opened upon it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incident_id: Option<i64>,
}

/// Which pages to list, the newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct PageFilter {
    /// How many at most on a page of the list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Where the list's page starts: the `next_cursor` of the one before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}
