//! Effects of a job are rows until the job succeeds; then they become real, all of them, in the transaction that
//! settles it. Nothing here is ever applied for a job that did not succeed.

use leasehold_domain::{Effect, NewJob};
use rusqlite::{Connection, params};

use crate::{
    StoreError,
    enqueue::{self, EnqueueAnswer, EnqueueContext, EnqueueJob, SealedJob},
    job_ids,
    keys::Keys,
    notes,
    random::Random,
    seal::Purpose,
    transaction::Transaction,
    values,
};

/// The job with whose success effects become real.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MadeBy<'a> {
    pub(crate) job: i64,
    pub(crate) kind: &'a str,
    /// Who enqueued it; what it enqueues is theirs too.
    pub(crate) enqueued_by: &'a str,
}

/// Keeps a completed step's effects, sealed, until the job succeeds.
pub(crate) fn keep(
    connection: &Connection,
    keys: &Keys,
    job: i64,
    step: &str,
    effects: &[Effect],
) -> Result<(), StoreError> {
    for effect in effects {
        let text = serde_json::to_vec(effect).map_err(|error| StoreError::Unexpected(error.to_string()))?;
        let sealed = keys.sealer.seal(Purpose::StepEffect, job, &text)?;
        connection
            .prepare_cached("INSERT INTO step_effects (job_id, step, effect_sealed) VALUES (?1, ?2, ?3)")?
            .execute(params![job, step, sealed])?;
    }
    Ok(())
}

/// What completed steps of a job have kept, in order.
pub(crate) fn kept(connection: &Connection, keys: &Keys, job: i64) -> Result<Vec<Effect>, StoreError> {
    Ok(kept_by_step(connection, keys, job)?.into_iter().map(|(_, effect)| effect).collect())
}

/// What completed steps of a job have kept, in order, each with its step's name.
pub(crate) fn kept_by_step(
    connection: &Connection,
    keys: &Keys,
    job: i64,
) -> Result<Vec<(String, Effect)>, StoreError> {
    let mut statement =
        connection.prepare_cached("SELECT step, effect_sealed FROM step_effects WHERE job_id = ?1 ORDER BY id")?;
    let sealed = statement.query_map([job], |row| Ok((row.get(0)?, row.get::<_, Vec<u8>>(1)?)))?;
    sealed
        .map(|row| {
            let (step, sealed) = row?;
            let text = keys.sealer.open(Purpose::StepEffect, job, &sealed)?;
            let effect = serde_json::from_slice(&text).map_err(|error| StoreError::Unexpected(error.to_string()))?;
            Ok((step, effect))
        })
        .collect()
}

/// Makes a successful job's effects real: those of its steps first, then those of its last attempt.
pub(crate) fn apply(
    transaction: &Transaction<'_>,
    keys: &Keys,
    of_attempt: &[Effect],
    by: MadeBy<'_>,
    context: EnqueueContext,
) -> Result<(), StoreError> {
    let of_steps = kept(transaction, keys, by.job)?;
    if of_steps.is_empty() && of_attempt.is_empty() {
        return Ok(());
    }
    for effect in of_steps.iter().chain(of_attempt) {
        apply_one(transaction, keys, effect, by, context)?;
    }
    forget(transaction, by.job)
}

/// Drops what a job's steps have kept, once the job has ended.
pub(crate) fn forget(connection: &Connection, job: i64) -> Result<(), StoreError> {
    connection.prepare_cached("DELETE FROM step_effects WHERE job_id = ?1")?.execute([job])?;
    Ok(())
}

fn apply_one(
    transaction: &Transaction<'_>,
    keys: &Keys,
    effect: &Effect,
    by: MadeBy<'_>,
    context: EnqueueContext,
) -> Result<(), StoreError> {
    match effect {
        Effect::Enqueue(job) => enqueue_one(transaction, keys, job, by.enqueued_by, context),
        Effect::Set { store, key, value } => values::set(transaction, keys, store, key, value, context.now_ms),
        Effect::Delete { store, key } => values::delete(transaction, keys, store, key),
        Effect::Annotate(note) => notes::make(transaction, keys, note, by, context.now_ms),
    }
}

/// The depth limit does not hold here: a job that has succeeded must not fail for its successors.
fn enqueue_one(
    transaction: &Transaction<'_>,
    keys: &Keys,
    job: &NewJob,
    enqueued_by: &str,
    context: EnqueueContext,
) -> Result<(), StoreError> {
    let id = job_ids::reserve(transaction, 1)?.start;
    let sealed = SealedJob::new(
        keys,
        &mut Random::draw(SealedJob::RANDOM_BYTES)?,
        id,
        EnqueueJob {
            kind: job.kind.clone(),
            key: job.key.clone(),
            lane: job.lane.clone(),
            content_type: job.content_type.clone(),
            payload: job.payload.clone(),
            metadata: job.metadata.clone(),
            visible_at_ms: context.now_ms + job.delay_ms,
            run_at_wall_ms: None,
            priority: job.priority,
        },
    )?;
    let mut room = u64::MAX;
    let answer = enqueue::insert(transaction, &sealed, enqueued_by, context, &mut room)?;
    if let EnqueueAnswer::KeyConflict { id } = answer {
        tracing::warn!(
            kind = %job.kind, first = %id, code = "key_conflict",
            "a job that a handler enqueued was left out: a job with its key and another payload was there first"
        );
    }
    Ok(())
}
