//! Bulk replays in the store alone: their turns and what is recorded of them, what ends and resumes them, how many members
//! there may be, and databases from before them.

use std::{collections::BTreeMap, fs};

use leasehold_domain::{
    BulkReplayId, DeadLetterId, Digest, HandlerName, JobId, JobState, Kind, ReplayId, TimestampMs, Verdict,
    bulk_replay::{BulkState, Probe},
    replay::ReplayRefusal,
};
use leasehold_store::{
    AuditFilter, BULK_MEMBERS_MAX, BulkMember, BulkMemberFilter, BulkReplayRecord, BulkRun, BulkSettings, Page,
    Preview, Previewed, Resumed, Selection, StartBulkReplay, Started, Stopped, Store, Turn, TurnTaken,
};
use rusqlite::Connection;
use serde_json::{Value, json};

use crate::queue::{PRIORITY_STEP_MS, Queue, complete, die, options, settlement};

/// All dead letters of kind `k`, onto the current version.
pub fn settings(now_ms: TimestampMs) -> BulkSettings {
    BulkSettings {
        selection: Selection {
            kind: Kind::new("k").unwrap(),
            error_class: None,
            cause: None,
            died_on: None,
            since_ms: None,
            until_ms: None,
        },
        version: None,
        override_reason: Some("as told".into()),
        handler: HandlerName::new("h").unwrap(),
        damaged: Vec::new(),
        begin_again: false,
        now_ms,
    }
}

pub async fn preview(queue: &Queue, settings: BulkSettings) -> Preview {
    let previewed = queue.store.preview_bulk_replay(settings).await.unwrap();
    let Previewed::Seen(preview) = previewed else { panic!("there are too many") };
    *preview
}

pub fn start(settings: BulkSettings, token: String) -> StartBulkReplay {
    StartBulkReplay {
        settings,
        token,
        actor: "jo".into(),
        reason: "mended".into(),
        rate: Some("20/s".parse().unwrap()),
        probe: false,
    }
}

/// A queue with dead letters and a bulk replay of them that has begun.
pub async fn begun(letters: usize, probe: bool) -> (Queue, BulkReplayId, Vec<DeadLetterId>) {
    let queue = Queue::new().await;
    for _ in 0..letters {
        queue.enqueue_one(0).await;
        let claimed = queue.lease(1).await;
        queue.settle(settlement(&claimed, die(), 2)).await;
    }
    let (token, _) = preview(&queue, settings(3)).await.token.unwrap();
    let start = StartBulkReplay { probe, ..start(settings(3), token) };
    let Started::Now(id) = queue.store.start_bulk_replay(start).await.unwrap() else { panic!("it was not started") };
    let pending = queue.store.running_bulk_replays(letters).await.unwrap().remove(0).pending;
    assert_eq!(pending.len(), letters);
    (queue, id, pending)
}

fn turn(bulk_replay: BulkReplayId, dead_letter: DeadLetterId) -> Turn {
    Turn {
        bulk_replay,
        dead_letter,
        handler: HandlerName::new("h").unwrap(),
        damaged: Vec::new(),
        begin_again: false,
        now_ms: 4,
        priority_step_ms: PRIORITY_STEP_MS,
    }
}

async fn take_turn(queue: &Queue, bulk_replay: BulkReplayId, dead_letter: DeadLetterId) -> TurnTaken {
    queue.store.take_turn(turn(bulk_replay, dead_letter)).await.unwrap()
}

async fn resume(queue: &Queue, id: BulkReplayId, damaged: Vec<Digest>, now_ms: TimestampMs) -> Resumed {
    queue.store.resume_bulk_replay(id, &HandlerName::new("h").unwrap(), damaged, "jo", now_ms).await.unwrap()
}

async fn record(queue: &Queue, id: BulkReplayId) -> BulkReplayRecord {
    queue.store.bulk_replay(id).await.unwrap().unwrap()
}

#[tokio::test]
async fn r6_a_member_has_one_turn_and_none_once_its_bulk_replay_has_stopped() {
    let (queue, id, letters) = begun(2, false).await;
    assert!(matches!(take_turn(&queue, id, letters[0]).await, TurnTaken::Replayed(_)));
    assert_eq!(take_turn(&queue, id, letters[0]).await, TurnTaken::Over, "a member had two turns");
    assert!(!queue.store.finish_bulk_replay(id, 5).await.unwrap(), "a member has had no turn");
    assert_eq!(queue.store.stop_bulk_replay(id, "jo", 5).await.unwrap(), Stopped::Now);
    let before = queue.contents();
    assert_eq!(take_turn(&queue, id, letters[1]).await, TurnTaken::Over, "it had stopped");
    assert_eq!(take_turn(&queue, id, DeadLetterId(4711)).await, TurnTaken::Over);
    assert_eq!(queue.contents(), before);
}

#[tokio::test]
async fn r6_no_member_goes_beside_a_probe() {
    let (queue, id, letters) = begun(3, true).await;
    assert!(matches!(take_turn(&queue, id, letters[0]).await, TurnTaken::Replayed(_)));
    assert_eq!(take_turn(&queue, id, letters[1]).await, TurnTaken::Over);
    let claimed = queue.lease(10).await;
    queue.settle(settlement(&claimed, complete(), 11)).await;
    // Its end alone is not enough: it has to be judged.
    assert_eq!(take_turn(&queue, id, letters[1]).await, TurnTaken::Over);
    queue.store.pass_probe(id).await.unwrap();
    for letter in &letters[1..] {
        assert!(matches!(take_turn(&queue, id, *letter).await, TurnTaken::Replayed(_)));
    }
    assert!(queue.store.finish_bulk_replay(id, 12).await.unwrap());
}

#[tokio::test]
async fn r6_a_bulk_replay_tells_how_far_it_is_and_what_became_of_each_member() {
    let (queue, id, letters) = begun(4, false).await;
    for (letter, verdict) in [(letters[0], complete()), (letters[2], die())] {
        assert!(matches!(take_turn(&queue, id, letter).await, TurnTaken::Replayed(_)));
        let claimed = queue.lease(5).await;
        queue.settle(settlement(&claimed, verdict, 6)).await;
    }
    queue.store.discard(letters[1], "jo", "given up", 7).await.unwrap();
    let refused = TurnTaken::Refused { code: "already_discarded".into() };
    assert_eq!(take_turn(&queue, id, letters[1]).await, refused);
    assert_eq!(queue.store.stop_bulk_replay(id, "ann", 8).await.unwrap(), Stopped::Now);
    let detail = "dead letter 2 is discarded already";
    let expected = BulkReplayRecord {
        id,
        state: BulkState::Stopped,
        selection: settings(3).selection,
        actor: "jo".into(),
        reason: "mended".into(),
        override_reason: Some("as told".into()),
        version: "h@1.0.0".into(),
        digest: Digest::of(b"h"),
        rate: Some("20/s".parse().unwrap()),
        has_probe: false,
        is_probing: false,
        started_at_ms: 3,
        stopped_at_ms: Some(8),
        stopped_by: Some("ann".into()),
        stop_reason: Some("stopped by ann".into()),
        done_at_ms: None,
        left_out_closed: 0,
        left_out_elsewhere: 0,
        members: 4,
        replayed: 2,
        refused: 1,
        ended: BTreeMap::from([("done", 1), ("suppressed", 0), ("dead", 1), ("cancelled", 0)]),
        refusals: vec![("already_discarded".into(), 1, detail.into())],
    };
    assert_eq!(record(&queue, id).await, expected);
    let listed = BulkReplayRecord { refusals: Vec::new(), ..expected };
    assert_eq!(queue.store.bulk_replays(None, 10).await.unwrap(), Page { items: vec![listed], next: None });
    let pending = BulkMember {
        dead_letter: letters[3],
        job: JobId(4),
        state: "pending".into(),
        at_ms: None,
        replay: None,
        result: None,
        code: None,
        detail: None,
    };
    let had_its_turn = |number: i64, state: &str| BulkMember {
        dead_letter: DeadLetterId(number),
        job: JobId(number),
        state: state.into(),
        at_ms: Some(4),
        ..pending.clone()
    };
    let replayed = |number, replay, result: &str| BulkMember {
        replay: Some(ReplayId(replay)),
        result: Some(result.into()),
        ..had_its_turn(number, "replayed")
    };
    let refused = BulkMember {
        code: Some("already_discarded".into()),
        detail: Some(detail.into()),
        ..had_its_turn(2, "refused")
    };
    let items = vec![replayed(1, 1, "done"), refused, replayed(3, 2, "dead"), pending];
    let members = queue.store.bulk_members(id, BulkMemberFilter::default(), 10).await.unwrap();
    assert_eq!(members, Page { items, next: None });
}

#[tokio::test]
async fn r6_a_bulk_replay_whose_probe_failed_stops_and_tries_another_one_once_it_is_resumed() {
    let (queue, id, letters) = begun(3, true).await;
    let running = || async { queue.store.running_bulk_replays(1).await.unwrap().pop() };
    let wanted = BulkRun {
        id,
        kind: Kind::new("k").unwrap(),
        going_since_ms: 3,
        rate: Some("20/s".parse().unwrap()),
        probe: Probe::Wanted,
        pending: vec![letters[0]],
    };
    assert_eq!(running().await, Some(wanted.clone()), "the next member alone was asked for");
    take_turn(&queue, id, letters[0]).await;
    let out = BulkRun { probe: Probe::Out, pending: vec![letters[1]], ..wanted.clone() };
    assert_eq!(running().await, Some(out.clone()));
    let claimed = queue.lease(5).await;
    queue.settle(settlement(&claimed, die(), 6)).await;
    assert_eq!(running().await, Some(BulkRun { probe: Probe::Ended(JobState::Dead), ..out }));
    let died = "the probe died: job 1 is dead letter 4, of poison, with unclassified";
    assert_eq!(queue.store.fail_probe(id, 7).await.unwrap(), died);
    assert_eq!(running().await, None);
    let stopped = record(&queue, id).await;
    assert_eq!((stopped.state, stopped.stopped_by, stopped.stop_reason), (BulkState::Stopped, None, Some(died.into())));
    assert!(stopped.has_probe && stopped.is_probing);
    assert_eq!(resume(&queue, id, Vec::new(), 8).await, Resumed::Now);
    let again = BulkRun { going_since_ms: 8, pending: vec![letters[1]], ..wanted };
    assert_eq!(running().await, Some(again.clone()));
    take_turn(&queue, id, letters[1]).await;
    let claimed = queue.lease(9).await;
    queue.settle(settlement(&claimed, Verdict::Cancel, 10)).await;
    assert_eq!(queue.store.fail_probe(id, 11).await.unwrap(), "the probe, job 2, ended as cancelled");
    resume(&queue, id, Vec::new(), 12).await;
    queue.store.pass_probe(id).await.unwrap();
    let passed = BulkRun { going_since_ms: 12, probe: Probe::NotNeeded, pending: vec![letters[2]], ..again };
    assert_eq!(running().await, Some(passed));
    assert!(!record(&queue, id).await.is_probing);
}

#[tokio::test]
async fn r6_a_bulk_replay_goes_on_only_while_its_version_is_live_and_until_its_last_member() {
    let (queue, id, letters) = begun(1, false).await;
    let damaged = || vec![Digest::of(b"h")];
    let refusal = ReplayRefusal::VersionNotLive {
        wanted: "h@1.0.0".into(),
        state: "its stored component is missing or damaged".into(),
        live: "none".into(),
    };
    let reason = format!("no member can go: {refusal}");
    let stopped = queue.store.take_turn(Turn { damaged: damaged(), ..turn(id, letters[0]) }).await.unwrap();
    assert_eq!(stopped, TurnTaken::Stopped { reason: reason.clone() });
    let now = record(&queue, id).await;
    assert_eq!((now.stopped_at_ms, now.stopped_by, now.stop_reason), (Some(4), None, Some(reason)));
    assert_eq!(queue.store.stop_bulk_replay(id, "jo", 5).await.unwrap(), Stopped::Already);
    assert_eq!(resume(&queue, id, damaged(), 6).await, Resumed::Refused(refusal));
    assert_eq!(resume(&queue, id, Vec::new(), 6).await, Resumed::Now);
    assert_eq!(resume(&queue, id, Vec::new(), 7).await, Resumed::Already);
    queue.store.halt_bulk_replay(id, "the kind is gone", 8).await.unwrap();
    let now = record(&queue, id).await;
    assert_eq!((now.stopped_at_ms, now.stopped_by, now.stop_reason), (Some(8), None, Some("the kind is gone".into())));
    resume(&queue, id, Vec::new(), 9).await;
    take_turn(&queue, id, letters[0]).await;
    assert!(queue.store.finish_bulk_replay(id, 10).await.unwrap());
    assert!(!queue.store.finish_bulk_replay(id, 11).await.unwrap(), "it is done already");
    let now = record(&queue, id).await;
    assert_eq!((now.state, now.done_at_ms), (BulkState::Done, Some(10)));
    assert_eq!(queue.store.stop_bulk_replay(id, "jo", 12).await.unwrap(), Stopped::IsDone);
    assert_eq!(resume(&queue, id, Vec::new(), 12).await, Resumed::IsDone);
    assert_eq!(queue.store.stop_bulk_replay(BulkReplayId(9), "jo", 12).await.unwrap(), Stopped::NotFound);
    assert_eq!(resume(&queue, BulkReplayId(9), Vec::new(), 12).await, Resumed::NotFound);
}

#[tokio::test]
async fn o5_who_starts_stops_and_resumes_a_bulk_replay_is_in_the_audit_log() {
    let (queue, id, _) = begun(2, false).await;
    queue.store.stop_bulk_replay(id, "ann", 5).await.unwrap();
    resume(&queue, id, Vec::new(), 6).await;
    let filter = AuditFilter { action: Some("bulk_replay".into()), ..AuditFilter::default() };
    let entries = queue.store.audit(filter, 10).await.unwrap().items;
    let acts: Vec<_> = entries
        .iter()
        .map(|entry| {
            let detail: Value = serde_json::from_str(&entry.detail).unwrap();
            (entry.at_ms, entry.actor.as_str(), entry.action.as_str(), entry.subject.as_str(), detail)
        })
        .collect();
    let selection = json!({
        "kind": "k", "error_class": null, "cause": null, "died_on": null, "since_ms": null, "until_ms": null,
    });
    let started = json!({
        "selection": selection, "version": "h@1.0.0", "members": 2, "reason": "mended", "override_reason": "as told",
        "rate": "20/s", "probe": false,
    });
    let expected = [
        (6, "jo", "bulk_replay.resume", "1", json!({})),
        (5, "ann", "bulk_replay.stop", "1", json!({})),
        (3, "jo", "bulk_replay.start", "1", started),
    ];
    assert_eq!(acts, expected);
}

#[tokio::test]
async fn r6_more_dead_letters_than_one_transaction_may_hold_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(&options(directory.path())).unwrap();
    let connection = Connection::open(options(directory.path()).database()).unwrap();
    let sql = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i <= ?1)
               INSERT INTO dead_letters (job_id, kind, died_at, cause, error_class, message, attempt, view, masked_key)
               SELECT i, 'k', i, 'rejected', 'c', '', 1, '{}', '' FROM n";
    assert_eq!(connection.execute(sql, [BULK_MEMBERS_MAX]).unwrap(), BULK_MEMBERS_MAX + 1);
    assert_eq!(store.preview_bulk_replay(settings(0)).await.unwrap(), Previewed::TooMany);
    let mut fewer = settings(0);
    fewer.selection.until_ms = Some(11);
    let Previewed::Seen(preview) = store.preview_bulk_replay(fewer).await.unwrap() else { panic!("ten are not many") };
    assert_eq!(preview.matching, 10);
}

#[tokio::test]
async fn r6_a_database_from_before_bulk_replays_is_brought_up_to_date_with_its_replays() {
    let directory = tempfile::tempdir().unwrap();
    let path = options(directory.path()).database();
    let first = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/migrations/0001_queue.sql")).unwrap();
    let connection = Connection::open(&path).unwrap();
    connection.execute_batch(&first).unwrap();
    connection
        .execute_batch(
            "PRAGMA user_version = 1;
             INSERT INTO handler_versions (name, version, digest, size_bytes, state, stored_at, stored_by)
             VALUES ('h', '1.0.0', zeroblob(32), 1, 'retired', 0, 'jo');
             INSERT INTO dead_letters (job_id, kind, died_at, cause, error_class, message, attempt, view, masked_key, state)
             VALUES (1, 'k', 0, 'rejected', 'c', '', 1, '{}', '', 'replayed');
             INSERT INTO replays (dead_letter_id, job_id, number, actor, reason, at, version_id, version, digest,
                                  payload_corrected)
             VALUES (1, 1, 1, 'jo', 'mended', 0, 1, 'h@1.0.0', zeroblob(32), 0);",
        )
        .unwrap();
    drop(connection);
    let store = Store::open(&options(directory.path())).unwrap();
    let letter = store.dead_letter(DeadLetterId(1)).await.unwrap().unwrap();
    assert_eq!((letter.replays.len(), letter.replays[0].bulk_replay), (1, None));
    assert!(store.bulk_replays(None, 10).await.unwrap().items.is_empty());
    store.close();
    // From now on the database itself refuses a second replay of a dead letter.
    let again = "INSERT INTO replays (dead_letter_id, job_id, number, actor, reason, at, version_id, version, digest,
                                      payload_corrected)
                 SELECT dead_letter_id, job_id, 2, actor, reason, at, version_id, version, digest, 0 FROM replays";
    let refused = Connection::open(&path).unwrap().execute(again, []).unwrap_err();
    assert!(refused.to_string().contains("UNIQUE"), "{refused}");
}
