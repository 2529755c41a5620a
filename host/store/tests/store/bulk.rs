//! Bulk replays in the store alone: when a turn is none, how many members there may be, and databases from before them.

use std::fs;

use leasehold_domain::{BulkReplayId, DeadLetterId, HandlerName, Kind, TimestampMs};
use leasehold_store::{
    BULK_MEMBERS_MAX, BulkSettings, Previewed, Selection, StartBulkReplay, Started, Stopped, Store, Turn, TurnTaken,
};
use rusqlite::Connection;

use crate::queue::{PRIORITY_STEP_MS, Queue, complete, die, options, settlement};

fn settings(now_ms: TimestampMs) -> BulkSettings {
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

/// A queue with dead letters and a bulk replay of them that has begun.
async fn begun(letters: usize, probe: bool) -> (Queue, BulkReplayId, Vec<DeadLetterId>) {
    let queue = Queue::new().await;
    for _ in 0..letters {
        queue.enqueue_one(0).await;
        let claimed = queue.lease(1).await;
        queue.settle(settlement(&claimed, die(), 2)).await;
    }
    let Previewed::Seen(preview) = queue.store.preview_bulk_replay(settings(3)).await.unwrap() else { panic!() };
    let start = StartBulkReplay {
        settings: settings(3),
        token: preview.token.unwrap().0,
        actor: "jo".into(),
        reason: "mended".into(),
        rate: None,
        probe,
    };
    let Started::Now(id) = queue.store.start_bulk_replay(start).await.unwrap() else { panic!("it was not started") };
    let pending = queue.store.running_bulk_replays(letters).await.unwrap().remove(0).pending;
    assert_eq!(pending.len(), letters);
    (queue, id, pending)
}

async fn take_turn(queue: &Queue, bulk_replay: BulkReplayId, dead_letter: DeadLetterId) -> TurnTaken {
    let turn = Turn {
        bulk_replay,
        dead_letter,
        handler: HandlerName::new("h").unwrap(),
        damaged: Vec::new(),
        begin_again: false,
        now_ms: 4,
        priority_step_ms: PRIORITY_STEP_MS,
    };
    queue.store.take_turn(turn).await.unwrap()
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
