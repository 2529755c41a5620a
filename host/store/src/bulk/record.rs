//! Bulk replays and their members as they are shown, and what the daemon has to know of those that run.

use std::collections::BTreeMap;

use leasehold_domain::{
    BulkReplayId, DeadLetterId, Digest, JobId, JobState, Kind, ReplayId, TimestampMs,
    bulk_replay::{BulkState, Probe, Rate},
};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::select::Selection;
use crate::{Store, StoreError, read::Page};

/// A bulk replay as it is recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BulkReplayRecord {
    /// Its id.
    pub id: BulkReplayId,
    /// Where it stands.
    pub state: BulkState,
    /// What it was started for.
    pub selection: Selection,
    /// Who started it.
    pub actor: String,
    /// Why.
    pub reason: String,
    /// Why on a version that the jobs had died on.
    pub override_reason: Option<String>,
    /// The version that its members are bound to.
    pub version: String,
    /// That version's component.
    pub digest: Digest,
    /// How fast it goes.
    pub rate: Option<Rate>,
    /// Whether one member is tried before the rest.
    pub has_probe: bool,
    /// Whether the rest waits for a probe still.
    pub is_probing: bool,
    /// When it was started.
    pub started_at_ms: TimestampMs,
    /// When it was stopped.
    pub stopped_at_ms: Option<TimestampMs>,
    /// By whom; nobody when it stopped by itself.
    pub stopped_by: Option<String>,
    /// Why.
    pub stop_reason: Option<String>,
    /// When its last member had had its turn.
    pub done_at_ms: Option<TimestampMs>,
    /// How many dead letters of the preview had been closed at the start.
    pub left_out_closed: u64,
    /// How many waited in other bulk replays.
    pub left_out_elsewhere: u64,
    /// How many members it has.
    pub members: u64,
    /// How many of them were replayed.
    pub replayed: u64,
    /// How many were refused at their turn.
    pub refused: u64,
    /// How many of the replayed jobs ended, by the state they ended in.
    pub ended: BTreeMap<&'static str, u64>,
    /// The members that were refused, by code, with what was said of one of them.
    pub refusals: Vec<(String, u64, String)>,
}

/// A member of a bulk replay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BulkMember {
    /// The dead letter.
    pub dead_letter: DeadLetterId,
    /// Its job.
    pub job: JobId,
    /// `pending`, `replayed` or `refused`.
    pub state: String,
    /// When it had its turn.
    pub at_ms: Option<TimestampMs>,
    /// Its replay.
    pub replay: Option<ReplayId>,
    /// How the replay ended.
    pub result: Option<String>,
    /// Why it was refused.
    pub code: Option<String>,
    /// In words.
    pub detail: Option<String>,
}

/// Which members to list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BulkMemberFilter {
    /// `pending`, `replayed` or `refused`.
    pub state: Option<String>,
    /// After this dead letter.
    pub after: Option<i64>,
}

/// What has to be known of a running bulk replay to go on with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BulkRun {
    /// Its id.
    pub id: BulkReplayId,
    /// The kind of its members.
    pub kind: Kind,
    /// When it began to go last: its start, or its last resumption.
    pub going_since_ms: TimestampMs,
    /// How fast it goes.
    pub rate: Option<Rate>,
    /// How it stands with its probe.
    pub probe: Probe,
    /// The next members, by dead letter.
    pub pending: Vec<DeadLetterId>,
}

const COLUMNS: &str = "id, state, selection, actor, reason, override_reason, version, digest, rate, probe, started_at,
    stopped_at, stopped_by, stop_reason, done_at, left_out_closed, left_out_elsewhere, members, replayed, refused,
    ended_done, ended_suppressed, ended_dead, ended_cancelled";

impl Store {
    /// Bulk replays, the latest first, from before one.
    pub async fn bulk_replays(&self, before: Option<i64>, max: usize) -> Result<Page<BulkReplayRecord>, StoreError> {
        self.ask(move |connection| {
            let sql = format!("SELECT {COLUMNS} FROM bulk_replays WHERE id < ?1 ORDER BY id DESC LIMIT ?2");
            let mut statement = connection.prepare_cached(&sql)?;
            let limit = i64::try_from(max).unwrap_or(i64::MAX);
            let rows = statement.query_map([before.unwrap_or(i64::MAX), limit], |row| Ok(record(row)))?;
            let records = rows.map(|row| row?).collect::<Result<Vec<_>, StoreError>>()?;
            Ok(Page::new(records, max, |record| record.id.0))
        })
        .await
    }

    /// One bulk replay, with why members were refused.
    pub async fn bulk_replay(&self, id: BulkReplayId) -> Result<Option<BulkReplayRecord>, StoreError> {
        self.ask(move |connection| {
            let found = connection
                .prepare_cached(&format!("SELECT {COLUMNS} FROM bulk_replays WHERE id = ?1"))?
                .query_row([id.0], |row| Ok(record(row)))
                .optional()?
                .transpose()?;
            let Some(mut record) = found else { return Ok(None) };
            record.refusals = refusals(connection, id)?;
            Ok(Some(record))
        })
        .await
    }

    /// The members of a bulk replay in the order of their turns.
    pub async fn bulk_members(
        &self,
        id: BulkReplayId,
        filter: BulkMemberFilter,
        max: usize,
    ) -> Result<Page<BulkMember>, StoreError> {
        self.ask(move |connection| {
            let mut statement = connection.prepare_cached(
                "SELECT m.dead_letter_id, m.job_id, m.state, m.at, m.replay_id, r.result, m.code, m.detail
                 FROM bulk_replay_members m LEFT JOIN replays r ON r.id = m.replay_id
                 WHERE m.bulk_replay_id = ?1 AND m.dead_letter_id > ?2 AND (?3 IS NULL OR m.state = ?3)
                 ORDER BY m.dead_letter_id LIMIT ?4",
            )?;
            let limit = i64::try_from(max).unwrap_or(i64::MAX);
            let rows =
                statement.query_map(params![id.0, filter.after.unwrap_or(i64::MIN), filter.state, limit], |row| {
                    Ok(BulkMember {
                        dead_letter: DeadLetterId(row.get(0)?),
                        job: JobId(row.get(1)?),
                        state: row.get(2)?,
                        at_ms: row.get(3)?,
                        replay: row.get::<_, Option<i64>>(4)?.map(ReplayId),
                        result: row.get(5)?,
                        code: row.get(6)?,
                        detail: row.get(7)?,
                    })
                })?;
            Ok(Page::new(rows.collect::<Result<_, _>>()?, max, |member| member.dead_letter.0))
        })
        .await
    }

    /// The bulk replays that run, the first one first, each with its next members.
    pub async fn running_bulk_replays(&self, members_max: usize) -> Result<Vec<BulkRun>, StoreError> {
        self.ask_for_daemon(move |connection| {
            let ids: Vec<i64> = connection
                .prepare_cached("SELECT id FROM bulk_replays WHERE state = 'running' ORDER BY id")?
                .query_map([], |row| row.get(0))?
                .collect::<Result<_, _>>()?;
            ids.into_iter().map(|id| run(connection, id, members_max)).collect()
        })
        .await
    }
}

fn record(row: &Row<'_>) -> Result<BulkReplayRecord, StoreError> {
    let (state, selection, probe): (String, String, String) = (row.get(1)?, row.get(2)?, row.get(9)?);
    let unexpected = |what: &str| StoreError::Unexpected(format!("a bulk replay's {what}"));
    let ended = ["done", "suppressed", "dead", "cancelled"].into_iter().zip(20..);
    Ok(BulkReplayRecord {
        id: BulkReplayId(row.get(0)?),
        state: BulkState::parse(&state).ok_or_else(|| unexpected("state"))?,
        selection: serde_json::from_str(&selection).map_err(|_| unexpected("selection"))?,
        actor: row.get(3)?,
        reason: row.get(4)?,
        override_reason: row.get(5)?,
        version: row.get(6)?,
        digest: Digest::from_bytes(row.get(7)?),
        rate: rate(row.get(8)?)?,
        has_probe: probe != "none",
        is_probing: matches!(&*probe, "wanted" | "out"),
        started_at_ms: row.get(10)?,
        stopped_at_ms: row.get(11)?,
        stopped_by: row.get(12)?,
        stop_reason: row.get(13)?,
        done_at_ms: row.get(14)?,
        left_out_closed: row.get(15)?,
        left_out_elsewhere: row.get(16)?,
        members: row.get(17)?,
        replayed: row.get(18)?,
        refused: row.get(19)?,
        ended: ended.map(|(state, column)| Ok((state, row.get(column)?))).collect::<Result<_, StoreError>>()?,
        refusals: Vec::new(),
    })
}

fn rate(text: Option<String>) -> Result<Option<Rate>, StoreError> {
    let parse =
        |text: String| text.parse().map_err(|_| StoreError::Unexpected(format!("a bulk replay's rate {text:?}")));
    text.map(parse).transpose()
}

fn refusals(connection: &Connection, id: BulkReplayId) -> Result<Vec<(String, u64, String)>, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT code, count(*), min(detail) FROM bulk_replay_members
         WHERE bulk_replay_id = ?1 AND state = 'refused' GROUP BY code ORDER BY code",
    )?;
    let rows = statement.query_map([id.0], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn run(connection: &Connection, id: i64, members_max: usize) -> Result<BulkRun, StoreError> {
    let (kind, text, probe, result, going_since_ms): (String, Option<String>, String, Option<String>, i64) = connection
        .prepare_cached("SELECT kind, rate, probe, probe_result, going_since FROM bulk_replays WHERE id = ?1")?
        .query_row([id], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?)))?;
    let pending = connection
        .prepare_cached(
            "SELECT dead_letter_id FROM bulk_replay_members WHERE bulk_replay_id = ?1 AND state = 'pending'
             ORDER BY dead_letter_id LIMIT ?2",
        )?
        .query_map([id, i64::try_from(members_max).unwrap_or(i64::MAX)], |row| row.get(0).map(DeadLetterId))?
        .collect::<Result<_, _>>()?;
    let probe = match (&*probe, result.as_deref().and_then(JobState::parse)) {
        ("wanted", _) => Probe::Wanted,
        ("out", None) => Probe::Out,
        ("out", Some(state)) => Probe::Ended(state),
        _ => Probe::NotNeeded,
    };
    let kind = Kind::new(kind).map_err(|error| StoreError::Unexpected(error.to_string()))?;
    Ok(BulkRun { id: BulkReplayId(id), kind, going_since_ms, rate: rate(text)?, probe, pending })
}
