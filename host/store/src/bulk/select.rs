//! Which dead letters a bulk replay is about. What a filter looks at never changes in a dead letter, and one that is
//! closed never opens again: so a selection up to an id can lose matches, and never gains one.

use leasehold_domain::{BulkReplayId, Cause, DeadLetterId, Digest, HandlerName, HandlerVersion, Kind, TimestampMs};
use rusqlite::{Connection, OptionalExtension, params};
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
}

/// The open dead letters that match, by id, up to one; one more than a bulk replay may have when there are too many.
pub(super) fn matching(
    connection: &Connection,
    selection: &Selection,
    through: Option<i64>,
) -> Result<Vec<Matched>, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT id, job_id, cause, error_class, version FROM dead_letters
         WHERE state = 'open' AND kind = ?1 AND id <= ?2
           AND (?3 IS NULL OR error_class = ?3) AND (?4 IS NULL OR cause = ?4) AND (?5 IS NULL OR version = ?5)
           AND (?6 IS NULL OR died_at >= ?6) AND (?7 IS NULL OR died_at < ?7)
         ORDER BY id LIMIT ?8",
    )?;
    let rows = statement.query_map(
        params![
            selection.kind.as_str(),
            through.unwrap_or(i64::MAX),
            selection.error_class,
            selection.cause.map(Cause::as_str),
            selection.died_on.as_ref().map(ToString::to_string),
            selection.since_ms,
            selection.until_ms,
            BULK_MEMBERS_MAX + 1
        ],
        |row| {
            Ok(Matched {
                id: row.get(0)?,
                job: row.get(1)?,
                cause: row.get(2)?,
                error_class: row.get(3)?,
                version: row.get(4)?,
            })
        },
    )?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// The running bulk replay in which a dead letter waits for its turn.
pub(super) fn waits_in(connection: &Connection, dead_letter: i64) -> Result<Option<BulkReplayId>, StoreError> {
    Ok(connection
        .prepare_cached(
            "SELECT m.bulk_replay_id FROM bulk_replay_members m JOIN bulk_replays b ON b.id = m.bulk_replay_id
             WHERE m.dead_letter_id = ?1 AND m.state = 'pending' AND b.state = 'running' LIMIT 1",
        )?
        .query_row([dead_letter], |row| row.get(0).map(BulkReplayId))
        .optional()?)
}
