//! Q1, Q2 and Q17 on the store: keys, ids and payloads.

use leasehold_domain::{JobId, JobState};
use leasehold_store::{EnqueueAnswer, Retention};

use crate::queue::{Queue, complete, die, id, job, keyed_job, kind, settlement};

#[tokio::test]
async fn q2_a_key_is_one_job_also_within_one_call() {
    let queue = Queue::new().await;
    let jobs = vec![
        keyed_job("k", "a", b"1"),
        keyed_job("k", "a", b"1"),
        keyed_job("k", "a", b"2"),
        keyed_job("l", "a", b"2"),
    ];
    let answers = queue.enqueue(jobs, 0).await;
    let first = id(&answers[0]);
    assert_eq!(answers[1], EnqueueAnswer::Duplicate { id: first, state: JobState::Ready });
    assert_eq!(answers[2], EnqueueAnswer::KeyConflict { id: first });
    assert!(matches!(answers[3], EnqueueAnswer::Enqueued { .. }));
    assert_eq!(queue.number("SELECT count(*) FROM jobs"), 2);
}

#[tokio::test]
async fn q2_a_key_outlives_its_job_and_says_how_it_ended() {
    let queue = Queue::new().await;
    for (key, verdict, state) in [("a", complete(), JobState::Done), ("b", die(), JobState::Dead)] {
        let first = id(&queue.enqueue(vec![keyed_job("k", key, b"1")], 0).await[0]);
        let claimed = queue.lease(10).await;
        queue.settle(settlement(&claimed, verdict, 20)).await;
        let again = queue.enqueue(vec![keyed_job("k", key, b"1"), keyed_job("k", key, b"2")], 30).await;
        assert_eq!(again[0], EnqueueAnswer::Duplicate { id: first, state });
        assert_eq!(again[1], EnqueueAnswer::KeyConflict { id: first });
    }
}

#[tokio::test]
async fn q1_ids_follow_one_another_also_where_a_reserved_block_of_them_ends() {
    let queue = Queue::new().await;
    let mut ids = Vec::new();
    // More than one block together, in a call that takes the rest of the first one.
    for count in [1, 1_030, 1] {
        ids.extend(queue.enqueue((0..count).map(|_| job("k")).collect(), 0).await.iter().map(id));
    }
    assert_eq!(ids, (1..=1_032).map(JobId).collect::<Vec<_>>());
}

#[tokio::test]
async fn q2_a_job_without_a_key_gets_one_that_no_other_job_has() {
    let queue = Queue::new().await;
    queue.enqueue(vec![job("k"), job("k")], 0).await;
    let claim = queue.claim(vec![kind("k")], 2, 0).await;
    let keys: Vec<_> = claim.jobs.iter().map(|claimed| claimed.contents.as_ref().unwrap().key.clone()).collect();
    for key in &keys {
        let digits = key.strip_prefix("job-").unwrap();
        assert!(digits.len() == 32 && digits.bytes().all(|digit| digit.is_ascii_hexdigit()), "{key}");
    }
    assert_ne!(keys[0], keys[1]);
}

#[tokio::test]
async fn q1_ids_never_come_back_after_a_restart_or_when_every_job_is_forgotten() {
    let mut queue = Queue::new().await;
    let mut ids = Vec::new();
    for round in 0..3 {
        let jobs: Vec<_> = (0..3).map(|_| job("k")).collect();
        ids.extend(queue.enqueue(jobs, round).await.iter().map(id));
        let claim = queue.claim(vec![kind("k")], 3, round).await;
        for claimed in claim.jobs {
            queue.settle(settlement(&claimed, complete(), round)).await;
        }
        let everything = Retention { forget_ended_before_ms: 1_000, trim_ended_before_ms: 1_000, ended_jobs_max: 0 };
        while queue.store.retain(everything).await.unwrap() {}
        assert_eq!(queue.number("SELECT count(*) FROM ended_jobs"), 0);
        queue = queue.reopen();
    }
    assert!(ids.is_sorted_by(|one, next| one < next), "{ids:?}");
    assert_eq!(ids.len(), 9);
}

#[tokio::test]
async fn q17_a_payload_comes_back_byte_for_byte() {
    let queue = Queue::new().await;
    let all_bytes: Vec<u8> = (0..=255).collect();
    let large = vec![0xA5; 4 << 20];
    for payload in [&b""[..], &all_bytes, &large] {
        let sent = leasehold_store::EnqueueJob { payload: payload.to_vec(), ..job("k") };
        queue.enqueue(vec![sent], 0).await;
        let claimed = queue.lease(0).await;
        assert!(claimed.contents.as_ref().unwrap().payload == payload);
        queue.settle(settlement(&claimed, complete(), 0)).await;
    }
}

#[tokio::test]
async fn q17_the_depth_is_bounded_within_one_call_too() {
    let queue = Queue::new().await;
    let jobs: Vec<_> = (0..5).map(|_| job("k")).collect();
    let answers = queue.store.enqueue(jobs, "tests", 0, 1, 3).await.unwrap();
    let full: Vec<_> = answers.iter().map(|answer| *answer == EnqueueAnswer::QueueFull).collect();
    assert_eq!(full, [false, false, false, true, true]);
    // A key that is taken is answered although the queue is full.
    let queue = Queue::new().await;
    let first = id(&queue.enqueue(vec![keyed_job("k", "a", b"1")], 0).await[0]);
    let answers = queue.store.enqueue(vec![keyed_job("k", "a", b"1")], "tests", 0, 1, 1).await.unwrap();
    assert_eq!(answers, [EnqueueAnswer::Duplicate { id: first, state: JobState::Ready }]);
}
