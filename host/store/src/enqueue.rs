//! A job goes in, or the first job with its key is found. The payload is sealed before the writer sees it.

use leasehold_domain::{JobId, JobKey, JobState, Kind, Lane, TimestampMs, place::place_in_line};
use rusqlite::{Connection, OptionalExtension, params};

use crate::{
    Store, StoreError,
    keys::Keys,
    random::Random,
    rows::{Extras, Standing, ended_state},
    seal::{NONCE_BYTES, Purpose},
    transaction::Transaction,
    writer::Urgency,
};

/// How long a key is that a job without one gets.
const FRESH_KEY_BYTES: usize = 16;

/// A checked job that is to go in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnqueueJob {
    /// Its kind.
    pub kind: Kind,
    /// The client's key; without one the job gets a fresh one and can't be a duplicate.
    pub key: Option<JobKey>,
    /// Its lane.
    pub lane: Option<Lane>,
    /// The payload's media type.
    pub content_type: String,
    /// The payload as sent.
    pub payload: Vec<u8>,
    /// Names and values that travel with it.
    pub metadata: Vec<(String, String)>,
    /// When it becomes visible.
    pub visible_at_ms: TimestampMs,
    /// The wall time that it waits for in place of `visible_at_ms`, whatever becomes of the wall clock until then.
    pub run_at_wall_ms: Option<TimestampMs>,
    /// Its priority.
    pub priority: i32,
}

/// What became of one job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EnqueueAnswer {
    /// It is in, durably.
    Enqueued {
        /// Its id.
        id: JobId,
        /// Where it stands.
        state: JobState,
    },
    /// A job with the same key and payload was there first.
    Duplicate {
        /// The first job.
        id: JobId,
        /// Where that one stands.
        state: JobState,
    },
    /// A job with the same key and another payload was there first.
    KeyConflict {
        /// The first job.
        id: JobId,
    },
    /// The queue is as deep as the configuration allows.
    QueueFull,
}

/// The numbers that every job of a call shares.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EnqueueContext {
    pub(crate) now_ms: TimestampMs,
    pub(crate) priority_step_ms: i64,
}

/// A job with its parts sealed to its id.
pub(crate) struct SealedJob {
    id: i64,
    kind: String,
    lane: Option<String>,
    content_type: String,
    payload_bytes: i64,
    payload_digest: [u8; 32],
    key_digest: Option<[u8; 32]>,
    payload_sealed: Vec<u8>,
    extras_sealed: Vec<u8>,
    visible_at_ms: TimestampMs,
    run_at_wall_ms: Option<TimestampMs>,
    priority: i32,
}

impl SealedJob {
    /// The random bytes that a job needs at most: two nonces and a key.
    pub(crate) const RANDOM_BYTES: usize = 2 * NONCE_BYTES + FRESH_KEY_BYTES;

    /// Seals each job to its id. A call of the system for each value would take a fifth of the time.
    pub(crate) fn all(keys: &Keys, ids: Vec<i64>, jobs: Vec<EnqueueJob>) -> Result<Vec<Self>, StoreError> {
        let mut random = Random::draw(jobs.len() * Self::RANDOM_BYTES)?;
        ids.into_iter().zip(jobs).map(|(id, job)| Self::new(keys, &mut random, id, job)).collect()
    }

    pub(crate) fn new(keys: &Keys, random: &mut Random, id: i64, job: EnqueueJob) -> Result<Self, StoreError> {
        let key_digest = job.key.as_ref().map(|key| key_digest(keys, job.kind.as_str(), key.as_str()));
        let key = job.key.map_or_else(|| fresh_key(random), |key| Ok(key.as_str().to_owned()))?;
        let extras = Extras { key, metadata: job.metadata };
        Ok(Self {
            id,
            kind: job.kind.into(),
            lane: job.lane.map(Into::into),
            content_type: job.content_type,
            payload_bytes: i64::try_from(job.payload.len()).unwrap_or(i64::MAX),
            payload_digest: payload_digest(keys, &job.payload),
            key_digest,
            payload_sealed: keys.sealer.seal_with(random, Purpose::Payload, id, "", &job.payload)?,
            extras_sealed: extras.seal(keys, random, id)?,
            visible_at_ms: job.visible_at_ms,
            run_at_wall_ms: job.run_at_wall_ms,
            priority: job.priority,
        })
    }
}

pub(crate) fn key_digest(keys: &Keys, kind: &str, key: &str) -> [u8; 32] {
    keys.digest("job key", &[kind.as_bytes(), key.as_bytes()])
}

pub(crate) fn payload_digest(keys: &Keys, payload: &[u8]) -> [u8; 32] {
    keys.digest("payload", &[payload])
}

fn fresh_key(random: &mut Random) -> Result<String, StoreError> {
    Ok(format!("job-{}", hex::encode(random.take::<FRESH_KEY_BYTES>()?)))
}

impl Store {
    /// Puts jobs in, in one transaction. Answers stand in the order of the jobs.
    pub async fn enqueue(
        &self,
        jobs: Vec<EnqueueJob>,
        enqueued_by: &str,
        now_ms: TimestampMs,
        priority_step_ms: i64,
        depth_max: u64,
    ) -> Result<Vec<EnqueueAnswer>, StoreError> {
        self.note_time(now_ms);
        let keys = self.shared.keys.get()?;
        let ids = self.shared.job_ids.take(&self.shared.writer, jobs.len()).await?;
        let sealed = SealedJob::all(keys, ids, jobs)?;
        let context = EnqueueContext { now_ms, priority_step_ms };
        let enqueued_by = enqueued_by.to_owned();
        let answers = self
            .shared
            .writer
            .call(Urgency::Usual, move |transaction| {
                let mut room = depth_max.saturating_sub(transaction.depth()?);
                let answers = sealed.iter().map(|job| insert(transaction, job, &enqueued_by, context, &mut room));
                let answers = answers.collect::<Result<Vec<_>, _>>()?;
                fail::fail_point!("enqueue.inserted");
                Ok(answers)
            })
            .await;
        fail::fail_point!("enqueue.committed");
        answers
    }
}

/// Inserts one job unless its key is taken or there is no room for it.
pub(crate) fn insert(
    transaction: &Transaction<'_>,
    job: &SealedJob,
    enqueued_by: &str,
    context: EnqueueContext,
    room: &mut u64,
) -> Result<EnqueueAnswer, StoreError> {
    if let Some(first) = first_with_key(transaction, job)? {
        return Ok(first);
    }
    let Some(left) = room.checked_sub(1) else { return Ok(EnqueueAnswer::QueueFull) };
    *room = left;
    let visible_at_ms = job.run_at_wall_ms.unwrap_or(job.visible_at_ms.max(context.now_ms));
    let is_due = job.run_at_wall_ms.is_none() && visible_at_ms <= context.now_ms;
    let standing = if is_due { Standing::Ready } else { Standing::Waiting };
    transaction
        .prepare_cached(
            "INSERT INTO jobs (id, kind, lane, state, place, visible_at, priority, enqueued_at, enqueued_by,
                               content_type, payload_bytes, payload_digest, key_digest, payload_sealed, extras_sealed,
                               run_at_wall)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)",
        )?
        .execute(params![
            job.id,
            job.kind,
            job.lane,
            standing as i64,
            place_in_line(visible_at_ms, job.priority, context.priority_step_ms),
            visible_at_ms,
            job.priority,
            context.now_ms,
            enqueued_by,
            job.content_type,
            job.payload_bytes,
            job.payload_digest,
            job.key_digest,
            job.payload_sealed,
            job.extras_sealed,
            job.run_at_wall_ms,
        ])?;
    if let Some(key_digest) = &job.key_digest {
        transaction
            .prepare_cached("INSERT INTO job_keys (kind, key_digest, payload_digest, job_id) VALUES (?1, ?2, ?3, ?4)")?
            .execute(params![job.kind, key_digest, job.payload_digest, job.id])?;
    }
    transaction.came(&job.kind, standing);
    Ok(EnqueueAnswer::Enqueued { id: JobId(job.id), state: standing.into() })
}

fn first_with_key(connection: &Connection, job: &SealedJob) -> Result<Option<EnqueueAnswer>, StoreError> {
    let Some(key_digest) = &job.key_digest else { return Ok(None) };
    let first: Option<(i64, Vec<u8>)> = connection
        .prepare_cached("SELECT job_id, payload_digest FROM job_keys WHERE kind = ?1 AND key_digest = ?2")?
        .query_row(params![job.kind, key_digest], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((id, payload_digest)) = first else { return Ok(None) };
    if payload_digest != job.payload_digest {
        return Ok(Some(EnqueueAnswer::KeyConflict { id: JobId(id) }));
    }
    Ok(Some(EnqueueAnswer::Duplicate { id: JobId(id), state: state_of(connection, id)? }))
}

/// Where a job stands, whether or not it has ended.
pub(crate) fn state_of(connection: &Connection, id: i64) -> Result<JobState, StoreError> {
    let live = connection
        .prepare_cached("SELECT state, held FROM jobs WHERE id = ?1")?
        .query_row([id], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    if let Some((state, held)) = live {
        return Ok(Standing::of(state, held).into());
    }
    let ended: Option<String> = connection
        .prepare_cached("SELECT state FROM ended_jobs WHERE id = ?1")?
        .query_row([id], |row| row.get(0))
        .optional()?;
    ended_state(&ended.ok_or_else(|| StoreError::Unexpected(format!("a key of job {id}, which does not exist")))?)
}
