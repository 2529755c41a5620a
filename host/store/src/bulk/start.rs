//! The start of a bulk replay: its token is checked and its members are written, in one transaction with its audit row.
//! From then on nothing joins it.

use std::sync::Arc;

use leasehold_domain::{
    BulkReplayId, HandlerVersion,
    bulk_replay::Rate,
    replay::{Candidate, ReplayRefusal, live_target},
};
use rusqlite::{Connection, params};
use serde_json::json;

use super::{
    select::{BulkSettings, MATCHES, WAITS_IN, parameters},
    token::{Seen, TokenRefusal},
};
use crate::{Store, StoreError, audit, handlers, keys::Keys, writer::Urgency};

/// What an operator asks for.
#[derive(Debug, Clone)]
pub struct StartBulkReplay {
    /// What was previewed.
    pub settings: BulkSettings,
    /// The preview's token.
    pub token: String,
    /// Who asks, from the authenticated caller.
    pub actor: String,
    /// Why.
    pub reason: String,
    /// How fast; as fast as can be when absent.
    pub rate: Option<Rate>,
    /// Whether one member is tried before the rest.
    pub probe: bool,
}

/// What became of a request to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Started {
    /// It runs.
    Now(BulkReplayId),
    /// The token does not fit.
    Token(TokenRefusal),
    /// The version is not live.
    Refused(ReplayRefusal),
    /// Every dead letter of the preview was closed meanwhile, or waits in a bulk replay that is running.
    NothingLeft {
        /// How many were replayed or discarded.
        closed: u64,
        /// How many wait in others.
        elsewhere: u64,
        /// One of those others.
        bulk_replay: Option<BulkReplayId>,
    },
}

impl Store {
    /// Starts a bulk replay of what its preview showed.
    pub async fn start_bulk_replay(&self, start: StartBulkReplay) -> Result<Started, StoreError> {
        self.note_time(start.settings.now_ms);
        let keys = Arc::clone(&self.shared.keys);
        self.shared
            .writer
            .call(Urgency::Usual, move |connection| {
                let started = begin(connection, keys.get()?, &start)?;
                fail::fail_point!("bulk_replay.started");
                Ok(started)
            })
            .await
    }
}

/// How many members there are, and how much of what the preview saw is none.
struct Split {
    members: u64,
    closed: u64,
    elsewhere: u64,
    bulk_replay: Option<BulkReplayId>,
}

fn begin(connection: &Connection, keys: &Keys, start: &StartBulkReplay) -> Result<Started, StoreError> {
    let settings = &start.settings;
    let Some(seen) = Seen::read(&start.token, keys, settings)? else {
        return Ok(Started::Token(TokenRefusal::Mismatch));
    };
    if settings.now_ms > seen.expires_at_ms {
        return Ok(Started::Token(TokenRefusal::Expired));
    }
    let candidates = handlers::candidates(connection, settings.handler.as_str(), &settings.damaged)?;
    let target = match live_target(&candidates, settings.version.as_ref()) {
        Ok(target) if target.id == seen.target => target,
        Ok(target) => {
            let current = target.version.to_string();
            return Ok(Started::Token(TokenRefusal::TargetChanged { current }));
        }
        Err(refusal) => return Ok(Started::Refused(refusal)),
    };
    let split = split(connection, settings, &seen)?;
    if split.members == 0 {
        let Split { closed, elsewhere, bulk_replay, .. } = split;
        return Ok(Started::NothingLeft { closed, elsewhere, bulk_replay });
    }
    let id = insert(connection, start, target, &split)?;
    let sql = format!(
        "INSERT INTO bulk_replay_members (bulk_replay_id, dead_letter_id, job_id)
         SELECT ?8, d.id, d.job_id FROM dead_letters d WHERE {MATCHES} AND {WAITS_IN} IS NULL"
    );
    connection.prepare_cached(&sql)?.execute(parameters(&settings.selection, seen.through, id))?;
    write_audit(connection, id, start, &target.version, split.members)?;
    Ok(Started::Now(BulkReplayId(id)))
}

/// A dead letter that waits in another running bulk replay is left to that one, so that two operators who start the same
/// set have one replay of each.
fn split(connection: &Connection, settings: &BulkSettings, seen: &Seen) -> Result<Split, StoreError> {
    let sql =
        format!("SELECT count(*), count({WAITS_IN}), min({WAITS_IN}) FROM dead_letters d WHERE {MATCHES} LIMIT ?8");
    let (matching, elsewhere, other): (u64, u64, Option<i64>) =
        connection.prepare_cached(&sql)?.query_row(parameters(&settings.selection, seen.through, 1), |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })?;
    Ok(Split {
        members: matching.saturating_sub(elsewhere),
        closed: seen.count.saturating_sub(matching),
        elsewhere,
        bulk_replay: other.map(BulkReplayId),
    })
}

fn insert(
    connection: &Connection,
    start: &StartBulkReplay,
    target: &Candidate,
    split: &Split,
) -> Result<i64, StoreError> {
    let selection = &start.settings.selection;
    let text = serde_json::to_string(selection).map_err(|error| StoreError::Unexpected(error.to_string()))?;
    connection
        .prepare_cached(
            "INSERT INTO bulk_replays (state, kind, selection, actor, reason, override_reason, version, digest, rate, probe,
                                       started_at, going_since, left_out_closed, left_out_elsewhere, members)
             VALUES ('running', ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?10, ?11, ?12, ?13)",
        )?
        .execute(params![
            selection.kind.as_str(),
            text,
            start.actor,
            start.reason,
            start.settings.override_reason,
            target.version.to_string(),
            target.digest.as_bytes(),
            start.rate.map(|rate| rate.to_string()),
            if start.probe { "wanted" } else { "none" },
            start.settings.now_ms,
            split.closed,
            split.elsewhere,
            split.members
        ])?;
    Ok(connection.last_insert_rowid())
}

fn write_audit(
    connection: &Connection,
    id: i64,
    start: &StartBulkReplay,
    target: &HandlerVersion,
    members: u64,
) -> Result<(), StoreError> {
    let settings = &start.settings;
    let detail = json!({
        "selection": settings.selection, "version": target, "members": members, "reason": start.reason,
        "override_reason": settings.override_reason, "rate": start.rate.map(|rate| rate.to_string()),
        "probe": start.probe,
    });
    audit::write(connection, settings.now_ms, &start.actor, "bulk_replay.start", &id.to_string(), &detail)
}
