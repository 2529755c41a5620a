//! Bulk replays in the shape of the wire. It leaves out and adds nothing that changes the meaning.

use leasehold_api::{
    BulkReplayCounts, BulkReplayMember, BulkReplayPreview, BulkReplayState, BulkReplayView, RefusedReplays,
    ReplaySelection, Timestamp,
};
use leasehold_domain::bulk_replay::BulkState;
use leasehold_store::{BulkMember, BulkReplayRecord, Preview, RefusalGroup, Selection};

pub(super) fn preview(preview: Preview) -> BulkReplayPreview {
    let (version, digest) = preview.target.map(|(version, digest)| (version.to_string(), digest.to_string())).unzip();
    let (token, expires_at_ms) = preview.token.unzip();
    BulkReplayPreview {
        matching: preview.matching,
        replayable: preview.replayable,
        version,
        digest,
        by_cause: preview.by_cause,
        by_class: preview.by_class,
        by_version: preview.by_version,
        refused: preview.refusals.into_iter().map(refused).collect(),
        with_applied_steps: preview.with_applied_steps,
        with_steps_in_doubt: preview.with_steps_in_doubt,
        token,
        expires_at: expires_at_ms.map(Timestamp::from_ms),
    }
}

fn refused(group: RefusalGroup) -> RefusedReplays {
    let examples = group.examples.into_iter().map(|letter| letter.0).collect();
    RefusedReplays { code: group.code, count: group.count, detail: group.detail, examples }
}

pub(super) fn bulk_replay(record: BulkReplayRecord) -> BulkReplayView {
    let counts = counts(&record);
    let refusals = record.refusals.into_iter();
    BulkReplayView {
        id: record.id.0,
        state: match record.state {
            BulkState::Running if record.is_probing => BulkReplayState::Probing,
            BulkState::Running => BulkReplayState::Running,
            BulkState::Stopped => BulkReplayState::Stopped,
            BulkState::Done => BulkReplayState::Done,
        },
        settled: record.state != BulkState::Running && counts.running == 0,
        selection: selection(record.selection),
        version: record.version,
        digest: record.digest.to_string(),
        actor: record.actor,
        reason: record.reason,
        override_reason: record.override_reason,
        rate: record.rate.map(|rate| rate.to_string()),
        probe: record.has_probe,
        started_at: Timestamp::from_ms(record.started_at_ms),
        stopped_at: record.stopped_at_ms.map(Timestamp::from_ms),
        stopped_by: record.stopped_by,
        stop_reason: record.stop_reason,
        done_at: record.done_at_ms.map(Timestamp::from_ms),
        counts,
        refused: refusals
            .map(|(code, count, detail)| RefusedReplays { code, count, detail, examples: Vec::new() })
            .collect(),
    }
}

fn counts(record: &BulkReplayRecord) -> BulkReplayCounts {
    let ended = |state: &str| record.ended.get(state).copied().unwrap_or(0);
    BulkReplayCounts {
        members: record.members,
        pending: record.members.saturating_sub(record.replayed + record.refused),
        replayed: record.replayed,
        refused: record.refused,
        running: record.replayed.saturating_sub(record.ended.values().sum()),
        done: ended("done"),
        suppressed: ended("suppressed"),
        dead: ended("dead"),
        cancelled: ended("cancelled"),
        left_out_closed: record.left_out_closed,
        left_out_in_others: record.left_out_elsewhere,
    }
}

fn selection(selection: Selection) -> ReplaySelection {
    ReplaySelection {
        kind: selection.kind.into(),
        class: selection.error_class,
        cause: selection.cause,
        died_on: selection.died_on.map(|version| version.to_string()),
        since: selection.since_ms.map(Timestamp::from_ms),
        until: selection.until_ms.map(Timestamp::from_ms),
    }
}

pub(super) fn bulk_member(member: BulkMember) -> BulkReplayMember {
    BulkReplayMember {
        dead_letter_id: member.dead_letter.0,
        job_id: member.job.0,
        state: member.state,
        at: member.at_ms.map(Timestamp::from_ms),
        replay_id: member.replay.map(|replay| replay.0),
        result: member.result,
        code: member.code,
        detail: member.detail,
    }
}
