//! What is on record of jobs: lists by where they stand, one job with its attempts, its result and its key.

use leasehold_domain::{Digest, JobId, JobState, Kind, Verdict};
use leasehold_store::{AttemptRecord, JobFilter, Retention};

use crate::queue::{Queue, complete, die, id, keyed_job, lane_job, retry, settlement};

async fn listed(queue: &Queue, filter: JobFilter) -> Vec<(JobId, JobState)> {
    let page = queue.store.jobs(filter, 10).await.unwrap();
    page.items.into_iter().map(|job| (job.id, job.state)).collect()
}

fn in_state(state: JobState) -> JobFilter {
    JobFilter { state: Some(state), ..JobFilter::default() }
}

/// One job in each state that the tests can bring about: done, dead, leased, waiting for its retry, ready.
async fn one_of_each() -> (Queue, Vec<JobId>) {
    let queue = Queue::new().await;
    let mut ids = Vec::new();
    for verdict in [Some(complete()), Some(die()), Some(retry(1_000)), None] {
        ids.push(queue.enqueue_one(0).await);
        let claimed = queue.lease(0).await;
        if let Some(verdict) = verdict {
            queue.settle(settlement(&claimed, verdict, 1)).await;
        }
    }
    ids.push(id(&queue.enqueue(vec![lane_job("other", "a")], 0).await[0]));
    (queue, ids)
}

#[tokio::test]
async fn jobs_are_listed_the_latest_first_whether_or_not_they_have_ended() {
    let (queue, ids) = one_of_each().await;
    let states = [JobState::Done, JobState::Dead, JobState::Waiting, JobState::Leased, JobState::Ready];
    let all: Vec<_> = ids.iter().copied().zip(states).rev().collect();
    assert_eq!(listed(&queue, JobFilter::default()).await, all);
    for (id, state) in &all {
        assert_eq!(listed(&queue, in_state(*state)).await, [(*id, *state)]);
    }
    assert_eq!(listed(&queue, in_state(JobState::Cancelled)).await, []);
    let of_kind = JobFilter { kind: Some("other".into()), ..JobFilter::default() };
    let of_lane = JobFilter { lane: Some("a".into()), ..JobFilter::default() };
    for filter in [of_kind, of_lane] {
        assert_eq!(listed(&queue, filter).await, all[..1]);
    }
    let before = JobFilter { before: Some(ids[2].0), ..JobFilter::default() };
    assert_eq!(listed(&queue, before).await, all[3..]);
}

#[tokio::test]
async fn a_jobs_record_says_what_each_attempt_ran_on_and_how_it_ended() {
    let queue = Queue::new().await;
    let job = queue.enqueue_one(0).await;
    let claimed = queue.lease(5).await;
    let mut failed = settlement(&claimed, retry(20), 10);
    failed.attempt.error_class = Some("x".into());
    failed.attempt.message = Some("it failed".into());
    failed.attempt.log = Some("a line".into());
    failed.attempt.trap = Some("a frame".into());
    queue.settle(failed).await;
    let claimed = queue.lease(20).await;
    queue.settle(settlement(&claimed, Verdict::Release { visible_at_ms: 30 }, 25)).await;
    let record = queue.store.job(job).await.unwrap().expect("the job");
    let first = AttemptRecord {
        number: 1,
        leased_at_ms: 5,
        version: Some("h@1.0.0".into()),
        digest: Some(Digest::of(b"h")),
        replay: None,
        ended_at_ms: Some(10),
        ended_as: Some("failed".into()),
        counted: true,
        error_class: Some("x".into()),
        message: Some("it failed".into()),
        log: Some("a line".into()),
        trap: Some("a frame".into()),
    };
    let second = AttemptRecord {
        number: 2,
        leased_at_ms: 20,
        ended_at_ms: Some(25),
        ended_as: Some("released".into()),
        counted: false,
        error_class: None,
        message: None,
        log: None,
        trap: None,
        ..first.clone()
    };
    assert_eq!(record.attempts, [first, second]);
    assert_eq!((record.summary.attempt, record.summary.attempts_used), (2, 1));
    assert_eq!(queue.store.job(JobId(4711)).await.unwrap(), None);
}

#[tokio::test]
async fn d4_a_result_is_given_back_as_it_was_and_goes_with_the_jobs_record() {
    let queue = Queue::new().await;
    for output in [Some(b"42".to_vec()), None] {
        let job = queue.enqueue_one(0).await;
        let claimed = queue.lease(1).await;
        assert_eq!(queue.store.job_result(job).await.unwrap(), None, "it runs");
        queue.settle(settlement(&claimed, Verdict::Complete { output: output.clone() }, 2)).await;
        assert_eq!(queue.store.job_result(job).await.unwrap(), output);
    }
    let trim = Retention { forget_ended_before_ms: 0, trim_ended_before_ms: 3, ended_jobs_max: u64::MAX };
    assert!(!queue.store.retain(trim).await.unwrap());
    assert_eq!(queue.store.job_result(JobId(1)).await.unwrap(), None);
    assert_eq!(queue.number("SELECT value FROM meta WHERE name = 'untrimmed_jobs'"), 0);
    assert_eq!(queue.number("SELECT count(*) FROM attempts"), 0);
}

#[tokio::test]
async fn q2_a_job_is_found_by_its_kind_and_key_also_when_it_has_ended() {
    let queue = Queue::new().await;
    let sent = id(&queue.enqueue(vec![keyed_job("k", "order-1", b"1")], 0).await[0]);
    let find = |kind: &'static str, key: &'static str| {
        let queue = &queue;
        async move { queue.store.job_with_key(&Kind::new(kind).unwrap(), key).await.unwrap() }
    };
    assert_eq!(
        (find("k", "order-1").await, find("k", "order-2").await, find("l", "order-1").await),
        (Some(sent), None, None)
    );
    let claimed = queue.lease(1).await;
    queue.settle(settlement(&claimed, complete(), 2)).await;
    assert_eq!(find("k", "order-1").await, Some(sent));
}

#[tokio::test]
async fn q16_a_job_that_was_to_be_cancelled_is_neither_tried_again_nor_buried_and_a_success_stands() {
    let cancelled = JobState::Cancelled;
    for (verdict, expected) in [(retry(100), cancelled), (die(), cancelled), (complete(), JobState::Done)] {
        let queue = Queue::new().await;
        let job = queue.enqueue_one(0).await;
        let claimed = queue.lease(1).await;
        queue.store.cancel(job, "tests", 2).await.unwrap();
        queue.settle(settlement(&claimed, verdict, 3)).await;
        let state = queue.store.job(job).await.unwrap().unwrap().summary.state;
        assert_eq!((state, queue.number("SELECT count(*) FROM dead_letters")), (expected, 0));
    }
}
