//! E3 and I4 on the store: notes that a job makes on another one's record become real with its success, and never change
//! the job that they are on.

use leasehold_domain::{DeadLetterId, Effect, ErrorClass, JobId, JobState, Kind, Note, Verdict};
use leasehold_store::{NoteRecord, Retention, Settlement};

use crate::queue::{Queue, complete, die, id, job, kind, retry, settlement};

/// A note on a job of kind `k`.
fn note(on: JobId, key: &str) -> Note {
    Note {
        kind: Kind::new("k").unwrap(),
        job: on,
        key: key.into(),
        class: ErrorClass::new("bounced"),
        text: "no mailbox".into(),
    }
}

/// That note on the record, as the job that made it put it there.
fn record(by_job: JobId, at_ms: i64) -> NoteRecord {
    NoteRecord { class: "bounced".into(), text: "no mailbox".into(), at_ms, by_job, by_kind: "feedback".into() }
}

/// Runs a job of another kind that makes notes and ends like this.
async fn make(queue: &Queue, notes: Vec<Note>, verdict: Verdict, now_ms: i64) -> JobId {
    let by = id(&queue.enqueue(vec![job("feedback")], now_ms).await[0]);
    let claimed = queue.claim(vec![kind("feedback")], 1, now_ms).await.jobs.remove(0);
    assert_eq!(claimed.token.job, by);
    let effects = notes.into_iter().map(Effect::Annotate).collect();
    queue.settle(Settlement { effects, ..settlement(&claimed, verdict, now_ms) }).await;
    by
}

async fn notes(queue: &Queue, on: JobId) -> Vec<NoteRecord> {
    queue.store.job(on).await.unwrap().unwrap().notes
}

#[tokio::test]
async fn e3_a_note_is_on_the_jobs_record_once_and_changes_nothing_of_the_job() {
    let queue = Queue::new().await;
    let on = queue.enqueue_one(0).await;
    let claimed = queue.lease(1).await;
    queue.settle(settlement(&claimed, complete(), 2)).await;
    let before = queue.store.job(on).await.unwrap().unwrap();
    let by = make(&queue, vec![note(on, "a")], complete(), 3).await;
    let again = make(&queue, vec![note(on, "a"), note(on, "b")], complete(), 4).await;
    let mut noted = queue.store.job(on).await.unwrap().unwrap();
    assert_eq!(noted.notes, [record(by, 3), record(again, 4)]);
    noted.notes.clear();
    assert_eq!(noted, before);
}

#[tokio::test]
async fn e3_a_dead_letter_shows_the_notes_on_its_job() {
    let queue = Queue::new().await;
    let on = queue.enqueue_one(0).await;
    let claimed = queue.lease(1).await;
    queue.settle(settlement(&claimed, die(), 2)).await;
    let by = make(&queue, vec![note(on, "a")], complete(), 3).await;
    let letter = queue.store.dead_letter(DeadLetterId(1)).await.unwrap().unwrap();
    assert_eq!((letter.summary.job, letter.notes), (on, vec![record(by, 3)]));
}

#[tokio::test]
async fn i4_a_note_of_an_attempt_that_did_not_succeed_is_never_made() {
    let queue = Queue::new().await;
    let on = queue.enqueue_one(0).await;
    for verdict in [retry(1_000), die()] {
        make(&queue, vec![note(on, "a")], verdict, 1).await;
    }
    assert_eq!(notes(&queue, on).await, []);
}

#[tokio::test]
async fn e3_a_note_on_a_job_of_another_kind_or_on_none_is_left_out_and_its_maker_succeeds_all_the_same() {
    let queue = Queue::new().await;
    let other = id(&queue.enqueue(vec![job("other")], 0).await[0]);
    let trimmed = queue.enqueue_one(0).await;
    let claimed = queue.lease(1).await;
    queue.settle(settlement(&claimed, complete(), 2)).await;
    let retention = Retention { forget_ended_before_ms: 0, trim_ended_before_ms: 3, ended_jobs_max: u64::MAX };
    assert!(!queue.store.retain(retention).await.unwrap());
    let by = make(&queue, [other, trimmed, JobId(4711)].map(|on| note(on, "a")).into(), complete(), 4).await;
    assert_eq!(queue.number("SELECT count(*) FROM job_notes"), 0);
    let state = queue.store.job(by).await.unwrap().unwrap().summary.state;
    assert_eq!(state, JobState::Done);
}

#[tokio::test]
async fn q17_a_jobs_record_holds_a_hundred_notes_at_most() {
    let queue = Queue::new().await;
    let on = queue.enqueue_one(0).await;
    let keys: Vec<_> = (0..101).map(|key| key.to_string()).collect();
    let by = make(&queue, keys.iter().map(|key| note(on, key)).collect(), complete(), 1).await;
    assert_eq!(notes(&queue, on).await, vec![record(by, 1); 100]);
}
