//! Jobs that are scheduled for a time of the wall clock. They stand outside of the index of due jobs until the wall shows
//! their time, wherever it was stepped meanwhile; from then on they are jobs like any other. What the wall shows is a
//! parameter: nothing here reads it.

use leasehold_domain::TimestampMs;
use rusqlite::Connection;

use crate::{Store, StoreError, writer::Urgency};

/// How many jobs one transaction lets go, so that no heartbeat waits long behind it.
const BATCH: i64 = 1_000;

impl Store {
    /// The first wall time that a job waits for.
    pub async fn next_wall_ms(&self) -> Result<Option<TimestampMs>, StoreError> {
        self.ask_for_daemon(|connection| {
            Ok(connection
                .prepare_cached("SELECT min(run_at_wall) FROM jobs WHERE run_at_wall IS NOT NULL")?
                .query_row([], |row| row.get(0))?)
        })
        .await
    }

    /// Lets go the jobs whose wall time has come, a bounded number. Answers whether there may be more.
    pub async fn reach_wall_time(&self, wall_ms: TimestampMs, now_ms: TimestampMs) -> Result<bool, StoreError> {
        self.note_time(now_ms);
        self.shared
            .writer
            .call(Urgency::Usual, move |connection| Ok(reach(connection, wall_ms, now_ms)? == BATCH))
            .await
    }
}

/// A job became visible when the wall showed its time, as far as the queue's clock can tell: not before its enqueue, and
/// not after now. Its place in line moves with that.
fn reach(connection: &Connection, wall_ms: TimestampMs, now_ms: TimestampMs) -> Result<i64, StoreError> {
    let reached = connection
        .prepare_cached(&format!(
            "UPDATE jobs SET run_at_wall = NULL,
                             visible_at = min(?2, max(enqueued_at, run_at_wall - ?1 + ?2)),
                             place = place - visible_at + min(?2, max(enqueued_at, run_at_wall - ?1 + ?2))
             WHERE id IN (SELECT id FROM jobs WHERE run_at_wall <= ?1 ORDER BY run_at_wall, id LIMIT {BATCH})"
        ))?
        .execute([wall_ms, now_ms])?;
    Ok(i64::try_from(reached).unwrap_or(i64::MAX))
}
