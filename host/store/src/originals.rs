//! Sealed originals of dead letters: which payload each was, and how long it and its dead letter are kept. It never
//! opens one.

use leasehold_domain::{DeadLetterId, TimestampMs};
use rusqlite::{Connection, params};
use serde_json::json;

use crate::{Store, StoreError, audit, dead_letters, keys::Keys, writer::Urgency};

/// Who does what a retention setting says, in the audit log.
const ACTOR: &str = "retention";
/// How many originals one transaction erases.
const ERASED_MAX: usize = 500;
/// How many dead letters one transaction gives up; each has a row of its own in the audit log.
const GIVEN_UP_MAX: usize = 100;
/// How much of a digest is shown: 128 bits.
const SHOWN_BYTES: usize = 16;

/// The digest of a payload as operators see it: equal for equal payloads of one job, and for no others, so that nobody
/// can find a payload out by enqueueing guesses.
pub(crate) fn shown_digest(keys: &Keys, job: i64, payload_digest: &[u8]) -> String {
    hex::encode(&keys.digest("shown payload", &[&job.to_be_bytes(), payload_digest])[..SHOWN_BYTES])
}

impl Store {
    /// Erases originals of dead letters that died before a time, open or closed, in one batch with a row of the audit
    /// log. The dead letters stay. Answers how many it were, and whether there may be more.
    ///
    /// The pages that are freed are not overwritten: copies of a sealed payload lie in others as well, wherever its job's
    /// row was written before, and to overwrite them all would cost every claim of a large job twice its writes.
    pub async fn erase_originals(
        &self,
        died_before_ms: TimestampMs,
        now_ms: TimestampMs,
    ) -> Result<(usize, bool), StoreError> {
        self.note_time(now_ms);
        self.shared
            .writer
            .call(Urgency::Usual, move |connection| {
                let erased = erase(connection, died_before_ms, now_ms)?;
                Ok((erased, erased == ERASED_MAX))
            })
            .await
    }

    /// Gives up open dead letters that died before a time, in one batch, as an operator's discard does. Answers how many
    /// it were, and whether there may be more.
    pub async fn give_up_dead_letters(
        &self,
        died_before_ms: TimestampMs,
        reason: &str,
        now_ms: TimestampMs,
    ) -> Result<(usize, bool), StoreError> {
        self.note_time(now_ms);
        let reason = reason.to_owned();
        self.shared
            .writer
            .call(Urgency::Usual, move |connection| {
                let letters = ids(
                    connection,
                    "SELECT id FROM dead_letters WHERE state = 'open' AND died_at < ?1 ORDER BY died_at",
                    died_before_ms,
                    GIVEN_UP_MAX,
                )?;
                for &letter in &letters {
                    dead_letters::discard(connection, DeadLetterId(letter), ACTOR, &reason, now_ms)?;
                }
                Ok((letters.len(), letters.len() == GIVEN_UP_MAX))
            })
            .await
    }
}

fn ids(connection: &Connection, sql: &str, died_before_ms: TimestampMs, max: usize) -> Result<Vec<i64>, StoreError> {
    let mut statement = connection.prepare_cached(sql)?;
    let rows = statement.query_map([died_before_ms], |row| row.get(0))?;
    Ok(rows.take(max).collect::<Result<_, _>>()?)
}

fn erase(connection: &Connection, died_before_ms: TimestampMs, now_ms: TimestampMs) -> Result<usize, StoreError> {
    let letters = ids(
        connection,
        "SELECT id FROM dead_letters WHERE payload_sealed IS NOT NULL AND died_at < ?1 ORDER BY died_at",
        died_before_ms,
        ERASED_MAX,
    )?;
    for letter in &letters {
        connection
            .prepare_cached("UPDATE dead_letters SET payload_sealed = NULL WHERE id = ?1")?
            .execute(params![letter])?;
    }
    let (Some(first), Some(last)) = (letters.iter().min(), letters.iter().max()) else { return Ok(0) };
    let detail = json!({ "count": letters.len(), "died_before_ms": died_before_ms });
    audit::write(connection, now_ms, ACTOR, "dead_letter.erase_original", &format!("{first} to {last}"), &detail)?;
    Ok(letters.len())
}
