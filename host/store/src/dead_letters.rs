//! Dead letters as operators see them, and discarding one. Reading one never opens the sealed original.

use std::collections::BTreeMap;

use std::sync::Arc;

use leasehold_domain::{Cause, DeadLetterId, Digest, JobId, TimestampMs};
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde_json::json;

use crate::{
    Store, StoreError, audit,
    keys::Keys,
    notes::{self, NoteRecord},
    originals::shown_digest,
    read::{AttemptRecord, Page, StepRecord, StepRunRecord, attempts_of, step_runs_of, steps_of},
    replay_records::{ReplayRecord, replays_of},
    transaction::Transaction,
    writer::Urgency,
};

/// Which dead letters to list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeadLetterFilter {
    /// Of this kind.
    pub kind: Option<String>,
    /// Of this cause.
    pub cause: Option<Cause>,
    /// Of this error class.
    pub error_class: Option<String>,
    /// `open`, `replayed` or `discarded`.
    pub state: Option<String>,
    /// Before this one.
    pub before: Option<i64>,
}

/// One dead letter in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetterSummary {
    /// Its id.
    pub id: DeadLetterId,
    /// The job that died.
    pub job: JobId,
    /// The kind.
    pub kind: String,
    /// The lane.
    pub lane: Option<String>,
    /// When it died.
    pub died_at_ms: TimestampMs,
    /// Why.
    pub cause: Cause,
    /// The error class.
    pub error_class: String,
    /// What went wrong, redacted.
    pub message: String,
    /// The version that it died on.
    pub version: Option<String>,
    /// That version's component.
    pub digest: Option<Digest>,
    /// The attempt that it died with.
    pub attempt: u32,
    /// `open`, `replayed` or `discarded`.
    pub state: String,
}

/// One dead letter with all that is known of its job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    /// What a list shows of it.
    pub summary: DeadLetterSummary,
    /// The payload, masked.
    pub view: String,
    /// The key, masked.
    pub masked_key: String,
    /// Whether the sealed original is kept.
    pub has_original: bool,
    /// The digest of the payload that it died with, comparable within the job alone. Absent without the sealing key, and
    /// in dead letters from before it was kept.
    pub payload_digest: Option<String>,
    /// When it was replayed or discarded.
    pub closed_at_ms: Option<TimestampMs>,
    /// By whom.
    pub closed_by: Option<String>,
    /// The job's attempts.
    pub attempts: Vec<AttemptRecord>,
    /// The job's steps.
    pub steps: Vec<StepRecord>,
    /// The runs of its steps.
    pub step_runs: Vec<StepRunRecord>,
    /// The job's replays.
    pub replays: Vec<ReplayRecord>,
    /// What other jobs noted on the job.
    pub notes: Vec<NoteRecord>,
}

/// What became of a request to discard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Discarded {
    /// It is discarded.
    Now,
    /// It was replayed or discarded before.
    NotOpen {
        /// Where it stands.
        state: String,
    },
    /// There is no such dead letter.
    NotFound,
}

const COLUMNS: &str = "id, job_id, kind, lane, died_at, cause, error_class, message, version, digest, attempt, state";

impl Store {
    /// Dead letters, the latest first.
    pub async fn dead_letters(
        &self,
        filter: DeadLetterFilter,
        max: usize,
    ) -> Result<Page<DeadLetterSummary>, StoreError> {
        self.ask(move |connection| list(connection, &filter, max)).await
    }

    /// How many dead letters of each kind nobody has dealt with.
    pub async fn open_letters(&self) -> Result<BTreeMap<String, u64>, StoreError> {
        self.ask(|connection| {
            let mut statement =
                connection.prepare_cached("SELECT kind, sum(letters) FROM open_dead_letters GROUP BY kind")?;
            let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
        .await
    }

    /// One dead letter.
    pub async fn dead_letter(&self, id: DeadLetterId) -> Result<Option<DeadLetter>, StoreError> {
        let keys = Arc::clone(&self.shared.keys);
        self.ask(move |connection| show(connection, keys.get().ok(), id)).await
    }

    /// Discards a dead letter, in one transaction with its audit row. Its job ends as discarded.
    pub async fn discard(
        &self,
        id: DeadLetterId,
        actor: &str,
        reason: &str,
        now_ms: TimestampMs,
    ) -> Result<Discarded, StoreError> {
        let (actor, reason) = (actor.to_owned(), reason.to_owned());
        self.shared
            .writer
            .call(Urgency::Usual, move |connection| discard(connection, id, &actor, &reason, now_ms))
            .await
    }
}

fn list(connection: &Connection, filter: &DeadLetterFilter, max: usize) -> Result<Page<DeadLetterSummary>, StoreError> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM dead_letters
         WHERE id < ?1 AND (?2 IS NULL OR kind = ?2) AND (?3 IS NULL OR cause = ?3)
           AND (?4 IS NULL OR error_class = ?4) AND (?5 IS NULL OR state = ?5)
         ORDER BY id DESC LIMIT ?6"
    ))?;
    let rows = statement.query_map(
        params![
            filter.before.unwrap_or(i64::MAX),
            filter.kind,
            filter.cause.map(Cause::as_str),
            filter.error_class,
            filter.state,
            i64::try_from(max).unwrap_or(i64::MAX)
        ],
        |row| Ok(summary(row)),
    )?;
    let summaries = rows.map(|row| row?).collect::<Result<Vec<_>, StoreError>>()?;
    Ok(Page::new(summaries, max, |summary| summary.id.0))
}

fn summary(row: &Row<'_>) -> Result<DeadLetterSummary, StoreError> {
    let cause: String = row.get(5)?;
    Ok(DeadLetterSummary {
        id: DeadLetterId(row.get(0)?),
        job: JobId(row.get(1)?),
        kind: row.get(2)?,
        lane: row.get(3)?,
        died_at_ms: row.get(4)?,
        cause: Cause::parse(&cause).ok_or_else(|| StoreError::Unexpected(format!("cause {cause:?}")))?,
        error_class: row.get(6)?,
        message: row.get(7)?,
        version: row.get(8)?,
        digest: row.get::<_, Option<[u8; 32]>>(9)?.map(Digest::from_bytes),
        attempt: row.get(10)?,
        state: row.get(11)?,
    })
}

fn show(connection: &Connection, keys: Option<&Keys>, id: DeadLetterId) -> Result<Option<DeadLetter>, StoreError> {
    let found = connection
        .prepare_cached(&format!(
            "SELECT {COLUMNS}, view, masked_key, payload_sealed IS NOT NULL, closed_at, closed_by, payload_digest
             FROM dead_letters WHERE id = ?1"
        ))?
        .query_row([id.0], |row| {
            let rest = (row.get(12)?, row.get(13)?, row.get(14)?, row.get(15)?, row.get(16)?, row.get(17)?);
            Ok((summary(row), rest))
        })
        .optional()?;
    let Some((summary, rest)) = found else { return Ok(None) };
    let (view, masked_key, has_original, closed_at_ms, closed_by, digest): (_, _, _, _, _, Option<Vec<u8>>) = rest;
    let summary = summary?;
    let job = summary.job;
    Ok(Some(DeadLetter {
        summary,
        view,
        masked_key,
        has_original,
        payload_digest: keys.zip(digest).map(|(keys, digest)| shown_digest(keys, job.0, &digest)),
        closed_at_ms,
        closed_by,
        attempts: attempts_of(connection, job)?,
        steps: steps_of(connection, job)?,
        step_runs: step_runs_of(connection, job)?,
        replays: replays_of(connection, keys, job)?,
        notes: notes::of_job(connection, job)?,
    }))
}

/// The stable code and the words for a dead letter that is open no more.
pub fn not_open(id: DeadLetterId, state: &str) -> (String, String) {
    (format!("already_{state}"), format!("dead letter {id} is {state} already"))
}

pub(crate) fn discard(
    transaction: &Transaction<'_>,
    id: DeadLetterId,
    actor: &str,
    reason: &str,
    now_ms: TimestampMs,
) -> Result<Discarded, StoreError> {
    let found: Option<(i64, String)> = transaction
        .prepare_cached("SELECT job_id, state FROM dead_letters WHERE id = ?1")?
        .query_row([id.0], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((job, state)) = found else { return Ok(Discarded::NotFound) };
    if state != "open" {
        return Ok(Discarded::NotOpen { state });
    }
    close(transaction, id, "discarded", false, actor, now_ms)?;
    transaction
        .prepare_cached("UPDATE ended_jobs SET state = 'discarded', ended_at = ?2 WHERE id = ?1")?
        .execute([job, now_ms])?;
    transaction.count_untrimmed(1);
    crate::effects::forget(transaction, job)?;
    audit::write(
        transaction,
        now_ms,
        actor,
        "dead_letter.discard",
        &id.to_string(),
        &json!({ "job": job, "reason": reason }),
    )?;
    Ok(Discarded::Now)
}

/// Closes a dead letter. Its original goes with the replayed job, or with the job that is given up; it stays only when
/// the job goes on with another payload.
pub(crate) fn close(
    connection: &Connection,
    id: DeadLetterId,
    state: &str,
    keep_original: bool,
    actor: &str,
    now_ms: TimestampMs,
) -> Result<(), StoreError> {
    connection
        .prepare_cached(
            "UPDATE dead_letters SET state = ?2, closed_at = ?3, closed_by = ?4,
                 payload_sealed = CASE ?5 WHEN 1 THEN payload_sealed END
             WHERE id = ?1",
        )?
        .execute(params![id.0, state, now_ms, actor, keep_original])?;
    Ok(())
}

pub(crate) fn of_job(connection: &Connection, job: JobId) -> Result<Vec<DeadLetterSummary>, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM dead_letters WHERE job_id = ?1 ORDER BY id DESC");
    let mut statement = connection.prepare_cached(&sql)?;
    let rows = statement.query_map([job.0], |row| Ok(summary(row)))?;
    rows.map(|row| row?).collect()
}
