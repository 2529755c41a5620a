//! Q14: jobs for a time of the wall clock follow the wall; nothing else does.

use leasehold_domain::TimestampMs;
use leasehold_store::{Cancelled, EnqueueJob};

use crate::queue::{Queue, VISIBILITY_MS, id, job, kind};

const DAY_MS: i64 = 86_400_000;
const HOUR_MS: i64 = 3_600_000;
/// The wall is an hour ahead of the queue's clock in these tests, to tell the two apart.
const AHEAD_MS: i64 = HOUR_MS;

fn at_wall(run_at_wall_ms: TimestampMs) -> EnqueueJob {
    EnqueueJob { run_at_wall_ms: Some(run_at_wall_ms), ..job("k") }
}

/// Lets the wall show a time; answers how many jobs can be leased then.
async fn claimable(queue: &Queue, wall_ms: TimestampMs, now_ms: TimestampMs) -> usize {
    while queue.store.reach_wall_time(wall_ms, now_ms).await.unwrap() {}
    queue.claim(vec![kind("k")], 100, now_ms).await.jobs.len()
}

#[tokio::test]
async fn q14_a_job_for_a_wall_time_waits_for_the_wall_and_not_for_the_queues_clock() {
    let queue = Queue::new().await;
    queue.enqueue(vec![at_wall(AHEAD_MS + 500)], 0).await;
    assert_eq!(queue.store.next_wall_ms().await.unwrap(), Some(AHEAD_MS + 500));
    assert_eq!(queue.store.next_visible_ms().await.unwrap(), None);
    // The queue's clock is a week past the job's time; the wall was stepped back by a day.
    assert_eq!(claimable(&queue, AHEAD_MS + 499 - DAY_MS, 7 * DAY_MS).await, 0);
    assert_eq!(claimable(&queue, AHEAD_MS + 499, 7 * DAY_MS + 1).await, 0);
    assert_eq!(claimable(&queue, AHEAD_MS + 500, 7 * DAY_MS + 2).await, 1);
    assert_eq!(queue.store.next_wall_ms().await.unwrap(), None);
}

#[tokio::test]
async fn q14_a_wall_that_steps_forward_makes_its_jobs_due_at_once() {
    let queue = Queue::new().await;
    queue.enqueue(vec![at_wall(AHEAD_MS + DAY_MS - 1), at_wall(AHEAD_MS + DAY_MS + 1)], 0).await;
    assert_eq!(claimable(&queue, AHEAD_MS + 10, 10).await, 0);
    assert_eq!(claimable(&queue, AHEAD_MS + DAY_MS, 10).await, 1);
}

#[tokio::test]
async fn q14_a_wall_job_stands_in_line_by_when_its_time_came() {
    let queue = Queue::new().await;
    let wall = id(&queue.enqueue(vec![at_wall(AHEAD_MS + 300)], 100).await[0]);
    let early = id(&queue.enqueue(vec![EnqueueJob { visible_at_ms: 200, ..job("k") }], 100).await[0]);
    let late = id(&queue.enqueue(vec![EnqueueJob { visible_at_ms: 400, ..job("k") }], 100).await[0]);
    // Nobody looked until long after.
    queue.store.reach_wall_time(AHEAD_MS + 900, 900).await.unwrap();
    let order: Vec<_> = queue.claim(vec![kind("k")], 3, 900).await.jobs.iter().map(|job| job.token.job).collect();
    assert_eq!(order, [early, wall, late]);
    assert_eq!(queue.number(&format!("SELECT visible_at FROM jobs WHERE id = {wall}")), 300);
}

#[tokio::test]
async fn q14_a_step_of_the_wall_puts_no_job_in_line_before_it_was_there_or_after_now() {
    let queue = Queue::new().await;
    let ids = queue.enqueue(vec![at_wall(AHEAD_MS + 300), at_wall(AHEAD_MS + 300)], 100).await;
    let visible_at = |at: usize| format!("SELECT visible_at FROM jobs WHERE id = {}", id(&ids[at]));
    queue.store.reach_wall_time(AHEAD_MS + DAY_MS, 200).await.unwrap();
    assert_eq!((queue.number(&visible_at(0)), queue.number(&visible_at(1))), (100, 100));
    // Of priority, the place keeps what it had.
    let urgent = EnqueueJob { priority: 1, ..at_wall(AHEAD_MS + 300) };
    let urgent = id(&queue.enqueue(vec![urgent], 150).await[0]);
    queue.store.reach_wall_time(AHEAD_MS + 300, 300).await.unwrap();
    let place = queue.number(&format!("SELECT place - visible_at FROM jobs WHERE id = {urgent}"));
    assert_eq!(place, -crate::queue::PRIORITY_STEP_MS);
}

#[tokio::test]
async fn q14_a_step_of_the_wall_moves_no_delay_and_no_lease() {
    let queue = Queue::new().await;
    queue.enqueue_one(0).await;
    queue.lease(0).await;
    queue.enqueue(vec![EnqueueJob { visible_at_ms: 500, ..job("k") }], 0).await;
    for wall_ms in [AHEAD_MS + DAY_MS, AHEAD_MS - DAY_MS] {
        assert_eq!(claimable(&queue, wall_ms, 499).await, 0);
        assert!(queue.store.expired_leases(VISIBILITY_MS - 1, 10).await.unwrap().is_empty());
        assert_eq!(queue.store.next_expiry_ms(0).await.unwrap(), Some(VISIBILITY_MS));
    }
    assert_eq!(claimable(&queue, AHEAD_MS - DAY_MS, 500).await, 1);
}

#[tokio::test]
async fn q14_a_wall_job_outlives_a_restart_and_can_be_cancelled() {
    let queue = Queue::new().await;
    let ids = queue.enqueue(vec![at_wall(AHEAD_MS + 5), at_wall(AHEAD_MS + 6)], 0).await;
    let queue = queue.reopen();
    assert_eq!(queue.store.next_wall_ms().await.unwrap(), Some(AHEAD_MS + 5));
    assert_eq!(queue.store.cancel(id(&ids[0]), "tests", 1).await.unwrap(), Cancelled::Now);
    assert_eq!(queue.store.next_wall_ms().await.unwrap(), Some(AHEAD_MS + 6));
    assert_eq!(claimable(&queue, AHEAD_MS + 6, 6).await, 1);
}
