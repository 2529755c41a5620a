//! Cancelling: a job that does not run ends at once, a running one is marked and its guest stopped by the caller. It
//! never touches a job that has ended.

use leasehold_domain::{FencingToken, JobId, JobState, TimestampMs};
use rusqlite::{Connection, OptionalExtension};

use crate::{Store, StoreError, audit, effects, enqueue, lanes, rows, settle, writer::Urgency};

/// What became of a request to cancel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cancelled {
    /// It has ended as cancelled.
    Now,
    /// It runs; its guest is to be stopped, and it ends as cancelled then.
    WhenStopped(FencingToken),
    /// It had ended before.
    AlreadyEnded(JobState),
    /// There is no such job.
    NotFound,
}

impl Store {
    /// Cancels a job, in one transaction with its audit row.
    pub async fn cancel(&self, job: JobId, actor: &str, now_ms: TimestampMs) -> Result<Cancelled, StoreError> {
        self.note_time(now_ms);
        let actor = actor.to_owned();
        self.shared.writer.call(Urgency::Usual, move |connection| cancel(connection, job, &actor, now_ms)).await
    }
}

fn cancel(connection: &Connection, job: JobId, actor: &str, now_ms: TimestampMs) -> Result<Cancelled, StoreError> {
    let row: Option<(i64, u32, String, Option<String>)> = connection
        .prepare_cached("SELECT state, attempt, kind, lane FROM jobs WHERE id = ?1")?
        .query_row([job.0], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))
        .optional()?;
    let Some((state, attempt, kind, lane)) = row else { return not_live(connection, job) };
    audit::write(connection, now_ms, actor, "job.cancel", &job.to_string(), &serde_json::json!({ "kind": kind }))?;
    if state == rows::LEASED {
        connection.prepare_cached("UPDATE jobs SET cancel_requested = 1 WHERE id = ?1")?.execute([job.0])?;
        return Ok(Cancelled::WhenStopped(rows::token(job.0, attempt)));
    }
    effects::forget(connection, job.0)?;
    settle::end(connection, job.0, JobState::Cancelled, now_ms, Some("cancelled before it ran"), None)?;
    lanes::let_go(connection, &kind, lane.as_deref(), 1)?;
    Ok(Cancelled::Now)
}

fn not_live(connection: &Connection, job: JobId) -> Result<Cancelled, StoreError> {
    let ended = connection.prepare_cached("SELECT 1 FROM ended_jobs WHERE id = ?1")?.exists([job.0])?;
    if ended { Ok(Cancelled::AlreadyEnded(enqueue::state_of(connection, job.0)?)) } else { Ok(Cancelled::NotFound) }
}
