//! Notes on jobs' records, made by other jobs with their success. A note never changes the job that it is on, and none is
//! made on a job that is not there, is forgotten or is of another kind: whoever made it has succeeded all the same.

use leasehold_domain::{JobId, Note, TimestampMs};
use rusqlite::{Connection, OptionalExtension, params};

use crate::{StoreError, effects::MadeBy, keys::Keys};

/// How many notes a job's record holds at most.
const NOTES_MAX: i64 = 100;

/// A note as it is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoteRecord {
    /// What it is about.
    pub class: String,
    /// For a person, redacted.
    pub text: String,
    /// When it was made.
    pub at_ms: TimestampMs,
    /// The job with whose success it was made.
    pub by_job: JobId,
    /// That job's kind.
    pub by_kind: String,
}

/// Makes a note, once for its class and key. Its text is redacted already.
pub(crate) fn make(
    connection: &Connection,
    keys: &Keys,
    note: &Note,
    by: MadeBy<'_>,
    now_ms: TimestampMs,
) -> Result<(), StoreError> {
    if let Some(why) = refusal(connection, note)? {
        tracing::warn!(job = %note.job, class = %note.class, by_job = by.job, why, "a note was left out");
        return Ok(());
    }
    let digest = keys.digest("note key", &[note.class.as_str().as_bytes(), note.key.as_bytes()]);
    connection
        .prepare_cached(
            "INSERT INTO job_notes (job_id, class, key_digest, text, noted_at, by_job, by_kind)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (job_id, class, key_digest) DO NOTHING",
        )?
        .execute(params![note.job.0, note.class.as_str(), digest, note.text, now_ms, by.job, by.kind])?;
    Ok(())
}

/// Why no note can be made, if so.
fn refusal(connection: &Connection, note: &Note) -> Result<Option<&'static str>, StoreError> {
    // A job that has ended and was trimmed has no record any more to put a note on.
    let kind: Option<String> = connection
        .prepare_cached(
            "SELECT kind FROM jobs WHERE id = ?1
             UNION ALL SELECT kind FROM ended_jobs WHERE id = ?1 AND trimmed = 0",
        )?
        .query_row([note.job.0], |row| row.get(0))
        .optional()?;
    let Some(kind) = kind else { return Ok(Some("there is no such job, or no more")) };
    if kind != note.kind.as_str() {
        return Ok(Some("the job is of another kind"));
    }
    let notes: i64 = connection
        .prepare_cached("SELECT count(*) FROM job_notes WHERE job_id = ?1")?
        .query_row([note.job.0], |row| row.get(0))?;
    Ok((notes >= NOTES_MAX).then_some("the job's record holds as many notes as it may"))
}

/// A job's notes, the first one first.
pub(crate) fn of_job(connection: &Connection, job: JobId) -> Result<Vec<NoteRecord>, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT class, text, noted_at, by_job, by_kind FROM job_notes WHERE job_id = ?1 ORDER BY noted_at, class",
    )?;
    let rows = statement.query_map([job.0], |row| {
        Ok(NoteRecord {
            class: row.get(0)?,
            text: row.get(1)?,
            at_ms: row.get(2)?,
            by_job: JobId(row.get(3)?),
            by_kind: row.get(4)?,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}
