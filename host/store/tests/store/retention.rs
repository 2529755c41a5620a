//! I5 on the store: keys and steps expire by time alone, counted from their job's end, and not at all while the job is
//! queued or its dead letter is open.

use leasehold_domain::{DeadLetterId, JobId, Verdict};
use leasehold_store::{Discarded, EnqueueAnswer, Retention};

use crate::queue::{Queue, complete, die, id, keyed_job, retry, settlement};

/// Later than anything that happens here before it.
const MUCH_LATER_MS: i64 = 1_000_000_000;

/// Forgets everything that ended before a time.
async fn forget_ended_before(queue: &Queue, forget_ended_before_ms: i64) {
    let retention =
        Retention { forget_ended_before_ms, trim_ended_before_ms: forget_ended_before_ms, ended_jobs_max: u64::MAX };
    while queue.store.retain(retention).await.unwrap() {}
}

async fn enqueue(queue: &Queue, key: &str, now_ms: i64) -> JobId {
    id(&queue.enqueue(vec![keyed_job("k", key, b"payload")], now_ms).await[0])
}

/// Leases the one job there is, applies its step and settles it.
async fn run(queue: &Queue, verdict: Verdict, now_ms: i64) {
    let claimed = queue.lease(now_ms).await;
    queue.apply_step(claimed.token, Vec::new(), now_ms).await;
    queue.settle(settlement(&claimed, verdict, now_ms)).await;
}

/// Whether the key still leads to the job, and its step is still known.
async fn is_remembered(queue: &Queue, key: &str, job: JobId, now_ms: i64) -> bool {
    let steps = queue.number(&format!("SELECT count(*) FROM steps WHERE job_id = {}", job.0));
    let answer = queue.enqueue(vec![keyed_job("k", key, b"payload")], now_ms).await;
    let is_known = matches!(answer[0], EnqueueAnswer::Duplicate { id, .. } if id == job);
    assert_eq!(steps > 0, is_known, "a key and its job's steps go together");
    is_known
}

#[tokio::test]
async fn i5_a_key_and_its_steps_expire_at_their_time_counted_from_the_jobs_end() {
    let queue = Queue::new().await;
    let job = enqueue(&queue, "order-1", 0).await;
    run(&queue, complete(), 500_000).await;
    // Enqueued long before, ended at the very bound: it is kept.
    forget_ended_before(&queue, 500_000).await;
    assert!(is_remembered(&queue, "order-1", job, 500_001).await);
    forget_ended_before(&queue, 500_001).await;
    assert!(!is_remembered(&queue, "order-1", job, 500_002).await);
}

#[tokio::test]
async fn i5_a_key_and_its_steps_live_while_their_job_is_queued_however_old_it_is() {
    let queue = Queue::new().await;
    let job = enqueue(&queue, "order-1", 0).await;
    run(&queue, retry(10), 5).await;
    forget_ended_before(&queue, MUCH_LATER_MS).await;
    assert!(is_remembered(&queue, "order-1", job, MUCH_LATER_MS).await, "waiting for its retry");
    let claimed = queue.lease(MUCH_LATER_MS).await;
    forget_ended_before(&queue, MUCH_LATER_MS).await;
    assert!(is_remembered(&queue, "order-1", job, MUCH_LATER_MS).await, "leased");
    queue.settle(settlement(&claimed, complete(), MUCH_LATER_MS + 1)).await;
    forget_ended_before(&queue, MUCH_LATER_MS + 1).await;
    assert!(is_remembered(&queue, "order-1", job, MUCH_LATER_MS + 2).await, "ended a moment ago");
}

#[tokio::test]
async fn i5_a_key_and_its_steps_live_while_a_dead_letter_is_open_and_expire_from_its_discard_on() {
    let queue = Queue::new().await;
    let job = enqueue(&queue, "order-1", 0).await;
    run(&queue, die(), 5).await;
    forget_ended_before(&queue, MUCH_LATER_MS).await;
    assert!(is_remembered(&queue, "order-1", job, MUCH_LATER_MS).await, "its dead letter is open");
    let letter = DeadLetterId(queue.number("SELECT id FROM dead_letters"));
    let discarded = queue.store.discard(letter, "jo", "a test", MUCH_LATER_MS).await.unwrap();
    assert_eq!(discarded, Discarded::Now);
    forget_ended_before(&queue, MUCH_LATER_MS).await;
    assert!(is_remembered(&queue, "order-1", job, MUCH_LATER_MS).await, "its time begins with the discard");
    forget_ended_before(&queue, MUCH_LATER_MS + 1).await;
    assert!(!is_remembered(&queue, "order-1", job, MUCH_LATER_MS + 2).await);
}

#[tokio::test]
async fn i5_the_number_of_ended_jobs_that_are_kept_takes_no_key_and_no_step() {
    let queue = Queue::new().await;
    let job = enqueue(&queue, "order-1", 0).await;
    run(&queue, complete(), 5).await;
    let by_number = Retention { forget_ended_before_ms: 0, trim_ended_before_ms: 0, ended_jobs_max: 0 };
    while queue.store.retain(by_number).await.unwrap() {}
    assert_eq!(queue.number("SELECT count(*) FROM attempts"), 0, "what it is looked at for is gone");
    assert!(is_remembered(&queue, "order-1", job, 6).await);
}

#[tokio::test]
async fn i5_pages_that_jobs_have_let_go_leave_the_file() {
    let queue = Queue::new().await;
    for job in 0..100 {
        queue.enqueue(vec![keyed_job("k", &job.to_string(), &[b'x'; 10_000])], 0).await;
    }
    assert_eq!(queue.store.free_pages().await.unwrap(), 0);
    for _ in 0..100 {
        let claimed = queue.lease(1).await;
        queue.settle(settlement(&claimed, complete(), 1)).await;
    }
    let (free, pages) = (queue.store.free_pages().await.unwrap(), queue.number("PRAGMA page_count"));
    assert!(free > 200, "{free} pages are free");
    queue.store.give_back_pages(150).await.unwrap();
    assert_eq!(queue.store.free_pages().await.unwrap(), free - 150);
    assert!(queue.number("PRAGMA page_count") <= pages - 150);
}
