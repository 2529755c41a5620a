//! Incidents on the wire, and the groups of open dead letters that they are opened for.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::{PageView, Timestamp};

/// Where an incident stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum IncidentState {
    /// Somebody deals with it: what it covers pages nobody.
    Open,
    /// It was dealt with.
    Closed,
}

impl IncidentState {
    /// All states.
    pub const ALL: [Self; 2] = [Self::Open, Self::Closed];

    /// The state as it is written.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Closed => "closed",
        }
    }

    /// The state of that name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }
}

impl fmt::Display for IncidentState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An incident in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct IncidentSummary {
    /// Its id.
    pub id: i64,
    /// The kind whose dead letters it covers.
    pub kind: String,
    /// The one error class that it is for; every class of the kind when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_class: Option<String>,
    /// Where it stands.
    pub state: IncidentState,
    /// What was known when it was opened.
    pub note: String,
    /// The first version that is fixed, as `name@1.2.3`. What died before it is replayed onto it or a later one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fixed_in: Option<String>,
    /// When it was opened.
    pub opened_at: Timestamp,
    /// By whom.
    pub opened_by: String,
    /// When it was closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed_at: Option<Timestamp>,
    /// By whom.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed_by: Option<String>,
    /// What came of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closing_note: Option<String>,
    /// How many dead letters arrived while it was open.
    pub arrivals: u64,
    /// How many dead letters of what it covers are open now, whenever they arrived.
    pub open_dead_letters: u64,
}

/// An incident with its counts and the pages that it was opened upon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct IncidentView {
    /// What the list shows.
    #[serde(flatten)]
    pub summary: IncidentSummary,
    /// Its counts by error class and version.
    pub groups: Vec<IncidentGroup>,
    /// The pages that it was opened upon, the latest first.
    pub pages: Vec<PageView>,
}

/// What an incident has to do with one error class and version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct IncidentGroup {
    /// The error class.
    pub error_class: String,
    /// The version that the jobs died on, as `name@1.2.3`; absent when they ran on none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handler: Option<String>,
    /// How many dead letters arrived while it was open.
    pub arrivals: u64,
    /// How many dead letters are open now.
    pub open_dead_letters: u64,
}

/// How to open an incident.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OpenIncidentRequest {
    /// The kind whose dead letters it covers.
    pub kind: String,
    /// One error class of it; every class when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_class: Option<String>,
    /// What is known; it is kept in the clear.
    pub note: String,
    /// The first version that is fixed, as `name@1.2.3`, or `1.2.3` of the kind's handler. It need not be stored yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fixed_in: Option<String>,
}

/// What to change of an incident, open or closed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EditIncidentRequest {
    /// The first version that is fixed, as `name@1.2.3`, or `1.2.3` of the kind's handler; `null` when none is known.
    #[serde(deserialize_with = "nullable")]
    #[schema(required)]
    pub fixed_in: Option<String>,
}

/// How to close an incident.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CloseIncidentRequest {
    /// What came of it; it is kept in the clear.
    pub note: String,
    /// The first version that is fixed; what was said before holds when it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fixed_in: Option<String>,
}

/// A value that may be null and must be there, so that an empty request changes nothing.
fn nullable<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Option::deserialize(deserializer)
}

/// Which incidents to list, the newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct IncidentFilter {
    /// In this state; all when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<IncidentState>,
    /// How many at most on a page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Where the page starts: the `next_cursor` of the one before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// The open dead letters of one kind, error class and version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeadLetterGroup {
    /// The kind.
    pub kind: String,
    /// The error class.
    pub error_class: String,
    /// The version that the jobs died on, as `name@1.2.3`; absent when they ran on none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handler: Option<String>,
    /// How many are open.
    pub open_dead_letters: u64,
    /// When the first of them died.
    pub first_died_at: Timestamp,
    /// When the last did.
    pub last_died_at: Timestamp,
    /// The last one.
    pub latest_id: i64,
    /// The open incident that covers them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incident_id: Option<i64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn o2_an_edit_says_what_it_changes() {
        let read = serde_json::from_str::<EditIncidentRequest>;
        assert_eq!(read(r#"{"fixed_in": null}"#).unwrap().fixed_in, None);
        assert_eq!(read(r#"{"fixed_in": "1.2.0"}"#).unwrap().fixed_in.as_deref(), Some("1.2.0"));
        assert!(read("{}").is_err(), "an empty request would take the fix away");
    }
}
