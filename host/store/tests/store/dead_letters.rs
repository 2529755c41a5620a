//! D1 and D5 on the store: what stands on a dead letter, how many are open, and what is said of one that is not.

use std::collections::BTreeMap;

use leasehold_domain::{Cause, DeadLetterId, Digest, JobId};
use leasehold_store::{AttemptRecordText, DeadLetterSummary, Discarded, EnqueueJob, Settlement, not_open};

use crate::queue::{Queue, die, job, kind, lane_job, settlement};

/// Lets a job die, the only one that there is.
async fn dies(queue: &Queue, job: EnqueueJob, now_ms: i64) {
    queue.enqueue(vec![job], now_ms).await;
    let claimed = queue.claim(vec![kind("k"), kind("l")], 1, now_ms).await.jobs.remove(0);
    let attempt = AttemptRecordText {
        ended_as: "failed",
        error_class: Some("downstream.gone".into()),
        message: Some("it is gone".into()),
        ..AttemptRecordText::default()
    };
    queue.settle(Settlement { attempt, ..settlement(&claimed, die(), now_ms) }).await;
}

async fn discard(queue: &Queue, letter: i64) -> Discarded {
    queue.store.discard(DeadLetterId(letter), "jo", "given up", 9).await.unwrap()
}

#[tokio::test]
async fn d1_a_job_shows_its_dead_letters_with_what_it_died_of() {
    let queue = Queue::new().await;
    dies(&queue, lane_job("k", "a"), 5).await;
    let letter = DeadLetterSummary {
        id: DeadLetterId(1),
        job: JobId(1),
        kind: "k".into(),
        lane: Some("a".into()),
        died_at_ms: 5,
        cause: Cause::Poison,
        error_class: "downstream.gone".into(),
        message: "it is gone".into(),
        version: Some("h@1.0.0".into()),
        digest: Some(Digest::of(b"h")),
        attempt: 1,
        state: "open".into(),
    };
    assert_eq!(queue.store.job(JobId(1)).await.unwrap().unwrap().dead_letters, [letter]);
}

#[tokio::test]
async fn d5_only_dead_letters_that_nobody_has_dealt_with_count_as_open() {
    let queue = Queue::new().await;
    let open = || async { queue.store.open_letters().await.unwrap() };
    assert_eq!(open().await, BTreeMap::new());
    for (now_ms, name) in [(1, "k"), (2, "k"), (3, "l")] {
        dies(&queue, job(name), now_ms).await;
    }
    assert_eq!(open().await, BTreeMap::from([("k".into(), 2), ("l".into(), 1)]));
    assert_eq!(discard(&queue, 1).await, Discarded::Now);
    assert_eq!(open().await, BTreeMap::from([("k".into(), 1), ("l".into(), 1)]));
}

#[tokio::test]
async fn d5_a_dead_letter_is_discarded_once_and_the_answer_says_what_it_is_already() {
    let queue = Queue::new().await;
    dies(&queue, job("k"), 1).await;
    assert_eq!(discard(&queue, 1).await, Discarded::Now);
    assert_eq!(discard(&queue, 1).await, Discarded::NotOpen { state: "discarded".into() });
    assert_eq!(discard(&queue, 2).await, Discarded::NotFound);
    let said = ("already_discarded".into(), "dead letter 1 is discarded already".into());
    assert_eq!(not_open(DeadLetterId(1), "discarded"), said);
}

#[tokio::test]
async fn d5_a_class_is_known_to_have_dead_letters_also_when_all_of_them_are_closed() {
    let queue = Queue::new().await;
    dies(&queue, job("k"), 1).await;
    discard(&queue, 1).await;
    for (kind, class, expected) in [
        ("k", None, true),
        ("k", Some("downstream.gone"), true),
        ("k", Some("downstream.slow"), false),
        ("l", None, false),
    ] {
        assert_eq!(queue.store.has_dead_letters(kind, class).await.unwrap(), expected, "{kind} {class:?}");
    }
}
