//! Kinds on the wire: how each stands.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Timestamp;

/// How a kind stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KindView {
    /// The kind.
    pub kind: String,
    /// The handler that serves it; absent for a kind that the configuration no longer has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handler: Option<String>,
    /// Who answers for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The version that new attempts run on, as `name@1.2.3`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub live_version: Option<String>,
    /// Whether jobs wait because no version is live.
    pub waiting_for_handler: bool,
    /// Why no job of any kind is leased at the moment, if so: the daemon is not ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nothing_runs: Option<String>,
    /// Whether an operator has paused it.
    pub paused: bool,
    /// How many jobs wait, are ready and are leased, by state.
    pub depth: BTreeMap<String, u64>,
    /// How many dead letters of it are open.
    #[serde(default)]
    pub dead_letters: u64,
    /// Since when its first job in line has been ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_ready_at: Option<Timestamp>,
}

/// A configuration that was applied whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReloadAnswer {
    /// The file that it was read from.
    pub file: String,
}
