//! What a rehearsal reads of a dead letter: its sealed original, its key, and what earlier attempts' steps have kept. It
//! writes nothing.

use std::sync::Arc;

use leasehold_domain::{AttemptNumber, DeadLetterId, Effect, JobId, TimestampMs};
use rusqlite::{Connection, OptionalExtension};

use crate::{Store, StoreError, effects, keys::Keys, rows::Extras, seal::Purpose};

/// A dead letter's job as a replay of it would find it.
#[derive(Clone)]
pub struct Rehearsable {
    /// The job.
    pub job: JobId,
    /// Its kind.
    pub kind: String,
    /// Its lane.
    pub lane: Option<String>,
    /// `open`, `replayed` or `discarded`.
    pub state: String,
    /// The number of its last attempt.
    pub attempt: AttemptNumber,
    /// How many replays it has had.
    pub replays: u32,
    /// When it was enqueued.
    pub enqueued_at_ms: TimestampMs,
    /// The payload's media type.
    pub content_type: String,
    /// The payload as sent, if the original was kept.
    pub payload: Option<Vec<u8>>,
    /// The key.
    pub key: String,
    /// Names and values that travel with the job.
    pub metadata: Vec<(String, String)>,
    /// What its completed steps have kept, by the names of the steps, in order.
    pub kept: Vec<(String, Effect)>,
}

impl Store {
    /// A dead letter's job with its original, for a run of which nothing is applied.
    pub async fn rehearsable(&self, id: DeadLetterId) -> Result<Option<Rehearsable>, StoreError> {
        let keys = Arc::clone(&self.shared.keys);
        self.ask(move |connection| {
            let Some(row) = find(connection, id)? else { return Ok(None) };
            open(connection, keys.get()?, row).map(Some)
        })
        .await
    }
}

/// The row, still sealed.
struct Sealed {
    rehearsable: Rehearsable,
    payload: Option<Vec<u8>>,
    extras: Option<Vec<u8>>,
}

fn find(connection: &Connection, id: DeadLetterId) -> Result<Option<Sealed>, StoreError> {
    // A letter that is no longer open may belong to a job that is back in the queue; it is never run, so that its
    // sealed parts need not be found.
    let found = connection
        .prepare_cached(
            "SELECT d.job_id, d.kind, d.lane, d.state, d.attempt, d.payload_sealed, e.enqueued_at, e.content_type,
                    e.extras_sealed, (SELECT count(*) FROM replays r WHERE r.job_id = d.job_id)
             FROM dead_letters d LEFT JOIN ended_jobs e ON e.id = d.job_id AND e.state = 'dead' WHERE d.id = ?1",
        )?
        .query_row([id.0], |row| {
            Ok(Sealed {
                rehearsable: Rehearsable {
                    job: JobId(row.get(0)?),
                    kind: row.get(1)?,
                    lane: row.get(2)?,
                    state: row.get(3)?,
                    attempt: AttemptNumber(row.get(4)?),
                    enqueued_at_ms: row.get::<_, Option<_>>(6)?.unwrap_or_default(),
                    content_type: row.get::<_, Option<_>>(7)?.unwrap_or_default(),
                    replays: row.get(9)?,
                    payload: None,
                    key: String::new(),
                    metadata: Vec::new(),
                    kept: Vec::new(),
                },
                payload: row.get(5)?,
                extras: row.get(8)?,
            })
        })
        .optional()?;
    Ok(found)
}

fn open(connection: &Connection, keys: &Keys, sealed: Sealed) -> Result<Rehearsable, StoreError> {
    let Sealed { rehearsable, payload, extras } = sealed;
    let job = rehearsable.job.0;
    let Some(extras) = extras else { return Ok(rehearsable) };
    let Extras { key, metadata } = Extras::open(keys, job, &extras)?;
    let payload = payload.map(|payload| keys.sealer.open(Purpose::Payload, job, &payload)).transpose()?;
    let payload = payload.map(|payload| payload.to_vec());
    Ok(Rehearsable { key, metadata, payload, kept: effects::kept_by_step(connection, keys, job)?, ..rehearsable })
}
