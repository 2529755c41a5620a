//! Retention of ended jobs, by age and by number, in bounded batches. It never touches a dead letter that is open, the
//! audit log, or a job that has not ended; keys and steps expire by time alone.

use leasehold_domain::TimestampMs;
use rusqlite::params;

use crate::{Store, StoreError, pages, transaction::Transaction, writer::Urgency};

/// How many jobs one transaction trims or forgets.
const BATCH: usize = 500;

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
        // Trimmed first, since only what is trimmed is forgotten.
        let trim_before_ms = retention.trim_ended_before_ms.max(retention.forget_ended_before_ms);
        self.shared
            .writer
            .call(Urgency::Usual, move |transaction| {
                let untrimmed = "SELECT id FROM ended_jobs WHERE state <> 'dead' AND trimmed = 0";
                let by_age = for_each_oldest(
                    transaction,
                    &format!("{untrimmed} AND ended_at < ?1 ORDER BY ended_at"),
                    [trim_before_ms],
                    BATCH,
                    trim,
                )?;
                let over = transaction.untrimmed()?.saturating_sub(retention.ended_jobs_max);
                let over = usize::try_from(over).unwrap_or(BATCH).min(BATCH);
                let by_number =
                    for_each_oldest(transaction, &format!("{untrimmed} ORDER BY ended_at"), [], over, trim)?;
                let forgotten = for_each_oldest(
                    transaction,
                    "SELECT id FROM ended_jobs WHERE state <> 'dead' AND trimmed = 1 AND ended_at < ?1 ORDER BY ended_at",
                    [retention.forget_ended_before_ms],
                    BATCH,
                    forget,
                )?;
                // What was paged is looked at as long as ended jobs are.
                let pages = pages::forget_sent(transaction, retention.trim_ended_before_ms, BATCH)?;
                Ok([forgotten, by_age, by_number, pages].contains(&BATCH))
            })
            .await
    }

    /// How many pages of the file are not used.
    pub async fn free_pages(&self) -> Result<u32, StoreError> {
        self.ask_for_daemon(|connection| Ok(connection.query_row("PRAGMA freelist_count", [], |row| row.get(0))?)).await
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
    transaction: &Transaction<'_>,
    sql: &str,
    parameters: impl rusqlite::Params,
    max: usize,
    act: fn(&Transaction<'_>, i64) -> Result<(), StoreError>,
) -> Result<usize, StoreError> {
    let jobs: Vec<i64> = transaction
        .prepare_cached(sql)?
        .query_map(parameters, |row| row.get(0))?
        .take(max)
        .collect::<Result<_, _>>()?;
    jobs.iter().try_for_each(|job| act(transaction, *job))?;
    Ok(jobs.len())
}

/// Lets go of what an ended job is looked at for. Its steps stay as long as its key.
fn trim(transaction: &Transaction<'_>, job: i64) -> Result<(), StoreError> {
    transaction.prepare_cached("DELETE FROM attempts WHERE job_id = ?1")?.execute([job])?;
    transaction.prepare_cached("DELETE FROM job_notes WHERE job_id = ?1")?.execute([job])?;
    transaction
        .prepare_cached("UPDATE ended_jobs SET trimmed = 1, extras_sealed = x'', result_sealed = NULL WHERE id = ?1")?
        .execute([job])?;
    transaction.count_untrimmed(-1);
    Ok(())
}

/// Forgets one ended job, which was trimmed before: its key first, since nothing else names the key.
fn forget(transaction: &Transaction<'_>, job: i64) -> Result<(), StoreError> {
    transaction
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
        transaction.prepare_cached(sql)?.execute(params![job])?;
    }
    Ok(())
}
