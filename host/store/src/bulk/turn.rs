//! The turn of one member: its replay, or why it was refused, in one transaction with the member's row. A crash leaves
//! it pending or done with; there is nothing in between.

use std::sync::Arc;

use leasehold_domain::{
    BulkReplayId, DeadLetterId, Digest, HandlerName, HandlerVersion, JobId, ReplayId, TimestampMs,
    replay::ReplayRefusal,
};
use rusqlite::{Connection, OptionalExtension, params};

use super::stop;
use crate::{
    Store, StoreError,
    keys::Keys,
    replay::{ReplayAnswer, ReplayRequest, replay},
    transaction::Transaction,
    writer::Urgency,
};

/// One member's turn.
#[derive(Debug, Clone)]
pub struct Turn {
    /// The bulk replay.
    pub bulk_replay: BulkReplayId,
    /// The member.
    pub dead_letter: DeadLetterId,
    /// The handler that serves its kind.
    pub handler: HandlerName,
    /// Components that are missing or damaged.
    pub damaged: Vec<Digest>,
    /// Whether steps in doubt are begun again by the kind's policy.
    pub begin_again: bool,
    /// The queue's time.
    pub now_ms: TimestampMs,
    /// How far a step of priority moves a job in line.
    pub priority_step_ms: i64,
}

/// What became of a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TurnTaken {
    /// The job is back in the queue.
    Replayed(JobId),
    /// It was not replayed, for this reason; the next one goes on.
    Refused {
        /// The stable code.
        code: String,
    },
    /// The version that all members are bound to is not live any more, so the bulk replay has stopped.
    Stopped {
        /// Why.
        reason: String,
    },
    /// The bulk replay does not run any more, its probe is out, or the member has had its turn. Nothing was changed.
    Over,
}

impl Store {
    /// Gives a member its turn.
    pub async fn take_turn(&self, turn: Turn) -> Result<TurnTaken, StoreError> {
        self.note_time(turn.now_ms);
        let keys = Arc::clone(&self.shared.keys);
        self.shared
            .writer
            .call(Urgency::Usual, move |transaction| {
                let taken = take(transaction, keys.get()?, &turn)?;
                fail::fail_point!("bulk_replay.turn");
                Ok(taken)
            })
            .await
    }
}

fn take(transaction: &Transaction<'_>, keys: &Keys, turn: &Turn) -> Result<TurnTaken, StoreError> {
    let Some(request) = request(transaction, turn)? else { return Ok(TurnTaken::Over) };
    match replay(transaction, keys, &request)? {
        ReplayAnswer::Replayed { replay, job, .. } => {
            note_replayed(transaction, turn, replay)?;
            Ok(TurnTaken::Replayed(job))
        }
        ReplayAnswer::Refused(refusal @ ReplayRefusal::VersionNotLive { .. }) => {
            let reason = format!("no member can go: {refusal}");
            stop::stop(transaction, turn.bulk_replay, None, &reason, turn.now_ms)?;
            Ok(TurnTaken::Stopped { reason })
        }
        refused => {
            let (code, detail) = refused
                .refusal(turn.dead_letter)
                .ok_or_else(|| StoreError::Unexpected("a replay that was neither made nor refused".into()))?;
            note_refused(transaction, turn, &code, &detail)?;
            Ok(TurnTaken::Refused { code })
        }
    }
}

/// The member's replay as the bulk replay's starter asked for it, if it is the member's turn. It is looked at in the
/// transaction that replays, so that nothing goes after a stop was answered, nor beside a probe.
fn request(connection: &Connection, turn: &Turn) -> Result<Option<ReplayRequest>, StoreError> {
    let found: Option<(String, String, Option<String>, String)> = connection
        .prepare_cached(
            "SELECT b.actor, b.reason, b.override_reason, b.version
             FROM bulk_replay_members m JOIN bulk_replays b ON b.id = m.bulk_replay_id
             WHERE m.bulk_replay_id = ?1 AND m.dead_letter_id = ?2 AND m.state = 'pending'
               AND b.state = 'running' AND b.probe <> 'out'",
        )?
        .query_row([turn.bulk_replay.0, turn.dead_letter.0], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
        })
        .optional()?;
    let Some((actor, reason, override_reason, version)) = found else { return Ok(None) };
    let version: HandlerVersion =
        version.parse().map_err(|_| StoreError::Unexpected(format!("handler version {version:?}")))?;
    Ok(Some(ReplayRequest {
        dead_letter: turn.dead_letter,
        handler: turn.handler.clone(),
        version: Some(version),
        damaged: turn.damaged.clone(),
        actor,
        reason,
        override_reason,
        payload: None,
        resolutions: Vec::new(),
        begin_again: turn.begin_again,
        bulk_replay: Some(turn.bulk_replay),
        now_ms: turn.now_ms,
        priority_step_ms: turn.priority_step_ms,
    }))
}

fn note_replayed(connection: &Connection, turn: &Turn, replay: ReplayId) -> Result<(), StoreError> {
    connection
        .prepare_cached(
            "UPDATE bulk_replay_members SET state = 'replayed', at = ?3, replay_id = ?4
             WHERE bulk_replay_id = ?1 AND dead_letter_id = ?2",
        )?
        .execute([turn.bulk_replay.0, turn.dead_letter.0, turn.now_ms, replay.0])?;
    connection
        .prepare_cached(
            "UPDATE bulk_replays SET replayed = replayed + 1,
                                     probe_replay_id = CASE probe WHEN 'wanted' THEN ?2 END,
                                     probe = CASE probe WHEN 'wanted' THEN 'out' ELSE probe END
             WHERE id = ?1",
        )?
        .execute([turn.bulk_replay.0, replay.0])?;
    Ok(())
}

fn note_refused(connection: &Connection, turn: &Turn, code: &str, detail: &str) -> Result<(), StoreError> {
    connection
        .prepare_cached(
            "UPDATE bulk_replay_members SET state = 'refused', at = ?3, code = ?4, detail = ?5
             WHERE bulk_replay_id = ?1 AND dead_letter_id = ?2",
        )?
        .execute(params![turn.bulk_replay.0, turn.dead_letter.0, turn.now_ms, code, detail])?;
    connection
        .prepare_cached("UPDATE bulk_replays SET refused = refused + 1 WHERE id = ?1")?
        .execute([turn.bulk_replay.0])?;
    Ok(())
}
