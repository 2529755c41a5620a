//! What the writing thread does about a disk that fails under a commit: the calls of that commit run again one by one, on
//! a connection that was opened anew where an operation failed, and none is answered with success that is not there.

use std::sync::Arc;

use leasehold_domain::{JobKey, Kind, TimestampMs};
use leasehold_store::{EnqueueAnswer, EnqueueJob, Store, StoreError, StoreOptions};
use rusqlite::{Connection, ffi};
use tempfile::TempDir;

use crate::{
    disk::{Disk, Fault, Operation},
    world::{look_into, options},
};

const DATABASE: &str = "leasehold.db";
const LOG: &str = "leasehold.db-wal";
const START_MS: TimestampMs = 1_000_000;
const ALWAYS: u32 = u32::MAX;

struct Queue {
    store: Store,
    disk: Arc<Disk>,
    directory: TempDir,
}

fn job(key: &str, bytes: usize) -> EnqueueJob {
    EnqueueJob {
        kind: Kind::new("k").unwrap(),
        key: Some(JobKey::new(key).unwrap()),
        lane: None,
        content_type: "application/octet-stream".into(),
        payload: vec![b'x'; bytes],
        metadata: Vec::new(),
        run_at_wall_ms: None,
        visible_at_ms: 0,
        priority: 0,
    }
}

impl Queue {
    /// An open queue with a job in it, so that ids are at hand and the log is begun.
    async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let disk = Disk::under_directory(directory.path(), 1);
        // Commits are counted, so none of them moves the log into the database as well.
        let options = StoreOptions { wal_autocheckpoint_pages: 100_000, ..options(&directory) };
        let store = Store::open(&options).unwrap();
        let queue = Self { store, disk, directory };
        queue.enqueue("first", START_MS).await.unwrap();
        queue
    }

    async fn enqueue(&self, key: &str, now_ms: TimestampMs) -> Result<EnqueueAnswer, StoreError> {
        let answers = self.store.enqueue(vec![job(key, 1)], "tests", now_ms, 1, 1_000).await?;
        Ok(answers[0].clone())
    }

    fn fail(&self, operation: Operation, code: i32, times: u32) {
        self.disk.fail(Fault { operation, after: 0, times, code });
    }

    /// What a start after a power cut at this moment finds.
    fn after_power_cut<T>(&self, find: impl FnOnce(&Connection) -> T) -> T {
        let left = self.disk.cut_power();
        find(&Connection::open(left.path().join(DATABASE)).unwrap())
    }
}

fn is_new(answer: &EnqueueAnswer) -> bool {
    matches!(answer, EnqueueAnswer::Enqueued { .. })
}

fn jobs(database: &Connection) -> i64 {
    assert_eq!(database.query_row("PRAGMA integrity_check", [], |row| row.get::<_, String>(0)).unwrap(), "ok");
    database.query_row("SELECT count(*) FROM jobs", [], |row| row.get(0)).unwrap()
}

#[tokio::test]
async fn o6_after_an_error_at_a_commit_the_database_is_opened_anew_and_the_call_runs_again() {
    for (operation, code) in [(Operation::Sync, ffi::SQLITE_IOERR_FSYNC), (Operation::Write, ffi::SQLITE_IOERR_WRITE)] {
        let queue = Queue::new().await;
        let opened = queue.disk.count(Operation::Open, DATABASE);
        queue.fail(operation, code, 1);
        assert!(is_new(&queue.enqueue("second", START_MS).await.unwrap()));
        assert_eq!(queue.disk.heal(), 1, "{operation:?}");
        assert_eq!(queue.disk.count(Operation::Open, DATABASE), opened + 1, "{operation:?}");
        assert_eq!(queue.after_power_cut(jobs), 2, "what was answered is durable");
    }
}

#[tokio::test]
async fn o6_a_call_that_fails_alone_leaves_a_connection_that_is_opened_anew_too() {
    let queue = Queue::new().await;
    let opened = queue.disk.count(Operation::Open, DATABASE);
    queue.fail(Operation::Sync, ffi::SQLITE_IOERR_FSYNC, 2);
    assert_eq!(queue.enqueue("second", START_MS).await.unwrap_err().code(), "database_io");
    // After the batch, and after the call alone.
    assert_eq!(queue.disk.count(Operation::Open, DATABASE), opened + 2);
    assert!(is_new(&queue.enqueue("second", START_MS).await.unwrap()));
}

#[tokio::test]
async fn o6_a_commit_that_was_denied_is_not_found_done_when_its_calls_run_again() {
    // The second failure is met by whoever would close the last connection, and leave the log as it is.
    for times in 1..=4 {
        let queue = Queue::new().await;
        queue.fail(Operation::Sync, ffi::SQLITE_IOERR_FSYNC, times);
        let answer = queue.enqueue("second", START_MS).await;
        queue.disk.heal();
        let answer = match answer {
            Ok(answer) => answer,
            Err(_) => queue.enqueue("second", START_MS).await.unwrap(),
        };
        assert!(is_new(&answer), "after {times} failures: {answer:?}");
        assert_eq!(jobs(&look_into(&queue.directory)), 2);
    }
}

#[tokio::test]
async fn o6_a_full_disk_refuses_each_call_by_itself_and_loses_nothing() {
    let queue = Queue::new().await;
    queue.fail(Operation::Write, ffi::SQLITE_FULL, ALWAYS);
    for key in ["second", "third"] {
        assert_eq!(queue.enqueue(key, START_MS).await.unwrap_err().code(), "disk_full");
    }
    assert_eq!(queue.after_power_cut(jobs), 1);
    queue.disk.heal();
    for key in ["second", "third"] {
        assert!(is_new(&queue.enqueue(key, START_MS).await.unwrap()));
    }
    assert_eq!(queue.after_power_cut(jobs), 3);
}

#[tokio::test]
async fn q11_calls_of_a_commit_that_failed_run_again_one_by_one() {
    let queue = Queue::new().await;
    let (store, disk) = (&queue.store, &queue.disk);
    disk.hold_next_sync();
    let held = store.record_act("tests", "tests.hold", "", serde_json::json!({}), START_MS);
    let wait = async { disk.wait_until_held() };
    let fail = async {
        queue.fail(Operation::Write, ffi::SQLITE_IOERR_WRITE, 1);
        disk.let_go();
    };
    let before = disk.count(Operation::Sync, LOG);
    let (held, (), second, third, fourth, ()) = tokio::join!(
        held,
        wait,
        queue.enqueue("second", START_MS),
        queue.enqueue("third", START_MS),
        queue.enqueue("fourth", START_MS),
        fail
    );
    held.unwrap();
    for answer in [second, third, fourth] {
        assert!(is_new(&answer.unwrap()));
    }
    assert_eq!(disk.count(Operation::Sync, LOG), before + 4, "the one that was held, and one for each call");
    assert_eq!(queue.after_power_cut(jobs), 4);
}

#[tokio::test]
async fn q11_a_statement_that_takes_the_transaction_with_it_fails_no_other_call() {
    let queue = Queue::new().await;
    let (store, disk) = (&queue.store, &queue.disk);
    // More than the connection keeps in memory, so that it writes in the middle of the transaction.
    let large = || (0..48).map(|number| job(&format!("large {number}"), 1 << 20)).collect();
    disk.hold_next_sync();
    let held = store.record_act("tests", "tests.hold", "", serde_json::json!({}), START_MS);
    let wait = async { disk.wait_until_held() };
    let fail = async {
        queue.fail(Operation::Write, ffi::SQLITE_FULL, 1);
        disk.let_go();
    };
    let (held, (), second, large, ()) = tokio::join!(
        held,
        wait,
        queue.enqueue("second", START_MS),
        store.enqueue(large(), "tests", START_MS, 1, 1_000),
        fail
    );
    held.unwrap();
    assert!(is_new(&second.unwrap()));
    assert!(large.unwrap().iter().all(is_new));
    assert_eq!(disk.heal(), 1);
    assert_eq!(queue.after_power_cut(jobs), 50);
}

#[tokio::test]
async fn q14_the_time_is_kept_by_the_commit_that_goes_well() {
    let queue = Queue::new().await;
    queue.fail(Operation::Sync, ffi::SQLITE_IOERR_FSYNC, 1);
    queue.enqueue("second", START_MS + 5_000).await.unwrap();
    assert_eq!(queue.disk.heal(), 1);
    let sql = "SELECT value FROM meta WHERE name = 'queue_clock_ms'";
    let kept = |database: &Connection| database.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!(queue.after_power_cut(kept), START_MS + 5_000);
}
