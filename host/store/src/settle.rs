//! The end of an attempt: job, attempt, effects and dead letter in one transaction, fenced by the token. It carries out
//! a verdict and never makes one.

use std::sync::Arc;

use leasehold_domain::{Cause, Effect, FencingToken, JobState, TimestampMs, Verdict, place::place_in_line};
use rusqlite::{Connection, OptionalExtension, params};

use crate::{
    Store, StoreError, arrivals,
    effects::{self, MadeBy},
    enqueue::EnqueueContext,
    handlers,
    keys::Keys,
    lanes,
    rows::Standing,
    seal::Purpose,
    transaction::Transaction,
    writer::Urgency,
};

/// What is to be done with a job at the end of an attempt. All of its text is redacted already.
#[derive(Debug, Clone)]
pub struct Settlement {
    /// The attempt that ended.
    pub token: FencingToken,
    /// The queue's time.
    pub now_ms: TimestampMs,
    /// What is done with the job.
    pub verdict: Verdict,
    /// What is recorded of the attempt.
    pub attempt: AttemptRecordText,
    /// What the attempt enqueued and stored outside of steps; made real only if the job succeeds.
    pub effects: Vec<Effect>,
    /// What operators will see of it, if the job dies.
    pub dead_letter: Option<DeadLetterText>,
    /// Only if the lease has run out by now: the reaper's settlements must not overtake a heartbeat.
    pub only_if_expired: bool,
    /// How far a step of priority moves a job in line.
    pub priority_step_ms: i64,
    /// How many unclean stops in a row the job was running at, this one included.
    pub unclean_stops: u32,
}

/// What is recorded of an ended attempt.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AttemptRecordText {
    /// How it ended: `done`, `suppressed`, `failed`, `released`, `expired`, `cancelled`, `daemon_stopped` or `not_run`.
    pub ended_as: &'static str,
    /// The error class.
    pub error_class: Option<String>,
    /// What went wrong.
    pub message: Option<String>,
    /// The tail of the guest's log.
    pub log: Option<String>,
    /// The frames of a trap.
    pub trap: Option<String>,
}

/// What operators see of a dead letter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetterText {
    /// The payload, masked.
    pub view: String,
    /// The key, masked.
    pub masked_key: String,
    /// Whether the sealed original is kept.
    pub keep_original: bool,
    /// How many dead letters of its kind and class have to arrive before the first page.
    pub page_after: u64,
}

/// What became of a settlement. Losing a lease is a result, not an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    /// It is durable.
    Applied {
        /// The state that the job ended in, if it ended. A cancelled job is not tried again and does not die.
        ended: Option<JobState>,
        /// The dead letter, if the job died.
        dead_letter: Option<i64>,
    },
    /// The token is no longer the job's live lease; nothing was changed.
    LeaseLost,
}

/// What a settlement needs of the job's row.
struct JobRow {
    kind: String,
    lane: Option<String>,
    priority: i32,
    attempts_used: u32,
    version_id: Option<i64>,
    replay_id: Option<i64>,
    enqueued_by: String,
    cancel_requested: bool,
}

impl JobRow {
    fn ending(&self, id: i64) -> Ending<'_> {
        Ending { id, kind: &self.kind, from: Standing::Leased, replay_id: self.replay_id }
    }
}

impl Store {
    /// Settles an attempt, fenced by its token.
    pub async fn settle(&self, settlement: impl Into<Arc<Settlement>>) -> Result<Settled, StoreError> {
        let settlement = settlement.into();
        self.note_time(settlement.now_ms);
        let keys = Arc::clone(&self.shared.keys);
        self.shared.writer.call(Urgency::Lease, move |transaction| settle(transaction, keys.get()?, &settlement)).await
    }
}

fn settle(transaction: &Transaction<'_>, keys: &Keys, settlement: &Settlement) -> Result<Settled, StoreError> {
    let Some(job) = fenced_row(transaction, settlement)? else { return Ok(Settled::LeaseLost) };
    // A job that was handed to the reaper because its cap was lowered is leased under the number of an attempt that has
    // ended, and only the reaper settles it.
    if !record_end(transaction, settlement)? && !settlement.only_if_expired {
        return Ok(Settled::LeaseLost);
    }
    // Whether it is tried again or dies of it: a rate limit is the lane's.
    if let Verdict::Retry { cooldown_until_ms: Some(until_ms), .. }
    | Verdict::Die { cooldown_until_ms: Some(until_ms), .. } = settlement.verdict
    {
        lanes::cool_down(transaction, &job.kind, job.lane.as_deref(), until_ms)?;
    }
    let (ended, dead_letter) = carry_out(transaction, keys, settlement, &job)?;
    lanes::let_go(transaction, &job.kind, job.lane.as_deref(), 1)?;
    if let Some(version_id) = job.version_id {
        handlers::retire_if_drained(transaction, version_id)?;
    }
    fail::fail_point!("settle.before_commit");
    Ok(Settled::Applied { ended, dead_letter })
}

/// Does what the verdict says. Answers the state that the job ended in, and the dead letter.
fn carry_out(
    transaction: &Transaction<'_>,
    keys: &Keys,
    settlement: &Settlement,
    job: &JobRow,
) -> Result<(Option<JobState>, Option<i64>), StoreError> {
    let (id, now_ms) = (settlement.token.job.0, settlement.now_ms);
    // The guest ended by itself while somebody asked for the job to be cancelled: it is neither run again nor buried.
    let is_success = matches!(settlement.verdict, Verdict::Complete { .. } | Verdict::Suppress { .. });
    let verdict = if job.cancel_requested && !is_success { &Verdict::Cancel } else { &settlement.verdict };
    match verdict {
        Verdict::Complete { output } => {
            apply_effects(transaction, keys, settlement, job)?;
            let sealed = output.as_ref().map(|output| keys.sealer.seal(Purpose::JobResult, id, output)).transpose()?;
            end(transaction, job.ending(id), JobState::Done, now_ms, None, sealed.as_deref())?;
            Ok((Some(JobState::Done), None))
        }
        Verdict::Suppress { reason } => {
            apply_effects(transaction, keys, settlement, job)?;
            end(transaction, job.ending(id), JobState::Suppressed, now_ms, Some(reason), None)?;
            Ok((Some(JobState::Suppressed), None))
        }
        Verdict::Cancel => {
            effects::forget(transaction, id)?;
            end(transaction, job.ending(id), JobState::Cancelled, now_ms, None, None)?;
            Ok((Some(JobState::Cancelled), None))
        }
        Verdict::Die { cause, .. } => Ok((Some(JobState::Dead), Some(bury(transaction, settlement, job, *cause)?))),
        Verdict::Retry { visible_at_ms, .. } => {
            wait(transaction, settlement, job, *visible_at_ms, false).map(|()| (None, None))
        }
        Verdict::Release { visible_at_ms } => {
            wait(transaction, settlement, job, *visible_at_ms, true).map(|()| (None, None))
        }
    }
}

/// The row, if the token still holds its lease.
fn fenced_row(connection: &Connection, settlement: &Settlement) -> Result<Option<JobRow>, StoreError> {
    let expired_by = if settlement.only_if_expired { settlement.now_ms } else { i64::MAX };
    let token = settlement.token;
    Ok(connection
        .prepare_cached(
            "SELECT kind, lane, priority, attempts_used, version_id, replay_id, enqueued_by, cancel_requested FROM jobs
             WHERE id = ?1 AND attempt = ?2 AND state = 2 AND lease_expires_at <= ?3",
        )?
        .query_row((token.job.0, token.attempt.0, expired_by), |row| {
            Ok(JobRow {
                kind: row.get(0)?,
                lane: row.get(1)?,
                priority: row.get(2)?,
                attempts_used: row.get(3)?,
                version_id: row.get(4)?,
                replay_id: row.get(5)?,
                enqueued_by: row.get(6)?,
                cancel_requested: row.get(7)?,
            })
        })
        .optional()?)
}

/// Whether the attempt was open until now.
fn record_end(connection: &Connection, settlement: &Settlement) -> Result<bool, StoreError> {
    let text = &settlement.attempt;
    let counted = !matches!(settlement.verdict, Verdict::Release { .. });
    let ended = connection
        .prepare_cached(
            "UPDATE attempts SET ended_at = ?3, ended_as = ?4, counted = ?5, error_class = ?6, message = ?7, log = ?8, trap = ?9
             WHERE job_id = ?1 AND number = ?2 AND ended_at IS NULL",
        )?
        .execute(params![
            settlement.token.job.0,
            settlement.token.attempt.0,
            settlement.now_ms,
            text.ended_as,
            counted,
            text.error_class,
            text.message,
            text.log,
            text.trap
        ])?;
    Ok(ended == 1)
}

fn apply_effects(
    transaction: &Transaction<'_>,
    keys: &Keys,
    settlement: &Settlement,
    job: &JobRow,
) -> Result<(), StoreError> {
    let context = EnqueueContext { now_ms: settlement.now_ms, priority_step_ms: settlement.priority_step_ms };
    let by = MadeBy { job: settlement.token.job.0, kind: &job.kind, enqueued_by: &job.enqueued_by };
    effects::apply(transaction, keys, &settlement.effects, by, context)
}

/// Puts a job back to wait. A release gives its attempt back.
fn wait(
    transaction: &Transaction<'_>,
    settlement: &Settlement,
    job: &JobRow,
    visible_at_ms: TimestampMs,
    is_release: bool,
) -> Result<(), StoreError> {
    transaction
        .prepare_cached(
            "UPDATE jobs SET state = 0, visible_at = ?2, place = ?3, lease_expires_at = NULL, deadline_at = NULL,
                             version_id = NULL, unclean_stops = ?5, attempts_used = attempts_used - ?4,
                             releases_running = CASE ?4 WHEN 1 THEN releases_running + 1 ELSE 0 END
             WHERE id = ?1",
        )?
        .execute(params![
            settlement.token.job.0,
            visible_at_ms,
            place_in_line(visible_at_ms, job.priority, settlement.priority_step_ms),
            i64::from(is_release && job.attempts_used > 0),
            settlement.unclean_stops
        ])?;
    transaction.moved(&job.kind, Standing::Leased, Standing::Waiting);
    Ok(())
}

/// A job that is to leave the queue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ending<'a> {
    pub(crate) id: i64,
    pub(crate) kind: &'a str,
    /// Where it stood until now.
    pub(crate) from: Standing,
    pub(crate) replay_id: Option<i64>,
}

/// Moves a job out of the queue. Its payload goes with the row.
pub(crate) fn end(
    transaction: &Transaction<'_>,
    job: Ending<'_>,
    state: JobState,
    now_ms: TimestampMs,
    reason: Option<&str>,
    result_sealed: Option<&[u8]>,
) -> Result<(), StoreError> {
    transaction
        .prepare_cached(
            "INSERT INTO ended_jobs (id, kind, lane, state, priority, attempt, attempts_used, enqueued_at, enqueued_by,
                                     ended_at, reason, content_type, payload_bytes, payload_digest, key_digest,
                                     extras_sealed, result_sealed)
             SELECT id, kind, lane, ?2, priority, attempt, attempts_used, enqueued_at, enqueued_by,
                    ?3, ?4, content_type, payload_bytes, payload_digest, key_digest, extras_sealed, ?5
             FROM jobs WHERE id = ?1",
        )?
        .execute(params![job.id, state.as_str(), now_ms, reason, result_sealed])?;
    if let Some(replay) = job.replay_id {
        transaction.prepare_cached("UPDATE replays SET result = ?2, ended_at = ?3 WHERE id = ?1")?.execute(params![
            replay,
            state.as_str(),
            now_ms
        ])?;
    }
    transaction.prepare_cached("DELETE FROM jobs WHERE id = ?1")?.execute([job.id])?;
    transaction.left(job.kind, job.from);
    if state != JobState::Dead {
        transaction.count_untrimmed(1);
    }
    Ok(())
}

/// The job leaves the queue and enters the dead letters, in one transaction: a crash leaves it in one of the two.
fn bury(transaction: &Transaction<'_>, settlement: &Settlement, job: &JobRow, cause: Cause) -> Result<i64, StoreError> {
    let id = settlement.token.job.0;
    let text = settlement
        .dead_letter
        .as_ref()
        .ok_or_else(|| StoreError::Unexpected(format!("a death of job {id} without its redacted view")))?;
    fail::fail_point!("dead_letter.write", |_| Err(StoreError::Unexpected("a crash point failed the write".into())));
    transaction
        .prepare_cached(
            "INSERT INTO dead_letters (job_id, kind, lane, died_at, cause, error_class, message, version, digest,
                                       attempt, replay_id, view, masked_key, payload_sealed, payload_digest)
             SELECT j.id, j.kind, j.lane, ?2, ?3, ?4, ?5, a.version, a.digest, j.attempt, ?6, ?7, ?8,
                    CASE ?9 WHEN 1 THEN j.payload_sealed END, j.payload_digest
             FROM jobs j LEFT JOIN attempts a ON a.job_id = j.id AND a.number = j.attempt
             WHERE j.id = ?1",
        )?
        .execute(params![
            id,
            settlement.now_ms,
            cause.as_str(),
            settlement.attempt.error_class.as_deref().unwrap_or(leasehold_domain::error_class::UNCLASSIFIED),
            settlement.attempt.message.as_deref().unwrap_or(""),
            job.replay_id,
            text.view,
            text.masked_key,
            text.keep_original
        ])?;
    let dead_letter = transaction.last_insert_rowid();
    arrivals::count(transaction, dead_letter, text.page_after)?;
    end(transaction, job.ending(id), JobState::Dead, settlement.now_ms, None, None)?;
    Ok(dead_letter)
}
