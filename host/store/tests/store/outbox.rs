//! F2 on the store: each row of an outbox becomes one job, whatever is relayed again.

use leasehold_domain::JobId;
use leasehold_store::{EnqueueJob, Relayed, RelayedRow};

use crate::queue::{PRIORITY_STEP_MS, Queue, job, keyed_job};

fn row(id: &str, job: EnqueueJob) -> RelayedRow {
    RelayedRow { id: id.into(), job }
}

impl Queue {
    async fn relay(&self, rows: Vec<RelayedRow>, depth_max: u64) -> Vec<Relayed> {
        self.store.relay("app", rows, 5, PRIORITY_STEP_MS, depth_max).await.unwrap()
    }

    async fn unconfirmed(&self, source: &str) -> Vec<String> {
        let mut rows = self.store.unconfirmed_rows(source).await.unwrap();
        rows.sort();
        rows
    }
}

#[tokio::test]
async fn f2_a_row_that_is_relayed_again_before_its_mark_is_confirmed_is_the_same_job() {
    let queue = Queue::new().await;
    let rows = || vec![row("a", job("k")), row("b", job("k"))];
    let durable = [Relayed::Durable(JobId(1)), Relayed::Durable(JobId(2))];
    assert_eq!(queue.relay(rows(), u64::MAX).await, durable);
    assert_eq!(queue.relay(rows(), u64::MAX).await, durable);
    assert_eq!(queue.number("SELECT count(*) FROM jobs"), 2);
    assert_eq!(queue.store.job(JobId(1)).await.unwrap().unwrap().summary.enqueued_by, "outbox:app");
    assert_eq!(
        (queue.unconfirmed("app").await, queue.unconfirmed("other").await),
        (vec!["a".into(), "b".into()], vec![])
    );
    queue.store.confirm_rows("other", vec!["a".into()]).await.unwrap();
    queue.store.confirm_rows("app", vec!["b".into()]).await.unwrap();
    assert_eq!(queue.unconfirmed("app").await, ["a"]);
}

#[tokio::test]
async fn f2_a_row_whose_key_another_payload_has_is_told_and_one_of_the_same_payload_is_that_job() {
    let queue = Queue::new().await;
    queue.enqueue(vec![keyed_job("k", "order-1", b"1")], 0).await;
    let rows = vec![row("same", keyed_job("k", "order-1", b"1")), row("other", keyed_job("k", "order-1", b"2"))];
    assert_eq!(queue.relay(rows, u64::MAX).await, [Relayed::Durable(JobId(1)), Relayed::KeyConflict(JobId(1))]);
    assert_eq!(queue.unconfirmed("app").await, ["same"]);
}

#[tokio::test]
async fn q17_rows_wait_while_the_queue_is_full_which_counts_those_of_the_same_call() {
    let queue = Queue::new().await;
    queue.enqueue(vec![job("k"), job("k")], 0).await;
    let rows = || (0..3).map(|number| row(&number.to_string(), job("k"))).collect::<Vec<_>>();
    let answers = queue.relay(rows(), 4).await;
    assert!(matches!(answers[..], [Relayed::Durable(_), Relayed::Durable(_), Relayed::QueueFull]), "{answers:?}");
    assert_eq!(queue.unconfirmed("app").await, ["0", "1"]);
    assert_eq!(queue.relay(rows(), 4).await[..2], answers[..2], "full, and those that are in are in");
}
