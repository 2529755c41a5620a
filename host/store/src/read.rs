//! Jobs, attempts and steps as they are shown. Lists never load payloads, and nothing here opens one.

use std::sync::Arc;

use leasehold_domain::{Digest, FencingToken, JobId, JobState, Kind, TimestampMs};
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::{
    Store, StoreError,
    claim::Contents,
    dead_letters::DeadLetterSummary,
    enqueue::key_digest,
    keys::Keys,
    notes::{self, NoteRecord},
    originals::shown_digest,
    replay_records::{ReplayRecord, replays_of},
    rows::{Standing, ended_state},
    seal::Purpose,
};

/// One page of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T> {
    /// What is on it.
    pub items: Vec<T>,
    /// Where the next one starts; absent on the last one.
    pub next: Option<i64>,
}

impl<T> Page<T> {
    pub(crate) fn new(items: Vec<T>, max: usize, position: impl Fn(&T) -> i64) -> Self {
        let next = items.last().filter(|_| items.len() >= max).map(position);
        Self { items, next }
    }
}

/// Which jobs to list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobFilter {
    /// Of this kind.
    pub kind: Option<String>,
    /// In this state.
    pub state: Option<JobState>,
    /// Of this lane.
    pub lane: Option<String>,
    /// Before this id.
    pub before: Option<i64>,
}

/// One job in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobSummary {
    /// Its id.
    pub id: JobId,
    /// Its kind.
    pub kind: String,
    /// Its lane.
    pub lane: Option<String>,
    /// Where it stands.
    pub state: JobState,
    /// Its priority.
    pub priority: i32,
    /// The number of its last attempt.
    pub attempt: u32,
    /// How many attempts have counted.
    pub attempts_used: u32,
    /// When it was enqueued.
    pub enqueued_at_ms: TimestampMs,
    /// Who enqueued it.
    pub enqueued_by: String,
    /// When it becomes or became visible, while it has not ended.
    pub visible_at_ms: Option<TimestampMs>,
    /// When it ended.
    pub ended_at_ms: Option<TimestampMs>,
    /// Why it was suppressed or cancelled.
    pub reason: Option<String>,
    /// Its payload's media type.
    pub content_type: String,
    /// Its payload's size.
    pub payload_bytes: u64,
}

/// One job with what happened to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobRecord {
    /// What a list shows of it.
    pub summary: JobSummary,
    /// Its attempts, in order.
    pub attempts: Vec<AttemptRecord>,
    /// Its steps.
    pub steps: Vec<StepRecord>,
    /// The runs of its steps.
    pub step_runs: Vec<StepRunRecord>,
    /// The digest of its payload, comparable within the job alone; absent without the sealing key.
    pub payload_digest: Option<String>,
    /// Its replays.
    pub replays: Vec<ReplayRecord>,
    /// Its dead letters, the latest first.
    pub dead_letters: Vec<DeadLetterSummary>,
    /// What other jobs noted on it.
    pub notes: Vec<NoteRecord>,
}

/// What happened under one lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptRecord {
    /// Its number.
    pub number: u32,
    /// When the lease was taken.
    pub leased_at_ms: TimestampMs,
    /// The version that it ran on.
    pub version: Option<String>,
    /// That version's component.
    pub digest: Option<Digest>,
    /// The replay that it belongs to.
    pub replay: Option<i64>,
    /// When it ended.
    pub ended_at_ms: Option<TimestampMs>,
    /// How it ended.
    pub ended_as: Option<String>,
    /// Whether it counts against the cap.
    pub counted: bool,
    /// The error class.
    pub error_class: Option<String>,
    /// What went wrong, redacted.
    pub message: Option<String>,
    /// The tail of the guest's log, redacted.
    pub log: Option<String>,
    /// The frames of a trap, redacted.
    pub trap: Option<String>,
}

/// A step as it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepRecord {
    /// Its name.
    pub name: String,
    /// `begun`, `applied` or `taken_back`.
    pub state: String,
    /// The attempt that began it last.
    pub begun_by: u32,
    /// When.
    pub begun_at_ms: TimestampMs,
    /// When it was applied.
    pub applied_at_ms: Option<TimestampMs>,
}

/// One run of a step's effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepRunRecord {
    /// The step.
    pub name: String,
    /// The attempt that ran it.
    pub attempt: u32,
    /// When it began.
    pub begun_at_ms: TimestampMs,
    /// Whether the step was in doubt then.
    pub in_doubt: bool,
    /// `applied`, `taken_back` or `stale`; absent when the run's end is not known.
    pub ended_as: Option<String>,
}

const LIVE: &str = "id, kind, lane, state, held, priority, attempt, attempts_used, enqueued_at, enqueued_by,
    visible_at, NULL, NULL, content_type, payload_bytes";
const ENDED: &str = "id, kind, lane, state, 0, priority, attempt, attempts_used, enqueued_at, enqueued_by,
    NULL, ended_at, reason, content_type, payload_bytes";

impl Store {
    /// Jobs, the latest first, whether or not they have ended.
    pub async fn jobs(&self, filter: JobFilter, max: usize) -> Result<Page<JobSummary>, StoreError> {
        self.ask(move |connection| list(connection, &filter, max)).await
    }

    /// One job.
    pub async fn job(&self, id: JobId) -> Result<Option<JobRecord>, StoreError> {
        let keys = Arc::clone(&self.shared.keys);
        self.ask(move |connection| show(connection, keys.get().ok(), id)).await
    }

    /// The job that a client sent with this key, whether or not it has ended; none once its key is no longer retained.
    pub async fn job_with_key(&self, kind: &Kind, key: &str) -> Result<Option<JobId>, StoreError> {
        let keys = self.shared.keys.get()?;
        let (kind, digest) = (kind.clone(), key_digest(keys, kind.as_str(), key));
        self.ask(move |connection| {
            Ok(connection
                .prepare_cached("SELECT job_id FROM job_keys WHERE kind = ?1 AND key_digest = ?2")?
                .query_row(params![kind.as_str(), digest], |row| Ok(JobId(row.get(0)?)))
                .optional()?)
        })
        .await
    }

    /// The result of a job that is done, if it has one.
    pub async fn job_result(&self, id: JobId) -> Result<Option<Vec<u8>>, StoreError> {
        let keys = Arc::clone(&self.shared.keys);
        self.ask(move |connection| {
            let sealed: Option<Option<Vec<u8>>> = connection
                .prepare_cached("SELECT result_sealed FROM ended_jobs WHERE id = ?1")?
                .query_row([id.0], |row| row.get(0))
                .optional()?;
            let Some(sealed) = sealed.flatten() else { return Ok(None) };
            Ok(Some(keys.get()?.sealer.open(Purpose::JobResult, id.0, &sealed)?.to_vec()))
        })
        .await
    }

    /// What was sealed of a leased job, for the redacted view of its death.
    pub async fn contents(&self, token: FencingToken) -> Result<Option<Arc<Contents>>, StoreError> {
        let keys = Arc::clone(&self.shared.keys);
        self.ask_for_daemon(move |connection| {
            let sealed: Option<(Vec<u8>, Vec<u8>)> = connection
                .prepare_cached("SELECT payload_sealed, extras_sealed FROM jobs WHERE id = ?1 AND attempt = ?2")?
                .query_row((token.job.0, token.attempt.0), |row| Ok((row.get(0)?, row.get(1)?)))
                .optional()?;
            let opened = sealed.map(|(payload, extras)| Contents::open(keys.get()?, token.job.0, &payload, &extras));
            Ok(opened.transpose()?.map(Arc::new))
        })
        .await
    }
}

fn list(connection: &Connection, filter: &JobFilter, max: usize) -> Result<Page<JobSummary>, StoreError> {
    let limit = i64::try_from(max).unwrap_or(i64::MAX);
    let before = filter.before.unwrap_or(i64::MAX);
    let ended_state = filter.state.filter(|state| state.is_end()).map(JobState::as_str);
    let mut items = Vec::new();
    if filter.state.is_none_or(|state| !state.is_end()) {
        let live = filter.state.map(JobState::as_str);
        let sql = format!(
            "SELECT {LIVE} FROM jobs WHERE id < ?1 AND (?2 IS NULL OR kind = ?2) AND (?3 IS NULL OR lane = ?3)
               AND (?4 IS NULL OR ?4 = CASE WHEN state = 2 THEN 'leased' WHEN state = 1 OR held = 1 THEN 'ready' ELSE 'waiting' END)
             ORDER BY id DESC LIMIT ?5"
        );
        items.extend(summaries(connection, &sql, params![before, filter.kind, filter.lane, live, limit])?);
    }
    if filter.state.is_none_or(JobState::is_end) {
        let sql = format!(
            "SELECT {ENDED} FROM ended_jobs WHERE id < ?1 AND (?2 IS NULL OR kind = ?2) AND (?3 IS NULL OR lane = ?3)
               AND (?4 IS NULL OR state = ?4) ORDER BY id DESC LIMIT ?5"
        );
        items.extend(summaries(connection, &sql, params![before, filter.kind, filter.lane, ended_state, limit])?);
    }
    items.sort_by_key(|job| std::cmp::Reverse(job.id));
    items.truncate(max);
    Ok(Page::new(items, max, |job| job.id.0))
}

fn summaries(
    connection: &Connection,
    sql: &str,
    parameters: impl rusqlite::Params,
) -> Result<Vec<JobSummary>, StoreError> {
    let mut statement = connection.prepare_cached(sql)?;
    let rows = statement.query_map(parameters, |row| Ok(summary(row)))?;
    rows.map(|row| row?).collect()
}

fn summary(row: &Row<'_>) -> Result<JobSummary, StoreError> {
    let state = match row.get_ref(3)? {
        rusqlite::types::ValueRef::Integer(state) => Standing::of(state, row.get(4)?).into(),
        _ => ended_state(&row.get::<_, String>(3)?)?,
    };
    Ok(JobSummary {
        id: JobId(row.get(0)?),
        kind: row.get(1)?,
        lane: row.get(2)?,
        state,
        priority: row.get(5)?,
        attempt: row.get(6)?,
        attempts_used: row.get(7)?,
        enqueued_at_ms: row.get(8)?,
        enqueued_by: row.get(9)?,
        visible_at_ms: row.get(10)?,
        ended_at_ms: row.get(11)?,
        reason: row.get(12)?,
        content_type: row.get(13)?,
        payload_bytes: row.get(14)?,
    })
}

fn show(connection: &Connection, keys: Option<&Keys>, id: JobId) -> Result<Option<JobRecord>, StoreError> {
    // One table after the other, so that damage to one of them hides no job of the other.
    let mut found = summaries(connection, &format!("SELECT {ENDED} FROM ended_jobs WHERE id = ?1"), [id.0])?;
    if found.is_empty() {
        found = summaries(connection, &format!("SELECT {LIVE} FROM jobs WHERE id = ?1"), [id.0])?;
    }
    let Some(summary) = found.pop() else { return Ok(None) };
    Ok(Some(JobRecord {
        summary,
        attempts: attempts_of(connection, id)?,
        steps: steps_of(connection, id)?,
        step_runs: step_runs_of(connection, id)?,
        payload_digest: keys.map(|keys| payload_digest(connection, keys, id)).transpose()?,
        replays: replays_of(connection, keys, id)?,
        dead_letters: crate::dead_letters::of_job(connection, id)?,
        notes: notes::of_job(connection, id)?,
    }))
}

fn payload_digest(connection: &Connection, keys: &Keys, job: JobId) -> Result<String, StoreError> {
    // Of the ended ones first, so that damage to the others hides none of them: the second table is read only if need be.
    let digest: Vec<u8> = connection
        .prepare_cached(
            "SELECT payload_digest FROM ended_jobs WHERE id = ?1 UNION ALL SELECT payload_digest FROM jobs WHERE id = ?1",
        )?
        .query_row([job.0], |row| row.get(0))?;
    Ok(shown_digest(keys, job.0, &digest))
}

pub(crate) fn attempts_of(connection: &Connection, job: JobId) -> Result<Vec<AttemptRecord>, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT number, leased_at, version, digest, replay_id, ended_at, ended_as, counted, error_class, message, log, trap
         FROM attempts WHERE job_id = ?1 ORDER BY number",
    )?;
    let rows = statement.query_map([job.0], |row| {
        Ok(AttemptRecord {
            number: row.get(0)?,
            leased_at_ms: row.get(1)?,
            version: row.get(2)?,
            digest: row.get::<_, Option<[u8; 32]>>(3)?.map(Digest::from_bytes),
            replay: row.get(4)?,
            ended_at_ms: row.get(5)?,
            ended_as: row.get(6)?,
            counted: row.get(7)?,
            error_class: row.get(8)?,
            message: row.get(9)?,
            log: row.get(10)?,
            trap: row.get(11)?,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

pub(crate) fn steps_of(connection: &Connection, job: JobId) -> Result<Vec<StepRecord>, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT name, state, begun_by, begun_at, applied_at FROM steps WHERE job_id = ?1 ORDER BY begun_at, name",
    )?;
    let rows = statement.query_map([job.0], |row| {
        Ok(StepRecord {
            name: row.get(0)?,
            state: row.get(1)?,
            begun_by: row.get(2)?,
            begun_at_ms: row.get(3)?,
            applied_at_ms: row.get(4)?,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

pub(crate) fn step_runs_of(connection: &Connection, job: JobId) -> Result<Vec<StepRunRecord>, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT name, attempt, begun_at, in_doubt, ended_as FROM step_runs WHERE job_id = ?1 ORDER BY attempt, begun_at",
    )?;
    let rows = statement.query_map([job.0], |row| {
        Ok(StepRunRecord {
            name: row.get(0)?,
            attempt: row.get(1)?,
            begun_at_ms: row.get(2)?,
            in_doubt: row.get(3)?,
            ended_as: row.get(4)?,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}
