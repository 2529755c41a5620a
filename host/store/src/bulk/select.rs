//! Which dead letters a bulk replay is about. What a filter looks at never changes in a dead letter, and one that is
//! closed never opens again: so a selection up to an id can lose matches, and never gains one.

use leasehold_domain::{Cause, DeadLetterId, Digest, HandlerName, HandlerVersion, Kind, TimestampMs};
use rusqlite::{Connection, Params};
use serde::{Deserialize, Serialize};

use crate::{StoreError, replay::ReplayRequest};

/// How many members a bulk replay has at the most: they are written in one transaction, which no heartbeat overtakes.
pub const BULK_MEMBERS_MAX: usize = 100_000;

/// Which open dead letters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Selection {
    /// Of this kind.
    pub kind: Kind,
    /// Of this error class.
    pub error_class: Option<String>,
    /// Of this cause.
    pub cause: Option<Cause>,
    /// That died on this handler version.
    pub died_on: Option<HandlerVersion>,
    /// That died at this time or later.
    pub since_ms: Option<TimestampMs>,
    /// That died before this time.
    pub until_ms: Option<TimestampMs>,
}

/// What is asked of a bulk replay, and what the caller knows of the kind.
#[derive(Debug, Clone)]
pub struct BulkSettings {
    /// The dead letters.
    pub selection: Selection,
    /// The version to run on; the handler's current one when absent.
    pub version: Option<HandlerVersion>,
    /// Why it should run on a version that the jobs have died on.
    pub override_reason: Option<String>,
    /// The handler that serves the kind.
    pub handler: HandlerName,
    /// Components that are missing or damaged.
    pub damaged: Vec<Digest>,
    /// Whether steps in doubt are begun again by the kind's policy.
    pub begin_again: bool,
    /// The queue's time.
    pub now_ms: TimestampMs,
}

impl BulkSettings {
    /// The single replay that each member's is like; only the dead letter differs.
    pub(super) fn replay_of(&self, dead_letter: DeadLetterId, version: HandlerVersion) -> ReplayRequest {
        ReplayRequest {
            dead_letter,
            handler: self.handler.clone(),
            version: Some(version),
            damaged: self.damaged.clone(),
            actor: String::new(),
            reason: String::new(),
            override_reason: self.override_reason.clone(),
            payload: None,
            resolutions: Vec::new(),
            begin_again: self.begin_again,
            bulk_replay: None,
            now_ms: self.now_ms,
            priority_step_ms: 0,
        }
    }
}

/// A dead letter that a selection matches.
pub(super) struct Matched {
    pub(super) id: i64,
    pub(super) job: i64,
    pub(super) cause: String,
    pub(super) error_class: String,
    pub(super) version: Option<String>,
    /// The running bulk replay in which it waits for its turn.
    pub(super) waits_in: Option<i64>,
}

/// The open dead letters `d` that a selection matches, up to an id. The eighth parameter is left to the statement.
pub(super) const MATCHES: &str = "d.state = 'open' AND d.kind = ?1 AND d.id <= ?2
    AND (?3 IS NULL OR d.error_class = ?3) AND (?4 IS NULL OR d.cause = ?4) AND (?5 IS NULL OR d.version = ?5)
    AND (?6 IS NULL OR d.died_at >= ?6) AND (?7 IS NULL OR d.died_at < ?7)";

/// The running bulk replay in which the dead letter `d` waits for its turn.
pub(super) const WAITS_IN: &str = "(SELECT m.bulk_replay_id
    FROM bulk_replay_members m JOIN bulk_replays b ON b.id = m.bulk_replay_id
    WHERE m.dead_letter_id = d.id AND m.state = 'pending' AND b.state = 'running' LIMIT 1)";

/// The parameters of a statement that looks for matches.
pub(super) fn parameters(selection: &Selection, through: i64, last: i64) -> impl Params {
    (
        selection.kind.as_str().to_owned(),
        through,
        selection.error_class.clone(),
        selection.cause.map(Cause::as_str),
        selection.died_on.as_ref().map(ToString::to_string),
        selection.since_ms,
        selection.until_ms,
        last,
    )
}

/// The open dead letters that match, by id; one more than a bulk replay may have when there are too many.
pub(super) fn matching(connection: &Connection, selection: &Selection) -> Result<Vec<Matched>, StoreError> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT d.id, d.job_id, d.cause, d.error_class, d.version, {WAITS_IN} FROM dead_letters d
         WHERE {MATCHES} ORDER BY d.id LIMIT ?8"
    ))?;
    let limit = i64::try_from(BULK_MEMBERS_MAX).unwrap_or(i64::MAX).saturating_add(1);
    let rows = statement.query_map(parameters(selection, i64::MAX, limit), |row| {
        Ok(Matched {
            id: row.get(0)?,
            job: row.get(1)?,
            cause: row.get(2)?,
            error_class: row.get(3)?,
            version: row.get(4)?,
            waits_in: row.get(5)?,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}
