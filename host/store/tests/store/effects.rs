//! I4 on the store: what a guest enqueues, stores and notes becomes real once, with its job's success, or never.

use leasehold_domain::{DeadLetterId, Effect, ErrorClass, JobId, JobState, Kind, NewJob, Note};
use leasehold_store::{Discarded, JobFilter, JobSummary, NoteRecord, Settlement};

use crate::queue::{Queue, complete, die, retry, settlement};

fn set(key: &str, value: &[u8]) -> Effect {
    Effect::Set { store: "s".into(), key: key.into(), value: value.to_vec() }
}

fn enqueue() -> Effect {
    Effect::Enqueue(NewJob {
        kind: Kind::new("l").unwrap(),
        key: None,
        lane: None,
        content_type: "text/plain".into(),
        payload: b"next".to_vec(),
        delay_ms: 100,
        priority: 1,
        metadata: Vec::new(),
    })
}

fn note(job: JobId) -> Effect {
    Effect::Annotate(Note {
        kind: Kind::new("k").unwrap(),
        job,
        key: "n".into(),
        class: ErrorClass::new("seen"),
        text: "a note".into(),
    })
}

/// The jobs that effects have enqueued.
async fn enqueued(queue: &Queue) -> Vec<JobSummary> {
    let filter = JobFilter { kind: Some("l".into()), ..JobFilter::default() };
    queue.store.jobs(filter, 10).await.unwrap().items
}

/// The value under a key as a job sees it.
async fn value(queue: &Queue, job: JobId, key: &str) -> Option<Vec<u8>> {
    queue.store.read_value(job, "s", key).await.unwrap()
}

#[tokio::test]
async fn i4_what_a_step_made_becomes_real_with_the_success_of_a_later_attempt_and_only_then() {
    let queue = Queue::new().await;
    let job = queue.enqueue_one(0).await;
    let stranger = queue.enqueue_one(5_000).await;
    let first = queue.lease(0).await;
    queue.apply_step(first.token, vec![set("a", b"1"), enqueue()], 1).await;
    // What an attempt made outside of steps dies with it.
    let failed = Settlement { effects: vec![set("lost", b"1")], ..settlement(&first, retry(10), 10) };
    queue.settle(failed).await;
    assert_eq!(value(&queue, job, "a").await, Some(b"1".to_vec()), "its own job sees it at once");
    assert_eq!(value(&queue, stranger, "a").await, None);
    assert_eq!(enqueued(&queue).await, []);
    let second = queue.lease(20).await;
    queue.settle(settlement(&second, complete(), 30)).await;
    assert_eq!(value(&queue, stranger, "a").await, Some(b"1".to_vec()));
    assert_eq!(value(&queue, stranger, "lost").await, None);
    let next = enqueued(&queue).await.remove(0);
    let expected = JobSummary {
        id: next.id,
        kind: "l".into(),
        lane: None,
        state: JobState::Waiting,
        priority: 1,
        attempt: 0,
        attempts_used: 0,
        enqueued_at_ms: 30,
        enqueued_by: "tests".into(),
        visible_at_ms: Some(130),
        ended_at_ms: None,
        reason: None,
        content_type: "text/plain".into(),
        payload_bytes: 4,
    };
    assert_eq!(next, expected, "who enqueued the job enqueued what it enqueues");
    assert_eq!(queue.number("SELECT count(*) FROM step_effects"), 0, "it can't become real again");
}

#[tokio::test]
async fn i4_what_the_last_attempt_made_comes_after_what_its_steps_did() {
    let queue = Queue::new().await;
    let job = queue.enqueue_one(0).await;
    let noted = queue.enqueue_one(5_000).await;
    let claimed = queue.lease(0).await;
    queue.apply_step(claimed.token, vec![set("a", b"1"), set("b", b"1")], 1).await;
    let delete = Effect::Delete { store: "s".into(), key: "a".into() };
    let effects = vec![delete, set("b", b"2"), note(noted)];
    queue.settle(Settlement { effects, ..settlement(&claimed, complete(), 30) }).await;
    assert_eq!((value(&queue, noted, "a").await, value(&queue, noted, "b").await), (None, Some(b"2".to_vec())));
    let note = NoteRecord { class: "seen".into(), text: "a note".into(), at_ms: 30, by_job: job, by_kind: "k".into() };
    assert_eq!(queue.store.job(noted).await.unwrap().unwrap().notes, [note]);
}

#[tokio::test]
async fn i4_a_job_sees_what_its_steps_did_with_a_key_in_that_store_alone() {
    let queue = Queue::new().await;
    queue.enqueue_one(0).await;
    let before = Settlement {
        effects: vec![set("gone", b"0"), set("kept", b"0")],
        ..settlement(&queue.lease(0).await, complete(), 1)
    };
    queue.settle(before).await;
    let job = queue.enqueue_one(2).await;
    let claimed = queue.lease(2).await;
    let elsewhere = || "t".to_owned();
    let effects = vec![
        set("a", b"1"),
        Effect::Set { store: elsewhere(), key: "a".into(), value: b"2".to_vec() },
        Effect::Delete { store: "s".into(), key: "gone".into() },
        Effect::Delete { store: elsewhere(), key: "kept".into() },
    ];
    queue.apply_step(claimed.token, effects, 3).await;
    assert_eq!(value(&queue, job, "a").await, Some(b"1".to_vec()));
    assert_eq!(value(&queue, job, "gone").await, None);
    assert_eq!(value(&queue, job, "kept").await, Some(b"0".to_vec()));
    assert_eq!(value(&queue, job, "never").await, None);
}

#[tokio::test]
async fn i4_what_an_attempt_without_steps_made_becomes_real_with_its_success() {
    let queue = Queue::new().await;
    let job = queue.enqueue_one(0).await;
    let claimed = queue.lease(0).await;
    queue.settle(Settlement { effects: vec![set("a", b"1")], ..settlement(&claimed, complete(), 30) }).await;
    assert_eq!(value(&queue, job, "a").await, Some(b"1".to_vec()));
}

#[tokio::test]
async fn i4_what_a_dead_jobs_steps_made_is_kept_for_its_replay_and_dropped_with_its_discard() {
    let queue = Queue::new().await;
    queue.enqueue_one(0).await;
    let claimed = queue.lease(0).await;
    queue.apply_step(claimed.token, vec![set("a", b"1"), enqueue()], 1).await;
    queue.settle(settlement(&claimed, die(), 2)).await;
    let letter = DeadLetterId(1);
    let rehearsable = queue.store.rehearsable(letter).await.unwrap().unwrap();
    assert_eq!(rehearsable.kept, [("send".into(), set("a", b"1")), ("send".into(), enqueue())]);
    assert_eq!(queue.store.discard(letter, "jo", "given up", 3).await.unwrap(), Discarded::Now);
    assert_eq!(queue.store.rehearsable(letter).await.unwrap().unwrap().kept, []);
    assert_eq!(enqueued(&queue).await, []);
}

#[tokio::test]
async fn i4_a_store_lists_its_keys_page_by_page() {
    let queue = Queue::new().await;
    queue.enqueue_one(0).await;
    let claimed = queue.lease(0).await;
    let mut done = settlement(&claimed, complete(), 10);
    done.effects = (0..101).map(|number| set(&format!("{number:03}"), b"")).collect();
    queue.settle(done).await;
    let (first, next) = queue.store.list_value_keys("s", None).await.unwrap();
    assert_eq!((first.len(), first[0].as_str(), first[99].as_str()), (100, "000", "099"));
    let (rest, none) = queue.store.list_value_keys("s", next).await.unwrap();
    assert_eq!((rest, none), (vec!["100".to_owned()], None));
}
