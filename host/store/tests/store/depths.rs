//! How deep each kind is: counted as jobs move, and filled in for a database of the first schema.

use leasehold_domain::TimestampMs;
use leasehold_store::{KindClaim, KindDepth, Store};
use rusqlite::Connection;

use crate::queue::{Queue, complete, job, kind, lane_job, options, retry, settlement};

fn depth(kind: &str, [waiting, ready, leased]: [u64; 3], oldest_ready_at_ms: Option<TimestampMs>) -> KindDepth {
    KindDepth { kind: kind.into(), waiting, ready, leased, oldest_ready_at_ms }
}

#[tokio::test]
async fn o1_depths_follow_jobs_through_their_states() {
    let queue = Queue::new().await;
    let depths = || async { queue.store.depths().await.unwrap() };
    let delayed = leasehold_store::EnqueueJob { visible_at_ms: 100, ..job("k") };
    queue.enqueue(vec![lane_job("k", "a"), lane_job("k", "a"), delayed, job("l")], 5).await;
    assert_eq!(depths().await, [depth("k", [1, 2, 0], Some(5)), depth("l", [0, 1, 0], Some(5))]);
    // The second of the lane is held: to whoever asks, it is ready.
    let limited = vec![KindClaim { lane_concurrency: Some(1), ..kind("k") }];
    let leased = queue.claim(limited.clone(), 10, 6).await.jobs;
    assert_eq!(queue.number("SELECT count(*) FROM jobs WHERE held = 1"), 1);
    assert_eq!(depths().await[0], depth("k", [1, 1, 1], Some(5)));
    queue.settle(settlement(&leased[0], retry(50), 7)).await;
    assert_eq!(depths().await[0], depth("k", [2, 1, 0], Some(5)));
    let leased = queue.claim(limited, 10, 8).await.jobs;
    queue.settle(settlement(&leased[0], complete(), 9)).await;
    assert_eq!(depths().await[0], depth("k", [2, 0, 0], None));
    assert!(queue.claim(vec![KindClaim { max: 0, ..kind("k") }], 1, 60).await.jobs.is_empty());
    assert_eq!(depths().await[0], depth("k", [1, 1, 0], Some(50)), "a claim makes ready what is due");
    queue.store.cancel(leased[0].token.job, "tests", 10).await.unwrap();
    assert_eq!(depths().await[0], depth("k", [1, 1, 0], Some(50)), "a job that has ended is not counted twice");
}

#[tokio::test]
async fn o1_an_old_database_is_counted_when_it_is_brought_up_to_date() {
    let directory = tempfile::tempdir().unwrap();
    let database = Connection::open(options(directory.path()).database()).unwrap();
    database.execute_batch(include_str!("../../migrations/0001_queue.sql")).unwrap();
    // Waiting, ready, held and leased, of two kinds.
    for (kind, state, held, visible_at) in
        [("k", 0, 0, 9_000), ("k", 1, 0, 7), ("k", 0, 1, 3), ("k", 2, 0, 1), ("l", 2, 0, 2)]
    {
        database
            .execute(
                "INSERT INTO jobs (kind, state, held, place, visible_at, lease_expires_at, deadline_at, enqueued_at,
                     enqueued_by, content_type, payload_bytes, payload_digest, payload_sealed, extras_sealed)
                 VALUES (?1, ?2, ?3, 0, ?4, iif(?2 = 2, 1, NULL), iif(?2 = 2, 1, NULL), 0, 'tests', '', 0, x'', x'', x'')",
                (kind, state, held, visible_at),
            )
            .unwrap();
    }
    database.execute_batch("PRAGMA user_version = 1").unwrap();
    drop(database);
    let store = Store::open(&options(directory.path())).unwrap();
    let depths = store.depths().await.unwrap();
    assert_eq!(depths, [depth("k", [1, 2, 1], Some(3)), depth("l", [0, 0, 1], None)]);
}

#[test]
fn q17_a_kinds_depth_is_all_of_its_jobs_that_have_not_ended() {
    assert_eq!(depth("k", [1, 2, 4], Some(5)).jobs(), 7);
}
