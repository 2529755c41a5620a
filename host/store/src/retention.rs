//! Retention of ended jobs, by age and by number, in bounded batches. It never touches a dead letter that is open, the
//! audit log, or a job that has not ended; keys and steps expire by time alone.

use leasehold_domain::TimestampMs;
use rusqlite::{Connection, params};

use crate::{Store, StoreError, pages, writer::Urgency};

/// How many jobs one transaction trims or forgets.
const BATCH: i64 = 500;

/// What is let go of ended jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Jobs that ended before this are forgotten whole, and their keys may be used again.
    pub forget_ended_before_ms: TimestampMs,
    /// Jobs that ended before this lose their attempts, notes, key, metadata and result.
    pub trim_ended_before_ms: TimestampMs,
    /// So do the oldest ones beyond this number.
    pub ended_jobs_max: u64,
}

impl Store {
    /// Carries retention out for one batch of jobs. Answers whether there may be more.
    pub async fn retain(&self, retention: Retention) -> Result<bool, StoreError> {
        self.shared
            .writer
            .call(Urgency::Usual, move |connection| {
                let forgotten = for_each_oldest(
                    connection,
                    "SELECT id FROM ended_jobs WHERE state <> 'dead' AND ended_at < ?1 ORDER BY ended_at LIMIT ?2",
                    [retention.forget_ended_before_ms, BATCH],
                    forget,
                )?;
                let untrimmed = "SELECT id FROM ended_jobs WHERE state <> 'dead' AND trimmed = 0";
                let by_age = for_each_oldest(
                    connection,
                    &format!("{untrimmed} AND ended_at < ?1 ORDER BY ended_at LIMIT ?2"),
                    [retention.trim_ended_before_ms, BATCH],
                    trim,
                )?;
                let over = count_untrimmed(connection)?
                    .saturating_sub(i64::try_from(retention.ended_jobs_max).unwrap_or(i64::MAX))
                    .clamp(0, BATCH);
                let by_number =
                    for_each_oldest(connection, &format!("{untrimmed} ORDER BY ended_at LIMIT ?1"), [over], trim)?;
                // What was paged is looked at as long as ended jobs are.
                let pages = pages::forget_sent(connection, retention.trim_ended_before_ms, BATCH)?;
                Ok([forgotten, by_age, by_number, i64::try_from(pages).unwrap_or(BATCH)].contains(&BATCH))
            })
            .await
    }

    /// Gives pages that are no longer used back to the file system, a bounded number at a time.
    pub async fn give_back_pages(&self, pages: u32) -> Result<(), StoreError> {
        self.shared
            .writer
            .call(Urgency::Usual, move |connection| {
                let mut statement = connection.prepare(&format!("PRAGMA incremental_vacuum({pages})"))?;
                let mut rows = statement.query([])?;
                while rows.next()?.is_some() {}
                Ok(())
            })
            .await
    }
}

fn for_each_oldest(
    connection: &Connection,
    sql: &str,
    parameters: impl rusqlite::Params,
    act: fn(&Connection, i64) -> Result<(), StoreError>,
) -> Result<i64, StoreError> {
    let jobs: Vec<i64> =
        connection.prepare_cached(sql)?.query_map(parameters, |row| row.get(0))?.collect::<Result<_, _>>()?;
    jobs.iter().try_for_each(|job| act(connection, *job))?;
    Ok(i64::try_from(jobs.len()).unwrap_or(i64::MAX))
}

fn count_untrimmed(connection: &Connection) -> Result<i64, StoreError> {
    Ok(connection
        .prepare_cached("SELECT count(*) FROM ended_jobs WHERE state <> 'dead' AND trimmed = 0")?
        .query_row([], |row| row.get(0))?)
}

/// Lets go of what an ended job is looked at for. Its steps stay as long as its key.
fn trim(connection: &Connection, job: i64) -> Result<(), StoreError> {
    connection.prepare_cached("DELETE FROM attempts WHERE job_id = ?1")?.execute([job])?;
    connection.prepare_cached("DELETE FROM job_notes WHERE job_id = ?1")?.execute([job])?;
    connection
        .prepare_cached("UPDATE ended_jobs SET trimmed = 1, extras_sealed = x'', result_sealed = NULL WHERE id = ?1")?
        .execute([job])?;
    Ok(())
}

/// Forgets one ended job: its key first, since nothing else names the key.
fn forget(connection: &Connection, job: i64) -> Result<(), StoreError> {
    connection
        .prepare_cached(
            "DELETE FROM job_keys WHERE (kind, key_digest) IN (
                 SELECT kind, key_digest FROM ended_jobs WHERE id = ?1 AND key_digest IS NOT NULL)",
        )?
        .execute([job])?;
    for sql in [
        "DELETE FROM attempts WHERE job_id = ?1",
        "DELETE FROM job_notes WHERE job_id = ?1",
        "DELETE FROM steps WHERE job_id = ?1",
        "DELETE FROM step_runs WHERE job_id = ?1",
        "DELETE FROM step_effects WHERE job_id = ?1",
        // A member that has not had its turn stays: the bulk replay that it waits in may be resumed.
        "DELETE FROM bulk_replay_members WHERE state <> 'pending'
             AND dead_letter_id IN (SELECT id FROM dead_letters WHERE job_id = ?1 AND state <> 'open')",
        "DELETE FROM replays WHERE job_id = ?1",
        "DELETE FROM dead_letters WHERE job_id = ?1 AND state <> 'open'",
        "DELETE FROM ended_jobs WHERE id = ?1",
    ] {
        connection.prepare_cached(sql)?.execute(params![job])?;
    }
    Ok(())
}
