//! What ends or resumes the turns of a bulk replay's members: an operator, its probe's end, and its last member. Each is
//! one transaction; an operator's act has its audit row in it.

use leasehold_domain::{
    BulkReplayId, Digest, HandlerName, HandlerVersion, TimestampMs,
    bulk_replay::BulkState,
    replay::{ReplayRefusal, live_target},
};
use rusqlite::{Connection, OptionalExtension, params};
use serde_json::json;

use crate::{Store, StoreError, audit, handlers, writer::Urgency};

/// What became of a request to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// No further member goes.
    Now,
    /// It had stopped before.
    Already,
    /// Every member has had its turn.
    IsDone,
    /// There is no such bulk replay.
    NotFound,
}

/// What became of a request to resume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resumed {
    /// It goes on.
    Now,
    /// It was running.
    Already,
    /// Every member has had its turn.
    IsDone,
    /// The version that its members are bound to is not live.
    Refused(ReplayRefusal),
    /// There is no such bulk replay.
    NotFound,
}

impl Store {
    /// Stops a bulk replay for an operator.
    pub async fn stop_bulk_replay(
        &self,
        id: BulkReplayId,
        actor: &str,
        now_ms: TimestampMs,
    ) -> Result<Stopped, StoreError> {
        let actor = actor.to_owned();
        self.write_usual(move |connection| match state_of(connection, id)? {
            None => Ok(Stopped::NotFound),
            Some(BulkState::Stopped) => Ok(Stopped::Already),
            Some(BulkState::Done) => Ok(Stopped::IsDone),
            Some(BulkState::Running) => {
                stop(connection, id, Some(&actor), &format!("stopped by {actor}"), now_ms)?;
                audit::write(connection, now_ms, &actor, "bulk_replay.stop", &id.to_string(), &json!({}))?;
                Ok(Stopped::Now)
            }
        })
        .await
    }

    /// Lets a stopped bulk replay go on, if its version is live. One whose probe failed tries its next member first.
    pub async fn resume_bulk_replay(
        &self,
        id: BulkReplayId,
        handler: &HandlerName,
        damaged: Vec<Digest>,
        actor: &str,
        now_ms: TimestampMs,
    ) -> Result<Resumed, StoreError> {
        let (handler, actor) = (handler.clone(), actor.to_owned());
        self.write_usual(move |connection| match state_of(connection, id)? {
            None => Ok(Resumed::NotFound),
            Some(BulkState::Running) => Ok(Resumed::Already),
            Some(BulkState::Done) => Ok(Resumed::IsDone),
            Some(BulkState::Stopped) => resume(connection, id, &handler, &damaged, &actor, now_ms),
        })
        .await
    }

    /// Stops a bulk replay that can't go on by itself.
    pub async fn halt_bulk_replay(
        &self,
        id: BulkReplayId,
        reason: &str,
        now_ms: TimestampMs,
    ) -> Result<(), StoreError> {
        let reason = reason.to_owned();
        self.write_usual(move |connection| stop(connection, id, None, &reason, now_ms)).await
    }

    /// Lets the rest go after a probe that ended well.
    pub async fn pass_probe(&self, id: BulkReplayId) -> Result<(), StoreError> {
        self.write_usual(move |connection| note_probe(connection, id, "passed")).await
    }

    /// Stops a bulk replay whose probe did not end well, and answers the reason. Whoever resumes it tries another one.
    pub async fn fail_probe(&self, id: BulkReplayId, now_ms: TimestampMs) -> Result<String, StoreError> {
        self.write_usual(move |connection| {
            let reason = why_it_failed(connection, id)?;
            note_probe(connection, id, "wanted")?;
            stop(connection, id, None, &reason, now_ms)?;
            Ok(reason)
        })
        .await
    }

    /// Ends a bulk replay whose members have all had their turn. False when one has not.
    pub async fn finish_bulk_replay(&self, id: BulkReplayId, now_ms: TimestampMs) -> Result<bool, StoreError> {
        self.write_usual(move |connection| {
            let changed = connection
                .prepare_cached(
                    "UPDATE bulk_replays SET state = 'done', done_at = ?2
                     WHERE id = ?1 AND state = 'running' AND NOT EXISTS (
                         SELECT 1 FROM bulk_replay_members WHERE bulk_replay_id = ?1 AND state = 'pending')",
                )?
                .execute([id.0, now_ms])?;
            Ok(changed > 0)
        })
        .await
    }

    async fn write_usual<T: Send + 'static>(
        &self,
        mut operation: impl FnMut(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.shared.writer.call(Urgency::Usual, move |transaction| operation(transaction)).await
    }
}

fn state_of(connection: &Connection, id: BulkReplayId) -> Result<Option<BulkState>, StoreError> {
    let state: Option<String> = connection
        .prepare_cached("SELECT state FROM bulk_replays WHERE id = ?1")?
        .query_row([id.0], |row| row.get(0))
        .optional()?;
    let known = |state: String| {
        BulkState::parse(&state).ok_or_else(|| StoreError::Unexpected(format!("bulk replay state {state:?}")))
    };
    state.map(known).transpose()
}

pub(super) fn stop(
    connection: &Connection,
    id: BulkReplayId,
    actor: Option<&str>,
    reason: &str,
    now_ms: TimestampMs,
) -> Result<(), StoreError> {
    connection
        .prepare_cached(
            "UPDATE bulk_replays SET state = 'stopped', stopped_at = ?2, stopped_by = ?3, stop_reason = ?4
             WHERE id = ?1 AND state = 'running'",
        )?
        .execute(params![id.0, now_ms, actor, reason])?;
    Ok(())
}

fn resume(
    connection: &Connection,
    id: BulkReplayId,
    handler: &HandlerName,
    damaged: &[Digest],
    actor: &str,
    now_ms: TimestampMs,
) -> Result<Resumed, StoreError> {
    let version: String = connection
        .prepare_cached("SELECT version FROM bulk_replays WHERE id = ?1")?
        .query_row([id.0], |row| row.get(0))?;
    let version: HandlerVersion =
        version.parse().map_err(|_| StoreError::Unexpected(format!("handler version {version:?}")))?;
    let candidates = handlers::candidates(connection, handler.as_str(), damaged)?;
    if let Err(refusal) = live_target(&candidates, Some(&version)) {
        return Ok(Resumed::Refused(refusal));
    }
    connection
        .prepare_cached(
            "UPDATE bulk_replays SET state = 'running', going_since = ?2, stopped_at = NULL, stopped_by = NULL, stop_reason = NULL
             WHERE id = ?1",
        )?
        .execute([id.0, now_ms])?;
    audit::write(connection, now_ms, actor, "bulk_replay.resume", &id.to_string(), &json!({}))?;
    Ok(Resumed::Now)
}

fn note_probe(connection: &Connection, id: BulkReplayId, probe: &str) -> Result<(), StoreError> {
    connection
        .prepare_cached(
            "UPDATE bulk_replays SET probe = ?2, probe_replay_id = NULL, probe_result = NULL WHERE id = ?1",
        )?
        .execute(params![id.0, probe])?;
    Ok(())
}

/// The replay and the dead letter may be forgotten by now, when it was stopped for long; how the probe ended is not.
fn why_it_failed(connection: &Connection, id: BulkReplayId) -> Result<String, StoreError> {
    let (result, replay, job): (Option<String>, Option<i64>, Option<i64>) = connection
        .prepare_cached(
            "SELECT b.probe_result, r.id, r.job_id FROM bulk_replays b LEFT JOIN replays r ON r.id = b.probe_replay_id
             WHERE b.id = ?1",
        )?
        .query_row([id.0], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    let letter: Option<(i64, String, String)> = connection
        .prepare_cached("SELECT id, cause, error_class FROM dead_letters WHERE job_id = ?1 AND replay_id = ?2")?
        .query_row([job, replay], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .optional()?;
    let result = result.unwrap_or_default();
    Ok(match (letter, job) {
        (Some((letter, cause, class)), Some(job)) => {
            format!("the probe died: job {job} is dead letter {letter}, of {cause}, with {class}")
        }
        (_, Some(job)) => format!("the probe, job {job}, ended as {result}"),
        (_, None) => format!("the probe ended as {result}"),
    })
}
