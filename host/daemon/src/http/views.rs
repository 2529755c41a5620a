//! What the store holds, in the shape of the wire. It leaves out and adds nothing that changes the meaning.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use leasehold_api::{
    AttemptView, AuditEntry, DeadLetterState, DeadLetterSummary, DeadLetterView, HandlerView, JobSummary, JobView,
    NoteView, ReplayView, StepRunView, StepView, Timestamp,
};
use leasehold_domain::{Digest, redaction::TextMasker};
use leasehold_store::{
    AttemptRecord, DeadLetter, JobRecord, NoteRecord, ReplayRecord, StepRecord, StepRunRecord, VersionRow,
};

pub(super) fn job_summary(job: leasehold_store::JobSummary) -> JobSummary {
    JobSummary {
        id: job.id.0,
        kind: job.kind,
        lane: job.lane.as_deref().map(lane),
        state: job.state,
        priority: job.priority,
        attempt: job.attempt,
        attempts_used: job.attempts_used,
        enqueued_at: Timestamp::from_ms(job.enqueued_at_ms),
        visible_at: job.visible_at_ms.map(Timestamp::from_ms),
        ended_at: job.ended_at_ms.map(Timestamp::from_ms),
        reason: job.reason,
        enqueued_by: job.enqueued_by,
        content_type: job.content_type,
        payload_bytes: job.payload_bytes,
    }
}

/// A lane is kept in the clear, since the queue orders by it; one that looks like personal data is shown masked.
fn lane(lane: &str) -> String {
    TextMasker::by_form().mask(lane).into_owned()
}

pub(super) fn job(job: JobRecord, attempts_max: Option<u32>, result: Option<&[u8]>) -> JobView {
    JobView {
        summary: job_summary(job.summary),
        attempts_max,
        result_base64: result.map(|result| BASE64_STANDARD.encode(result)),
        payload_digest: job.payload_digest,
        attempts: attempts(job.attempts, &job.step_runs),
        steps: steps(job.steps, &job.step_runs),
        dead_letters: job.dead_letters.into_iter().map(dead_letter_summary).collect(),
        replays: job.replays.into_iter().map(replay).collect(),
        notes: job.notes.into_iter().map(note).collect(),
    }
}

fn note(note: NoteRecord) -> NoteView {
    NoteView {
        at: Timestamp::from_ms(note.at_ms),
        class: note.class,
        text: note.text,
        by_job_id: note.by_job.0,
        by_kind: note.by_kind,
    }
}

fn attempts(attempts: Vec<AttemptRecord>, runs: &[StepRunRecord]) -> Vec<AttemptView> {
    attempts.into_iter().map(|record| attempt(record, runs)).collect()
}

fn attempt(attempt: AttemptRecord, runs: &[StepRunRecord]) -> AttemptView {
    // A run of an attempt that has ended, whose own end nobody saw, left its step in doubt.
    let ended = attempt.ended_at_ms.is_some();
    let left_in_doubt = runs.iter().filter(|run| ended && run.attempt == attempt.number && run.ended_as.is_none());
    AttemptView {
        number: attempt.number,
        started_at: Timestamp::from_ms(attempt.leased_at_ms),
        ended_at: attempt.ended_at_ms.map(Timestamp::from_ms),
        handler: attempt.version,
        digest: attempt.digest.map(|digest| digest.to_string()),
        ended_as: attempt.ended_as,
        counted: attempt.counted,
        error_class: attempt.error_class,
        message: attempt.message,
        in_doubt_steps: left_in_doubt.map(|run| run.name.clone()).collect(),
        replay_id: attempt.replay,
        log: attempt.log,
        trap: attempt.trap,
    }
}

fn steps(steps: Vec<StepRecord>, runs: &[StepRunRecord]) -> Vec<StepView> {
    steps.into_iter().map(|record| step(record, runs)).collect()
}

fn step(step: StepRecord, runs: &[StepRunRecord]) -> StepView {
    StepView {
        runs: runs.iter().filter(|run| run.name == step.name).map(step_run).collect(),
        name: step.name,
        state: step.state,
        begun_by_attempt: step.begun_by,
        begun_at: Timestamp::from_ms(step.begun_at_ms),
        applied_at: step.applied_at_ms.map(Timestamp::from_ms),
    }
}

fn step_run(run: &StepRunRecord) -> StepRunView {
    StepRunView {
        attempt: run.attempt,
        begun_at: Timestamp::from_ms(run.begun_at_ms),
        in_doubt: run.in_doubt,
        ended_as: run.ended_as.clone(),
    }
}

fn replay(replay: ReplayRecord) -> ReplayView {
    let (payload_digest_before, payload_digest_after) = replay.payload_digests.unzip();
    ReplayView {
        id: replay.id.0,
        dead_letter_id: replay.dead_letter.0,
        number: replay.number,
        actor: replay.actor,
        reason: replay.reason,
        override_reason: replay.override_reason,
        version: replay.version,
        digest: replay.digest.to_string(),
        payload_corrected: replay.payload_corrected,
        bulk_replay_id: replay.bulk_replay.map(|bulk| bulk.0),
        payload_digest_before,
        payload_digest_after,
        requested_at: Timestamp::from_ms(replay.at_ms),
        result: replay.result,
        ended_at: replay.ended_at_ms.map(Timestamp::from_ms),
    }
}

pub(super) fn dead_letter_summary(letter: leasehold_store::DeadLetterSummary) -> DeadLetterSummary {
    DeadLetterSummary {
        id: letter.id.0,
        job_id: letter.job.0,
        kind: letter.kind,
        lane: letter.lane.as_deref().map(lane),
        cause: letter.cause,
        error_class: letter.error_class,
        message: letter.message,
        // The database allows these three states alone.
        state: DeadLetterState::parse(&letter.state).unwrap_or(DeadLetterState::Open),
        died_at: Timestamp::from_ms(letter.died_at_ms),
        attempt: letter.attempt,
        handler: letter.version,
        digest: letter.digest.map(|digest| digest.to_string()),
    }
}

pub(super) fn dead_letter(letter: DeadLetter) -> DeadLetterView {
    DeadLetterView {
        summary: dead_letter_summary(letter.summary),
        key: letter.masked_key,
        redacted_payload: letter.view,
        original_kept: letter.has_original,
        payload_digest: letter.payload_digest,
        closed_at: letter.closed_at_ms.map(Timestamp::from_ms),
        closed_by: letter.closed_by,
        attempts: attempts(letter.attempts, &letter.step_runs),
        steps: steps(letter.steps, &letter.step_runs),
        replays: letter.replays.into_iter().map(replay).collect(),
        notes: letter.notes.into_iter().map(note).collect(),
    }
}

pub(super) fn handler(row: VersionRow, damaged: &[Digest]) -> HandlerView {
    HandlerView {
        version: row.version.to_string(),
        digest: row.digest.to_string(),
        state: row.state,
        current: row.current,
        intact: !damaged.contains(&row.digest),
        size_bytes: row.size_bytes,
        stored_at: Timestamp::from_ms(row.stored_at_ms),
        stored_by: row.stored_by,
        activated_at: row.activated_at_ms.map(Timestamp::from_ms),
        running: row.running,
    }
}

pub(super) fn audit_entry(entry: leasehold_store::AuditEntry) -> AuditEntry {
    AuditEntry {
        id: entry.id,
        at: Timestamp::from_ms(entry.at_ms),
        actor: entry.actor,
        action: entry.action,
        subject: entry.subject,
        detail: serde_json::from_str(&entry.detail).unwrap_or(serde_json::Value::String(entry.detail)),
    }
}
