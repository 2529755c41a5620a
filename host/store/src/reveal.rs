//! Revealing the sealed original of a dead letter. The row that says who saw it and why is durable before anything is
//! opened: a crash in between leaves a row for something that was not shown, never the other way round.

use std::sync::Arc;

use leasehold_domain::{DeadLetterId, TimestampMs};
use rusqlite::{Connection, OptionalExtension};
use serde_json::json;

use crate::{Store, StoreError, audit, rows::Extras, seal::Purpose, writer::Urgency};

/// The original of a dead letter, in the clear.
#[derive(Clone, PartialEq, Eq)]
pub struct Original {
    /// The job that died.
    pub job: i64,
    /// Its kind.
    pub kind: String,
    /// Its lane.
    pub lane: Option<String>,
    /// The payload's media type.
    pub content_type: String,
    /// The job's key.
    pub key: String,
    /// Names and values that travelled with the job.
    pub metadata: Vec<(String, String)>,
    /// The payload.
    pub payload: Vec<u8>,
}

/// What became of a request to reveal.
#[derive(Clone, PartialEq, Eq)]
pub enum Revealed {
    /// This is it.
    Original(Box<Original>),
    /// The kind keeps no originals in its dead letters.
    NotKept,
    /// It was replayed or discarded before, and its original is no longer here.
    NotOpen {
        /// Where it stands.
        state: String,
    },
    /// There is no such dead letter.
    NotFound,
}

/// What is sealed of a dead letter.
struct Sealed {
    job: i64,
    kind: String,
    lane: Option<String>,
    content_type: String,
    payload: Vec<u8>,
    extras: Vec<u8>,
}

/// What a dead letter has, before anything of it is opened.
enum Found {
    Sealed(Box<Sealed>),
    Other(Revealed),
}

impl Store {
    /// Reveals the original of a dead letter once its audit row is durable. Without the sealing key nothing is revealed
    /// and nothing recorded.
    pub async fn reveal(
        &self,
        id: DeadLetterId,
        actor: &str,
        reason: &str,
        now_ms: TimestampMs,
    ) -> Result<Revealed, StoreError> {
        let (actor, reason) = (actor.to_owned(), reason.to_owned());
        let keys = Arc::clone(&self.shared.keys);
        keys.get()?;
        let found = self
            .shared
            .writer
            .call(Urgency::Usual, move |connection| {
                let found = find(connection, id)?;
                if let Found::Sealed(sealed) = &found {
                    let detail = json!({ "job": sealed.job, "reason": reason });
                    audit::write(connection, now_ms, &actor, "dead_letter.reveal", &id.to_string(), &detail)?;
                }
                Ok(found)
            })
            .await?;
        fail::fail_point!("reveal.recorded");
        let sealed = match found {
            Found::Sealed(sealed) => sealed,
            Found::Other(answer) => return Ok(answer),
        };
        let keys = keys.get()?;
        // An ended job's key and metadata are let go before the letter is.
        let extras = if sealed.extras.is_empty() {
            Extras { key: String::new(), metadata: Vec::new() }
        } else {
            Extras::open(keys, sealed.job, &sealed.extras)?
        };
        let Extras { key, metadata } = extras;
        let payload = keys.sealer.open(Purpose::Payload, sealed.job, &sealed.payload)?.to_vec();
        let Sealed { job, kind, lane, content_type, .. } = *sealed;
        Ok(Revealed::Original(Box::new(Original { job, kind, lane, content_type, key, metadata, payload })))
    }
}

fn find(connection: &Connection, id: DeadLetterId) -> Result<Found, StoreError> {
    let found = connection
        .prepare_cached(
            "SELECT d.state, d.payload_sealed, d.job_id, d.kind, d.lane, coalesce(e.content_type, j.content_type),
                    coalesce(e.extras_sealed, j.extras_sealed)
             FROM dead_letters d LEFT JOIN ended_jobs e ON e.id = d.job_id LEFT JOIN jobs j ON j.id = d.job_id
             WHERE d.id = ?1",
        )?
        .query_row([id.0], |row| {
            let state: String = row.get(0)?;
            // One that a replay corrected is kept beyond it.
            let payload = match row.get::<_, Option<Vec<u8>>>(1)? {
                Some(payload) => payload,
                None if state == "open" => return Ok(Found::Other(Revealed::NotKept)),
                None => return Ok(Found::Other(Revealed::NotOpen { state })),
            };
            Ok(Found::Sealed(Box::new(Sealed {
                payload,
                job: row.get(2)?,
                kind: row.get(3)?,
                lane: row.get(4)?,
                content_type: row.get(5)?,
                extras: row.get(6)?,
            })))
        })
        .optional()?;
    Ok(found.unwrap_or(Found::Other(Revealed::NotFound)))
}
