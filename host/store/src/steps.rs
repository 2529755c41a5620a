//! Steps: named side effects of a job, each applied once. Beginning one is fenced by the lease, completing it by its
//! own beginner. Nothing here knows whether a guest runs: the caller says which attempts do.

use std::sync::Arc;

use leasehold_domain::{AttemptNumber, Effect, FencingToken, JobId, StepName, TimestampMs};
use rusqlite::{Connection, OptionalExtension, params};

use crate::{Store, StoreError, effects, keys::Keys, rows::lease_is_live, seal::Purpose, writer::Urgency};

/// A step that is to begin.
#[derive(Debug, Clone)]
pub struct BeginStep {
    /// The attempt that begins it.
    pub token: FencingToken,
    /// The step.
    pub name: StepName,
    /// Tells whether a later run means the same effect.
    pub fingerprint: Vec<u8>,
    /// The job's other attempts whose guests still run in this process.
    pub others_running: Vec<AttemptNumber>,
    /// Whether a step in doubt may be begun again, by the kind's policy.
    pub take_over: bool,
    /// The queue's time.
    pub now_ms: TimestampMs,
}

impl BeginStep {
    /// A fingerprint may be made of personal data in a way that can be guessed; only a keyed digest of it is kept.
    fn with_digested_fingerprint(self, keys: &Keys) -> Self {
        let fingerprint = digested(keys, self.token.job, &self.name, &self.fingerprint);
        Self { fingerprint, ..self }
    }
}

fn digested(keys: &Keys, job: JobId, name: &StepName, fingerprint: &[u8]) -> Vec<u8> {
    keys.digest("step fingerprint", &[&job.0.to_be_bytes()[..], name.as_str().as_bytes(), fingerprint]).to_vec()
}

/// What a begin found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StepBegun {
    /// The record is durable; the effect may be run.
    Fresh,
    /// An earlier run may or may not have reached its end.
    InDoubt,
    /// It was applied before.
    Applied {
        /// What it stored.
        result: Vec<u8>,
        /// Whether that run meant another effect.
        other_fingerprint: bool,
    },
    /// Another attempt's guest, which still runs, has begun it.
    InProgress,
    /// The lease is lost; nothing may be begun.
    LeaseLost,
    /// This attempt has begun it already, or a step in doubt meant another effect.
    Conflict,
}

/// What became of the end of a step's run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepEnded {
    /// It is durable.
    Recorded,
    /// It is durable, and another attempt that was overtaken had run the same effect to its end: it may stand twice.
    AppliedTwice,
    /// A later attempt has taken the step over; nothing was changed.
    Stale {
        /// Whether another attempt's run of the same step was applied too: an effect that may stand twice.
        applied_elsewhere: bool,
    },
}

struct StepRow {
    state: String,
    fingerprint: Vec<u8>,
    begun_by: u32,
    result_sealed: Option<Vec<u8>>,
}

impl Store {
    /// Begins a step, durably.
    pub async fn begin_step(&self, begin: BeginStep) -> Result<StepBegun, StoreError> {
        self.note_time(begin.now_ms);
        let keys = Arc::clone(&self.shared.keys);
        let begin = begin.with_digested_fingerprint(keys.get()?);
        self.shared
            .writer
            .call(Urgency::Lease, move |connection| {
                let found = begin_step(connection, keys.get()?, &begin)?;
                fail::fail_point!("step.begun");
                Ok(found)
            })
            .await
    }

    /// What a begin of a step would find while no guest runs the job. Nothing is begun.
    pub async fn look_at_step(
        &self,
        job: JobId,
        name: StepName,
        fingerprint: Vec<u8>,
    ) -> Result<StepBegun, StoreError> {
        let keys = Arc::clone(&self.shared.keys);
        self.ask(move |connection| {
            let keys = keys.get()?;
            let Some(step) = find(connection, job.0, name.as_str())? else { return Ok(StepBegun::Fresh) };
            let other_fingerprint = step.fingerprint != digested(keys, job, &name, &fingerprint);
            match (step.state.as_str(), step.result_sealed) {
                ("applied", Some(sealed)) => {
                    let result = open_result(keys, job, &name, &sealed)?;
                    Ok(StepBegun::Applied { result, other_fingerprint })
                }
                ("taken_back", _) => Ok(StepBegun::Fresh),
                _ if other_fingerprint => Ok(StepBegun::Conflict),
                _ => Ok(StepBegun::InDoubt),
            }
        })
        .await
    }

    /// Stores a step's result and what it will enqueue and store, durably.
    pub async fn complete_step(
        &self,
        token: FencingToken,
        name: StepName,
        result: Vec<u8>,
        effects: Vec<Effect>,
        now_ms: TimestampMs,
    ) -> Result<StepEnded, StoreError> {
        self.note_time(now_ms);
        let keys = Arc::clone(&self.shared.keys);
        self.shared
            .writer
            .call(Urgency::Lease, move |connection| {
                let ended = complete_step(connection, keys.get()?, token, name.as_str(), &result, &effects, now_ms)?;
                fail::fail_point!("step.completed");
                Ok(ended)
            })
            .await
    }

    /// Takes a step back whose effect was certainly not applied in this run. A step that was in doubt before stays so.
    pub async fn take_back_step(&self, token: FencingToken, name: StepName) -> Result<StepEnded, StoreError> {
        self.shared
            .writer
            .call(Urgency::Lease, move |connection| take_back_step(connection, token, name.as_str()))
            .await
    }

    /// The key that downstream sees, the same for every run of a step: a keyed digest that carries no personal data.
    pub fn downstream_key(&self, kind: &str, job_key: &str, step: &StepName) -> Result<String, StoreError> {
        let digest = self
            .shared
            .keys
            .get()?
            .digest("downstream idempotency key", &[kind.as_bytes(), job_key.as_bytes(), step.as_str().as_bytes()]);
        Ok(hex::encode(&digest[..16]))
    }
}

fn begin_step(connection: &Connection, keys: &Keys, begin: &BeginStep) -> Result<StepBegun, StoreError> {
    if !lease_is_live(connection, begin.token, begin.now_ms)? {
        return Ok(StepBegun::LeaseLost);
    }
    begin_under_lease(connection, keys, begin)
}

fn begin_under_lease(connection: &Connection, keys: &Keys, begin: &BeginStep) -> Result<StepBegun, StoreError> {
    let attempt = begin.token.attempt.0;
    let Some(step) = find(connection, begin.token.job.0, begin.name.as_str())? else {
        return record_begin(connection, begin, StepBegun::Fresh);
    };
    match (step.state.as_str(), step.result_sealed) {
        ("applied", Some(sealed)) => {
            let result = open_result(keys, begin.token.job, &begin.name, &sealed)?;
            Ok(StepBegun::Applied { result, other_fingerprint: step.fingerprint != begin.fingerprint })
        }
        _ if step.begun_by == attempt => Ok(StepBegun::Conflict),
        ("taken_back", _) => record_begin(connection, begin, StepBegun::Fresh),
        _ if begin.others_running.contains(&AttemptNumber(step.begun_by)) => Ok(StepBegun::InProgress),
        _ if step.fingerprint != begin.fingerprint => Ok(StepBegun::Conflict),
        _ if begin.take_over => record_begin(connection, begin, StepBegun::InDoubt),
        _ => Ok(StepBegun::InDoubt),
    }
}

fn open_result(keys: &Keys, job: JobId, name: &StepName, sealed: &[u8]) -> Result<Vec<u8>, StoreError> {
    Ok(keys.sealer.open_named(Purpose::StepResult, job.0, name.as_str(), sealed)?.to_vec())
}

fn find(connection: &Connection, job: i64, name: &str) -> Result<Option<StepRow>, StoreError> {
    Ok(connection
        .prepare_cached(
            "SELECT state, fingerprint, begun_by, result_sealed FROM steps WHERE job_id = ?1 AND name = ?2",
        )?
        .query_row(params![job, name], |row| {
            Ok(StepRow {
                state: row.get(0)?,
                fingerprint: row.get(1)?,
                begun_by: row.get(2)?,
                result_sealed: row.get(3)?,
            })
        })
        .optional()?)
}

fn record_begin(connection: &Connection, begin: &BeginStep, found: StepBegun) -> Result<StepBegun, StoreError> {
    let (job, attempt, name) = (begin.token.job.0, begin.token.attempt.0, begin.name.as_str());
    connection
        .prepare_cached(
            "INSERT INTO steps (job_id, name, state, fingerprint, begun_by, begun_at) VALUES (?1, ?2, 'begun', ?3, ?4, ?5)
             ON CONFLICT (job_id, name) DO UPDATE SET state = 'begun', fingerprint = excluded.fingerprint,
                 begun_by = excluded.begun_by, begun_at = excluded.begun_at",
        )?
        .execute(params![job, name, begin.fingerprint, attempt, begin.now_ms])?;
    connection
        .prepare_cached(
            "INSERT INTO step_runs (job_id, attempt, name, begun_at, in_doubt) VALUES (?1, ?2, ?3, ?4, ?5)",
        )?
        .execute(params![job, attempt, name, begin.now_ms, found == StepBegun::InDoubt])?;
    Ok(found)
}

fn complete_step(
    connection: &Connection,
    keys: &Keys,
    token: FencingToken,
    name: &str,
    result: &[u8],
    effects: &[Effect],
    now_ms: TimestampMs,
) -> Result<StepEnded, StoreError> {
    let sealed = keys.sealer.seal_named(Purpose::StepResult, token.job.0, name, result)?;
    let changed = connection
        .prepare_cached(
            "UPDATE steps SET state = 'applied', applied_at = ?4, result_sealed = ?5
             WHERE job_id = ?1 AND name = ?2 AND state = 'begun' AND begun_by = ?3",
        )?
        .execute(params![token.job.0, name, token.attempt.0, now_ms, sealed])?;
    if changed == 0 {
        return stale(connection, token, name);
    }
    end_run(connection, token, name, "applied")?;
    if can_succeed(connection, token)? {
        effects::keep(connection, keys, token.job.0, name, effects)?;
    }
    // The beginner that was overtaken may have come to its end before this run did.
    let ran_elsewhere = connection
        .prepare_cached(
            "SELECT 1 FROM step_runs WHERE job_id = ?1 AND name = ?2 AND attempt <> ?3 AND ended_as = 'stale'",
        )?
        .exists(params![token.job.0, name, token.attempt.0])?;
    Ok(if ran_elsewhere { StepEnded::AppliedTwice } else { StepEnded::Recorded })
}

/// Whether the job may still end well, by itself or after a replay. What a late completion would keep for one that has
/// ended would become real never.
fn can_succeed(connection: &Connection, token: FencingToken) -> Result<bool, StoreError> {
    Ok(connection
        .prepare_cached(
            "SELECT 1 FROM jobs WHERE id = ?1 UNION ALL SELECT 1 FROM ended_jobs WHERE id = ?1 AND state = 'dead'",
        )?
        .exists([token.job.0])?)
}

fn stale(connection: &Connection, token: FencingToken, name: &str) -> Result<StepEnded, StoreError> {
    end_run(connection, token, name, "stale")?;
    let applied_elsewhere = connection
        .prepare_cached("SELECT 1 FROM steps WHERE job_id = ?1 AND name = ?2 AND state = 'applied' AND begun_by <> ?3")?
        .exists(params![token.job.0, name, token.attempt.0])?;
    Ok(StepEnded::Stale { applied_elsewhere })
}

fn take_back_step(connection: &Connection, token: FencingToken, name: &str) -> Result<StepEnded, StoreError> {
    let changed = connection
        .prepare_cached(
            "UPDATE steps SET state = 'taken_back'
             WHERE job_id = ?1 AND name = ?2 AND state = 'begun' AND begun_by = ?3 AND NOT EXISTS (
                 SELECT 1 FROM step_runs r WHERE r.job_id = ?1 AND r.attempt = ?3 AND r.name = ?2 AND r.in_doubt = 1)",
        )?
        .execute(params![token.job.0, name, token.attempt.0])?;
    end_run(connection, token, name, "taken_back")?;
    let still_own = changed > 0
        || connection
            .prepare_cached(
                "SELECT 1 FROM steps WHERE job_id = ?1 AND name = ?2 AND state = 'begun' AND begun_by = ?3",
            )?
            .exists(params![token.job.0, name, token.attempt.0])?;
    Ok(if still_own { StepEnded::Recorded } else { StepEnded::Stale { applied_elsewhere: false } })
}

fn end_run(connection: &Connection, token: FencingToken, name: &str, ended_as: &str) -> Result<(), StoreError> {
    connection
        .prepare_cached(
            "UPDATE step_runs SET ended_as = ?4 WHERE job_id = ?1 AND attempt = ?2 AND name = ?3 AND ended_as IS NULL",
        )?
        .execute(params![token.job.0, token.attempt.0, name, ended_as])?;
    Ok(())
}
