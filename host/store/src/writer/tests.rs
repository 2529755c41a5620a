//! Group commit: calls that wait together are one transaction, and one that fails fails alone.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
    mpsc,
};

use futures_util::future::join_all;
use leasehold_domain::MemoryRoom;

use super::*;
use crate::{
    ClaimRequest, EnqueueJob, Store,
    fixtures::{go_live, job, open, open_with_batch_time, room},
};

fn put(name: &'static str) -> impl FnMut(&Transaction<'_>) -> Result<(), StoreError> {
    move |connection| {
        connection.execute("INSERT INTO paused_kinds (kind, paused_at, paused_by) VALUES (?1, 0, 'tests')", [name])?;
        Ok(())
    }
}

async fn names(store: &Store) -> Vec<String> {
    store.paused_kinds().await.unwrap().into_iter().map(|paused| paused.kind).collect()
}

/// Counts the transactions that are committed from now on.
async fn count_commits(store: &Store) -> Arc<AtomicUsize> {
    let commits = Arc::<AtomicUsize>::default();
    let counted = Arc::clone(&commits);
    store
        .shared
        .writer
        .call(Urgency::Usual, move |connection| {
            let counted = Arc::clone(&counted);
            connection.commit_hook(Some(move || {
                counted.fetch_add(1, Ordering::SeqCst);
                false
            }))?;
            Ok(())
        })
        .await
        .unwrap();
    // The commit of the call itself.
    commits.store(0, Ordering::SeqCst);
    commits
}

/// Holds the writer in a call until it is let go, so that what is called meanwhile waits together. A join pushes its calls
/// in their order before its last branch lets go.
fn hold(store: &Store) -> mpsc::Sender<()> {
    let (let_go, wait) = mpsc::channel();
    let (begun, has_begun) = mpsc::channel();
    let store = store.clone();
    let mut first = Some((begun, wait));
    tokio::spawn(async move {
        let _ = store
            .shared
            .writer
            .call(Urgency::Usual, move |_| {
                if let Some((begun, wait)) = first.take() {
                    let _ = begun.send(());
                    let _ = wait.recv();
                }
                Ok(())
            })
            .await;
    });
    has_begun.recv().unwrap();
    let_go
}

type Made = (Urgency, Box<dyn FnMut(&Transaction<'_>) -> Result<(), StoreError> + Send>);

fn usual(operation: impl FnMut(&Transaction<'_>) -> Result<(), StoreError> + Send + 'static) -> Made {
    (Urgency::Usual, Box::new(operation))
}

/// What becomes of calls that come in their order while another one runs.
async fn together<const N: usize>(store: &Store, calls: [Made; N]) -> [Result<(), StoreError>; N] {
    let let_go = hold(store);
    let made = calls.map(|(urgency, operation)| store.shared.writer.call(urgency, operation));
    let (answers, ()) = tokio::join!(biased; join_all(made), async { let_go.send(()).unwrap() });
    answers.try_into().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q1_a_call_that_fails_fails_alone() {
    let (store, _, _directory) = open();
    let half_done = |connection: &Transaction<'_>| {
        put("undone")(connection)?;
        put("first")(connection)
    };
    let calls = [usual(put("first")), usual(half_done), usual(put("second"))];
    let [first, failed, second] = together(&store, calls).await;
    assert!(first.is_ok() && second.is_ok());
    assert_eq!(failed.unwrap_err().code(), "database_error");
    assert_eq!(names(&store).await, ["first", "second"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q1_a_call_that_can_not_be_undone_alone_takes_the_transaction_with_it() {
    let (store, _, _directory) = open();
    let half_done = |connection: &Transaction<'_>| {
        put("half done")(connection)?;
        // Nothing is left to go back to.
        connection.execute_batch("RELEASE call")?;
        put("first")(connection)
    };
    let [first, failed] = together(&store, [usual(put("first")), usual(half_done)]).await;
    assert!(first.is_ok() && failed.is_err());
    assert_eq!(names(&store).await, ["first"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q1_an_error_that_takes_the_transaction_with_it_fails_one_call_and_the_rest_run_again() {
    let (store, _, _directory) = open();
    // As SQLite does it by itself when the disk is full: the savepoint is gone with the whole transaction.
    let loses_all = |connection: &Transaction<'_>| {
        connection.execute_batch("ROLLBACK")?;
        Err(StoreError::Unexpected("the disk is full".into()))
    };
    let calls = [usual(put("first")), usual(loses_all), usual(put("second"))];
    let [first, failed, second] = together(&store, calls).await;
    assert!(first.is_ok() && second.is_ok());
    assert!(failed.unwrap_err().to_string().contains("the disk is full"));
    assert_eq!(names(&store).await, ["first", "second"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q1_what_follows_a_call_that_lost_the_transaction_happens_once() {
    let (store, _, _directory) = open();
    let rolls_back = |connection: &Transaction<'_>| Ok(connection.execute_batch("ROLLBACK")?);
    let [lost, second] = together(&store, [usual(rolls_back), usual(put("second"))]).await;
    assert!(lost.is_err());
    // Outside of a transaction it would have been done at once, and its second run would find it done.
    assert_eq!(second.map_err(|error| error.to_string()), Ok(()));
    assert_eq!(names(&store).await, ["second"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q1_a_call_that_loses_the_transaction_is_never_answered_with_success() {
    let (store, _, _directory) = open();
    let rolls_back = |connection: &Transaction<'_>| {
        put("lost")(connection)?;
        Ok(connection.execute_batch("ROLLBACK")?)
    };
    assert!(store.shared.writer.call(Urgency::Usual, rolls_back).await.is_err());
    assert!(store.shared.writer.call(Urgency::Usual, put("kept")).await.is_ok());
    assert_eq!(names(&store).await, ["kept"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn o6_nothing_of_a_transaction_that_met_damage_is_kept_and_all_of_its_calls_are_told() {
    let (store, _, _directory) = open();
    let runs = Arc::<AtomicUsize>::default();
    let counted = Arc::clone(&runs);
    let meets_damage = move |_: &Transaction<'_>| {
        counted.fetch_add(1, Ordering::SeqCst);
        Err(StoreError::Damaged { what: "a page".into() })
    };
    let [first, failed] = together(&store, [usual(put("first")), usual(meets_damage)]).await;
    assert!(first.unwrap_err().is_damage() && failed.unwrap_err().is_damage());
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    assert_eq!(names(&store).await, [""; 0]);
    // Nor is anything written afterwards, whatever depends on it.
    for urgency in [Urgency::Lease, Urgency::Usual] {
        assert!(store.shared.writer.call(urgency, put("later")).await.unwrap_err().is_damage());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn o6_after_an_io_error_at_a_commit_the_connection_is_another_one() {
    let (store, _, _directory) = open();
    let writer = &store.shared.writer;
    let mark = |connection: &Transaction<'_>| Ok(connection.execute_batch("CREATE TEMP TABLE mark (id)")?);
    writer.call(Urgency::Usual, mark).await.unwrap();
    let fails = |connection: &Transaction<'_>| -> Result<(), StoreError> {
        connection.execute_batch("ROLLBACK")?;
        Err(rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_IOERR), None).into())
    };
    assert!(writer.call(Urgency::Usual, fails).await.unwrap_err().is_io());
    // What a connection alone knows is gone with it.
    writer.call(Urgency::Usual, mark).await.unwrap();
}

#[test]
fn q1_a_store_that_is_let_go_of_has_closed_its_database() {
    let (store, options, _directory) = open();
    let log = options.database().with_extension("db-wal");
    assert!(log.exists());
    drop(store);
    // Whoever closes a database last takes its log away.
    assert!(!log.exists());
}

/// How many transactions a call and three others are that come while it runs.
async fn commits_of_four(batch_time: Duration) -> usize {
    let (store, _, _directory) = open_with_batch_time(batch_time);
    let commits = count_commits(&store).await;
    let calls = [usual(put("first")), (Urgency::Lease, Box::new(put("second")) as _), usual(put("third"))];
    assert!(together(&store, calls).await.iter().all(Result::is_ok));
    commits.load(Ordering::SeqCst)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q1_calls_that_wait_together_are_one_commit() {
    assert_eq!(commits_of_four(Duration::MAX).await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q6_a_transaction_whose_time_is_up_takes_one_more_call_in_that_no_lease_depends_on() {
    // The call that ran and the first, the second and the third.
    assert_eq!(commits_of_four(Duration::ZERO).await, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q6_calls_on_which_leases_depend_never_keep_the_others_back_for_ever() {
    let lease = (Urgency::Lease, "lease");
    let usual = (Urgency::Usual, "usual");
    let calls = [lease, lease, lease, lease, usual, usual];
    assert_eq!(order_of(Duration::ZERO, calls).await, ["usual", "lease", "usual", "lease", "lease", "lease"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q6_what_a_lease_depends_on_goes_before_the_rest() {
    let calls = [
        (Urgency::Usual, "enqueue"),
        (Urgency::Lease, "heartbeat"),
        (Urgency::Usual, "expiries"),
        (Urgency::Lease, "settlement"),
    ];
    assert_eq!(order_of(Duration::MAX, calls).await, ["heartbeat", "settlement", "enqueue", "expiries"]);
}

/// In which order calls run that come in their order while another runs.
async fn order_of<const N: usize>(batch_time: Duration, calls: [(Urgency, &'static str); N]) -> Vec<&'static str> {
    let (store, _, _directory) = open_with_batch_time(batch_time);
    let order = Arc::<Mutex<Vec<&'static str>>>::default();
    let calls = calls.map(|(urgency, name)| {
        let order = Arc::clone(&order);
        let note = move |_: &Transaction<'_>| {
            order.lock().unwrap().push(name);
            Ok(())
        };
        (urgency, Box::new(note) as _)
    });
    assert!(together(&store, calls).await.iter().all(Result::is_ok));
    order.lock().unwrap().clone()
}

/// How many jobs a claim leases that waits together with the enqueue of one.
async fn leased_beside_an_enqueue(waits_its_turn: bool) -> usize {
    let (store, _, _directory) = open();
    go_live(&store).await;
    let request =
        ClaimRequest { now_ms: 1, max: 4, memory: MemoryRoom::UNLIMITED, kinds: vec![room()], waits_its_turn };
    // Its id is reserved by now, so that the enqueue waits for nothing else.
    store.enqueue(vec![EnqueueJob { visible_at_ms: 1_000, ..job() }], "tests", 0, 1, 100).await.unwrap();
    let commits = count_commits(&store).await;
    let let_go = hold(&store);
    let calls = async { tokio::join!(biased; store.enqueue(vec![job()], "tests", 0, 1, 100), store.claim(request)) };
    let ((enqueued, claim), ()) = tokio::join!(biased; calls, async { let_go.send(()).unwrap() });
    enqueued.unwrap();
    assert_eq!(commits.load(Ordering::SeqCst), 1);
    claim.unwrap().jobs.len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q6_a_claim_goes_before_what_waits_unless_it_waits_its_turn_and_leases_what_goes_in() {
    assert_eq!(leased_beside_an_enqueue(false).await, 0);
    assert_eq!(leased_beside_an_enqueue(true).await, 1);
}
