//! Leases that ran out, leases of a process that is gone, and when the next thing is due. It finds them and decides
//! nothing: an expired attempt goes through the same decision and settlement as any other.

use leasehold_domain::{FencingToken, Kind, TimestampMs};
use rusqlite::{Connection, Row};

use crate::{Store, StoreError, rows::token, writer::Urgency};

/// A leased job as the one that has to decide about it sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeasedJob {
    /// The token of its last attempt.
    pub token: FencingToken,
    /// Its kind.
    pub kind: Kind,
    /// How many attempts have counted.
    pub attempts_used: u32,
    /// How many times running the host has given the attempt back.
    pub releases_running: u32,
    /// Whether somebody asked for it to be cancelled.
    pub cancel_requested: bool,
    /// The payload's media type.
    pub content_type: String,
    /// How many unclean stops in a row it was running at before this attempt.
    pub unclean_stops: u32,
}

/// A lease that ran out.
pub type ExpiredLease = LeasedJob;

const COLUMNS: &str =
    "id, attempt, kind, attempts_used, releases_running, cancel_requested, content_type, unclean_stops";

impl Store {
    /// Leases that have run out, the oldest first. Heartbeats and settlements that wait are applied before, but for those that
    /// are left over when a transaction's time is up: what settles such a lease comes behind them.
    pub async fn expired_leases(&self, now_ms: TimestampMs, max: usize) -> Result<Vec<ExpiredLease>, StoreError> {
        self.note_time(now_ms);
        self.shared
            .writer
            .call(Urgency::Usual, move |connection| {
                let expired = "WHERE state = 2 AND lease_expires_at <= ?1 ORDER BY lease_expires_at";
                leased(connection, &format!("SELECT {COLUMNS} FROM jobs {expired}"), [now_ms], max)
            })
            .await
    }

    /// All leases under which an attempt is open. At a start they belong to a process that is gone, since only one can
    /// own the database. A job that was handed to the reaper has no open attempt: nothing ran under its lease.
    pub async fn leases(&self) -> Result<Vec<LeasedJob>, StoreError> {
        self.ask_for_daemon(|connection| {
            leased(
                connection,
                &format!(
                    "SELECT {COLUMNS} FROM jobs WHERE state = 2 AND EXISTS (
                         SELECT 1 FROM attempts WHERE job_id = jobs.id AND number = jobs.attempt AND ended_at IS NULL)
                     ORDER BY lease_expires_at"
                ),
                [],
                usize::MAX,
            )
        })
        .await
    }

    /// When the first of the leases runs out that are to run out after a time.
    pub async fn next_expiry_ms(&self, after_ms: TimestampMs) -> Result<Option<TimestampMs>, StoreError> {
        self.ask_for_daemon(move |connection| {
            Ok(connection
                .prepare_cached("SELECT min(lease_expires_at) FROM jobs WHERE state = 2 AND lease_expires_at > ?1")?
                .query_row([after_ms], |row| row.get(0))?)
        })
        .await
    }

    /// The first time at which a waiting job becomes visible or a cooldown ends. Jobs that wait for the wall clock are not
    /// among them.
    pub async fn next_visible_ms(&self) -> Result<Option<TimestampMs>, StoreError> {
        self.ask_for_daemon(|connection| {
            let mut earliest = None::<TimestampMs>;
            for sql in [
                "SELECT min(visible_at) FROM jobs WHERE state = 0 AND held = 0 AND run_at_wall IS NULL",
                "SELECT min(until) FROM lane_cooldowns",
            ] {
                let due: Option<TimestampMs> = connection.prepare_cached(sql)?.query_row([], |row| row.get(0))?;
                earliest = earliest.into_iter().chain(due).min();
            }
            Ok(earliest)
        })
        .await
    }
}

fn leased(
    connection: &Connection,
    sql: &str,
    parameters: impl rusqlite::Params,
    max: usize,
) -> Result<Vec<LeasedJob>, StoreError> {
    let mut statement = connection.prepare_cached(sql)?;
    let rows = statement.query_map(parameters, |row| Ok(leased_job(row)))?;
    rows.take(max).map(|row| row?).collect()
}

fn leased_job(row: &Row<'_>) -> Result<LeasedJob, StoreError> {
    let kind: String = row.get(2)?;
    Ok(LeasedJob {
        token: token(row.get(0)?, row.get(1)?),
        kind: Kind::new(kind).map_err(|error| StoreError::Unexpected(error.to_string()))?,
        attempts_used: row.get(3)?,
        releases_running: row.get(4)?,
        cancel_requested: row.get(5)?,
        content_type: row.get(6)?,
        unclean_stops: row.get(7)?,
    })
}
