//! Pages that are to be sent, were sent, or could not be yet. It never sends one.

use leasehold_domain::{Cause, DeadLetterId, IncidentId, TimestampMs};
use rusqlite::{Connection, Row, params};

use crate::{Store, StoreError, read::Page, writer::Urgency};

/// A page that tells somebody of dead letters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageRecord {
    /// The row.
    pub id: i64,
    /// What receivers tell repetitions by.
    pub token: String,
    /// The kind.
    pub kind: String,
    /// The error class.
    pub error_class: String,
    /// Why the last dead letter died.
    pub cause: Cause,
    /// The version that it died on.
    pub version: Option<String>,
    /// That dead letter.
    pub dead_letter: DeadLetterId,
    /// How many dead letters have arrived, this one included.
    pub arrivals: u64,
    /// When the first of them did.
    pub first_at_ms: TimestampMs,
    /// When the last did.
    pub made_at_ms: TimestampMs,
    /// The last incident that was closed for them.
    pub previous_incident: Option<IncidentId>,
    /// The incident that was opened upon it.
    pub incident: Option<IncidentId>,
    /// When it is to be tried again, while it is not sent.
    pub due_at_ms: TimestampMs,
    /// How many tries have failed.
    pub failures: u32,
    /// Why the last one did.
    pub last_error: Option<String>,
    /// When it was sent.
    pub sent_at_ms: Option<TimestampMs>,
    /// `webhook`, `command`, or `log` when neither is configured.
    pub sent_by: Option<String>,
}

/// How sending a page went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PageEnd {
    /// It was taken.
    Sent {
        /// By what.
        by: &'static str,
    },
    /// It was not, and is tried again.
    Failed {
        /// Why.
        error: String,
        /// When it is tried again.
        due_at_ms: TimestampMs,
    },
}

const COLUMNS: &str = "id, token, kind, error_class, cause, version, dead_letter_id, arrivals, first_at, made_at,
    previous_incident_id, incident_id, due_at, failures, last_error, sent_at, sent_by";

impl Store {
    /// The pages that are not sent, the one that is due first before the others.
    pub async fn unsent_pages(&self, max: usize) -> Result<Vec<PageRecord>, StoreError> {
        self.ask_for_daemon(move |connection| {
            let tail = "WHERE sent_at IS NULL ORDER BY due_at, id LIMIT ?1";
            select(connection, tail, [i64::try_from(max).unwrap_or(i64::MAX)])
        })
        .await
    }

    /// Records how sending a page went.
    pub async fn end_page(&self, id: i64, end: PageEnd, now_ms: TimestampMs) -> Result<(), StoreError> {
        self.note_time(now_ms);
        self.shared
            .writer
            .call(Urgency::Usual, move |connection| {
                match &end {
                    PageEnd::Sent { by } => connection
                        .prepare_cached("UPDATE pages SET sent_at = ?2, sent_by = ?3, last_error = NULL WHERE id = ?1")?
                        .execute(params![id, now_ms, by])?,
                    PageEnd::Failed { error, due_at_ms } => connection
                        .prepare_cached(
                            "UPDATE pages SET failures = failures + 1, last_error = ?2, due_at = ?3 WHERE id = ?1",
                        )?
                        .execute(params![id, error, due_at_ms])?,
                };
                Ok(())
            })
            .await
    }

    /// Pages, the latest first, from before one.
    pub async fn pages(&self, before: Option<i64>, max: usize) -> Result<Page<PageRecord>, StoreError> {
        self.ask(move |connection| {
            let parameters = [before.unwrap_or(i64::MAX), i64::try_from(max).unwrap_or(i64::MAX)];
            let pages = select(connection, "WHERE id < ?1 ORDER BY id DESC LIMIT ?2", parameters)?;
            Ok(Page::new(pages, max, |page| page.id))
        })
        .await
    }
}

/// The pages upon which an incident was opened, the latest first.
pub(crate) fn of_incident(connection: &Connection, incident: i64, max: i64) -> Result<Vec<PageRecord>, StoreError> {
    select(connection, "WHERE incident_id = ?1 ORDER BY id DESC LIMIT ?2", [incident, max])
}

/// An incident was opened upon the pages of what it covers that no other one answered.
pub(crate) fn answer(connection: &Connection, incident: i64, kind: &str, class: &str) -> Result<usize, StoreError> {
    Ok(connection
        .prepare_cached(
            "UPDATE pages SET incident_id = ?1 WHERE kind = ?2 AND (?3 = '' OR error_class = ?3) AND incident_id IS NULL",
        )?
        .execute(params![incident, kind, class])?)
}

/// Forgets pages that were sent before a time, a bounded number at once. Answers how many.
pub(crate) fn forget_sent(connection: &Connection, before_ms: TimestampMs, max: usize) -> Result<usize, StoreError> {
    Ok(connection
        .prepare_cached(
            "DELETE FROM pages WHERE id IN (SELECT id FROM pages WHERE sent_at < ?1 ORDER BY sent_at LIMIT ?2)",
        )?
        .execute(params![before_ms, max])?)
}

fn select(
    connection: &Connection,
    tail: &str,
    parameters: impl rusqlite::Params,
) -> Result<Vec<PageRecord>, StoreError> {
    let mut statement = connection.prepare_cached(&format!("SELECT {COLUMNS} FROM pages {tail}"))?;
    let rows = statement.query_map(parameters, |row| Ok(page(row)))?;
    rows.map(|row| row?).collect()
}

fn page(row: &Row<'_>) -> Result<PageRecord, StoreError> {
    let cause: String = row.get(4)?;
    Ok(PageRecord {
        id: row.get(0)?,
        token: row.get(1)?,
        kind: row.get(2)?,
        error_class: row.get(3)?,
        cause: Cause::parse(&cause).ok_or_else(|| StoreError::Unexpected(format!("cause {cause:?}")))?,
        version: row.get(5)?,
        dead_letter: DeadLetterId(row.get(6)?),
        arrivals: row.get(7)?,
        first_at_ms: row.get(8)?,
        made_at_ms: row.get(9)?,
        previous_incident: row.get::<_, Option<i64>>(10)?.map(IncidentId),
        incident: row.get::<_, Option<i64>>(11)?.map(IncidentId),
        due_at_ms: row.get(12)?,
        failures: row.get(13)?,
        last_error: row.get(14)?,
        sent_at_ms: row.get(15)?,
        sent_by: row.get(16)?,
    })
}
