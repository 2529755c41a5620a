//! Cancelling: a job that does not run ends at once, a running one is marked and its guest stopped by the caller. It
//! never touches a job that has ended.

use leasehold_domain::{FencingToken, JobId, JobState, TimestampMs};
use rusqlite::{Connection, OptionalExtension};

use crate::{
    Store, StoreError, audit, effects, enqueue, lanes,
    rows::{self, Standing},
    settle::{self, Ending},
    transaction::Transaction,
    writer::Urgency,
};

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
        self.shared.writer.call(Urgency::Usual, move |transaction| cancel(transaction, job, &actor, now_ms)).await
    }
}

/// A job that has not ended.
struct LiveRow {
    from: Standing,
    attempt: u32,
    kind: String,
    lane: Option<String>,
    replay_id: Option<i64>,
}

fn cancel(
    transaction: &Transaction<'_>,
    job: JobId,
    actor: &str,
    now_ms: TimestampMs,
) -> Result<Cancelled, StoreError> {
    let row: Option<LiveRow> = transaction
        .prepare_cached("SELECT state, held, attempt, kind, lane, replay_id FROM jobs WHERE id = ?1")?
        .query_row([job.0], |row| {
            let from = Standing::of(row.get(0)?, row.get(1)?);
            Ok(LiveRow { from, attempt: row.get(2)?, kind: row.get(3)?, lane: row.get(4)?, replay_id: row.get(5)? })
        })
        .optional()?;
    let Some(LiveRow { from, attempt, kind, lane, replay_id }) = row else { return not_live(transaction, job) };
    audit::write(transaction, now_ms, actor, "job.cancel", &job.to_string(), &serde_json::json!({ "kind": kind }))?;
    if from == Standing::Leased {
        transaction.prepare_cached("UPDATE jobs SET cancel_requested = 1 WHERE id = ?1")?.execute([job.0])?;
        return Ok(Cancelled::WhenStopped(rows::token(job.0, attempt)));
    }
    effects::forget(transaction, job.0)?;
    let ending = Ending { id: job.0, kind: &kind, from, replay_id };
    settle::end(transaction, ending, JobState::Cancelled, now_ms, Some("cancelled before it ran"), None)?;
    lanes::let_go(transaction, &kind, lane.as_deref(), 1)?;
    Ok(Cancelled::Now)
}

fn not_live(connection: &Connection, job: JobId) -> Result<Cancelled, StoreError> {
    let ended = connection.prepare_cached("SELECT 1 FROM ended_jobs WHERE id = ?1")?.exists([job.0])?;
    if ended { Ok(Cancelled::AlreadyEnded(enqueue::state_of(connection, job.0)?)) } else { Ok(Cancelled::NotFound) }
}
