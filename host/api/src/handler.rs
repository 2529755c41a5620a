//! Handler versions on the wire. The component's bytes travel as they are, in a body of their own.

use std::collections::BTreeMap;

use leasehold_domain::HandlerState;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::Timestamp;

/// A stored handler version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HandlerView {
    /// The version, as `name@1.2.3`.
    pub version: String,
    /// The SHA-256 digest of its component.
    pub digest: String,
    /// Where it stands.
    #[schema(schema_with = crate::schema::handler_state)]
    pub state: HandlerState,
    /// Whether new attempts run on it.
    pub current: bool,
    /// Whether its component is there and has its digest.
    pub intact: bool,
    /// The component's length.
    pub size_bytes: u64,
    /// When it was stored.
    pub stored_at: Timestamp,
    /// By whom.
    pub stored_by: String,
    /// When it last went live.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activated_at: Option<Timestamp>,
    /// How many attempts run on it now.
    pub running: u64,
}

/// What became of a component that was pushed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PushAnswer {
    /// The version, as `name@1.2.3`.
    pub version: String,
    /// The SHA-256 digest of its component.
    pub digest: String,
    /// Whether the same bytes were stored under that version already.
    pub already_stored: bool,
}

/// A version that was taken out of service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RetireAnswer {
    /// The version as it stands.
    #[serde(flatten)]
    pub handler: HandlerView,
    /// The kinds whose jobs wait from now on, since no version of their handler is live, and how many jobs each has;
    /// empty while another version serves them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub waiting: BTreeMap<String, u64>,
}

/// How to activate a version.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ActivateQuery {
    /// Whether the version that was current stays live for jobs that are bound to it.
    #[serde(default)]
    pub keep_live: bool,
}
