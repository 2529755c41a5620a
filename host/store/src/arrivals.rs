//! Counts a dead letter as it arrives, in the transaction that writes it, and makes the page that it is worth. A kill
//! after the dead letter's commit loses neither the count nor the page, and one before it leaves neither. Replays and
//! discards never lower a count.

use leasehold_domain::{IncidentId, TimestampMs, incident::Arrivals};
use rusqlite::{Connection, OptionalExtension, params};

use crate::StoreError;

/// A dead letter as it arrives.
struct Arrival {
    dead_letter: i64,
    kind: String,
    error_class: String,
    cause: String,
    version: Option<String>,
    at_ms: TimestampMs,
}

/// Counts a dead letter that was just written on the open incident that covers it, or else pages when it is time to.
pub(crate) fn count(connection: &Connection, dead_letter: i64, page_after: u64) -> Result<(), StoreError> {
    let arrival = read(connection, dead_letter)?;
    if let Some(incident) = covering(connection, &arrival.kind, &arrival.error_class)? {
        return count_on_incident(connection, incident, &arrival);
    }
    let (before, first_at_ms) = uncovered(connection, &arrival)?;
    let (after, pages) = before.one_more(page_after);
    connection
        .prepare_cached(
            "INSERT INTO uncovered_arrivals (kind, error_class, arrivals, paged_at, first_at, last_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?5)
             ON CONFLICT (kind, error_class) DO UPDATE SET arrivals = ?3, paged_at = ?4, last_at = ?5",
        )?
        .execute(params![arrival.kind, arrival.error_class, after.count, after.paged_at, arrival.at_ms])?;
    if pages { make_page(connection, &arrival, after.count, first_at_ms) } else { Ok(()) }
}

fn read(connection: &Connection, dead_letter: i64) -> Result<Arrival, StoreError> {
    Ok(connection
        .prepare_cached("SELECT kind, error_class, cause, version, died_at FROM dead_letters WHERE id = ?1")?
        .query_row([dead_letter], |row| {
            Ok(Arrival {
                dead_letter,
                kind: row.get(0)?,
                error_class: row.get(1)?,
                cause: row.get(2)?,
                version: row.get(3)?,
                at_ms: row.get(4)?,
            })
        })?)
}

/// The open incident that covers a class of a kind: its own before the kind's.
pub(crate) fn covering(connection: &Connection, kind: &str, class: &str) -> Result<Option<IncidentId>, StoreError> {
    Ok(connection
        .prepare_cached(
            "SELECT id FROM incidents WHERE kind = ?1 AND error_class IN (?2, '') AND state = 'open'
             ORDER BY error_class DESC LIMIT 1",
        )?
        .query_row([kind, class], |row| row.get(0).map(IncidentId))
        .optional()?)
}

fn count_on_incident(connection: &Connection, incident: IncidentId, arrival: &Arrival) -> Result<(), StoreError> {
    connection
        .prepare_cached(
            "INSERT INTO incident_arrivals (incident_id, error_class, version, arrivals, first_at, last_at)
             VALUES (?1, ?2, ?3, 1, ?4, ?4)
             ON CONFLICT (incident_id, error_class, version) DO UPDATE SET arrivals = arrivals + 1, last_at = ?4",
        )?
        .execute(params![incident.0, arrival.error_class, arrival.version.as_deref().unwrap_or(""), arrival.at_ms])?;
    Ok(())
}

/// What has arrived before, and when the first of it did.
fn uncovered(connection: &Connection, arrival: &Arrival) -> Result<(Arrivals, TimestampMs), StoreError> {
    let found = connection
        .prepare_cached(
            "SELECT arrivals, paged_at, first_at FROM uncovered_arrivals WHERE kind = ?1 AND error_class = ?2",
        )?
        .query_row([&arrival.kind, &arrival.error_class], |row| {
            Ok((Arrivals { count: row.get(0)?, paged_at: row.get(1)? }, row.get(2)?))
        })
        .optional()?;
    Ok(found.unwrap_or((Arrivals::default(), arrival.at_ms)))
}

fn make_page(
    connection: &Connection,
    arrival: &Arrival,
    arrivals: u64,
    first_at_ms: TimestampMs,
) -> Result<(), StoreError> {
    connection
        .prepare_cached(
            "INSERT INTO pages (token, kind, error_class, cause, version, dead_letter_id, arrivals, first_at, made_at,
                                previous_incident_id, due_at)
             VALUES (lower(hex(randomblob(16))), ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8,
                     (SELECT max(id) FROM incidents WHERE kind = ?1 AND error_class IN (?2, '')), ?8)",
        )?
        .execute(params![
            arrival.kind,
            arrival.error_class,
            arrival.cause,
            arrival.version,
            arrival.dead_letter,
            arrivals,
            first_at_ms,
            arrival.at_ms
        ])?;
    Ok(())
}

/// Counting starts anew for what an incident covered.
pub(crate) fn start_anew(connection: &Connection, kind: &str, class: &str) -> Result<(), StoreError> {
    connection
        .prepare_cached("DELETE FROM uncovered_arrivals WHERE kind = ?1 AND (?2 = '' OR error_class = ?2)")?
        .execute([kind, class])?;
    Ok(())
}
