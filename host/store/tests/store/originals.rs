//! D4 and D5 on the store: how long sealed originals and dead letters are kept, and what is seen of a payload.

use leasehold_domain::{DeadLetterId, JobId};
use leasehold_store::{AuditEntry, AuditFilter, DeadLetterFilter};
use rusqlite::Connection;

use crate::queue::{Queue, die, id, job, settlement};

/// Lets a job of kind `k` die at each of these times.
async fn die_at(queue: &Queue, times: &[i64]) {
    for &now_ms in times {
        queue.enqueue_one(now_ms).await;
        let claimed = queue.lease(now_ms).await;
        queue.settle(settlement(&claimed, die(), now_ms)).await;
    }
}

/// Puts dead letters in that died at the time 0, as many as would take long to come about one by one.
fn insert_dead_letters(queue: &Queue, count: usize) {
    let sql = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
               INSERT INTO dead_letters (job_id, kind, died_at, cause, error_class, message, attempt, view, masked_key,
                                         payload_sealed)
               SELECT i, 'k', 0, 'rejected', 'c', '', 1, '{}', '', x'00' FROM n";
    let database = Connection::open(queue.database().path().unwrap()).unwrap();
    assert_eq!(database.execute(sql, [count]).unwrap(), count);
}

/// Each dead letter's state, and whether its original is kept; the first one first.
async fn letters(queue: &Queue) -> Vec<(String, bool)> {
    let mut letters = Vec::new();
    for summary in queue.store.dead_letters(DeadLetterFilter::default(), 100).await.unwrap().items.into_iter().rev() {
        let letter = queue.store.dead_letter(summary.id).await.unwrap().unwrap();
        letters.push((summary.state, letter.has_original));
    }
    letters
}

fn pairs(pairs: &[(&str, bool)]) -> Vec<(String, bool)> {
    pairs.iter().map(|(state, has_original)| ((*state).to_owned(), *has_original)).collect()
}

/// What retention did by the audit log, the first act first.
async fn acts(queue: &Queue) -> Vec<AuditEntry> {
    let filter = AuditFilter { actor: Some("retention".into()), ..AuditFilter::default() };
    let mut acts = queue.store.audit(filter, 100).await.unwrap().items;
    acts.reverse();
    acts
}

#[tokio::test]
async fn d5_originals_of_dead_letters_from_before_a_time_are_erased_and_audited_and_the_dead_letters_stay() {
    let queue = Queue::new().await;
    die_at(&queue, &[10, 20, 30]).await;
    assert_eq!(queue.store.erase_originals(10, 40).await.unwrap(), (0, false));
    assert_eq!(acts(&queue).await, []);
    assert_eq!(queue.store.erase_originals(30, 41).await.unwrap(), (2, false));
    assert_eq!(letters(&queue).await, pairs(&[("open", false), ("open", false), ("open", true)]));
    let acts = acts(&queue).await;
    assert_eq!(acts.len(), 1);
    let expected = AuditEntry {
        id: acts[0].id,
        at_ms: 41,
        actor: "retention".into(),
        action: "dead_letter.erase_original".into(),
        subject: "1 to 2".into(),
        detail: r#"{"count":2,"died_before_ms":30}"#.into(),
    };
    assert_eq!(acts[0], expected);
}

#[tokio::test]
async fn d5_dead_letters_from_before_a_time_are_given_up_and_each_is_audited() {
    let queue = Queue::new().await;
    die_at(&queue, &[10, 20, 30]).await;
    assert_eq!(queue.store.give_up_dead_letters(10, "too old", 40).await.unwrap(), (0, false));
    assert_eq!(queue.store.give_up_dead_letters(30, "too old", 41).await.unwrap(), (2, false));
    assert_eq!(letters(&queue).await, pairs(&[("discarded", false), ("discarded", false), ("open", true)]));
    let acts = acts(&queue).await;
    let expected = [1, 2].map(|letter: i64| AuditEntry {
        id: acts[0].id - 1 + letter,
        at_ms: 41,
        actor: "retention".into(),
        action: "dead_letter.discard".into(),
        subject: letter.to_string(),
        detail: format!(r#"{{"job":{letter},"reason":"too old"}}"#),
    });
    assert_eq!(acts, expected);
}

#[tokio::test]
async fn d5_retention_takes_a_bounded_number_of_dead_letters_at_once_and_says_when_there_may_be_more() {
    let queue = Queue::new().await;
    insert_dead_letters(&queue, 501);
    assert_eq!(queue.store.erase_originals(1, 2).await.unwrap(), (500, true));
    assert_eq!(queue.store.erase_originals(1, 2).await.unwrap(), (1, false));
    assert_eq!(queue.number("SELECT count(*) FROM dead_letters WHERE payload_sealed IS NOT NULL"), 0);
    for left in [401, 301, 201, 101, 1] {
        assert_eq!(queue.store.give_up_dead_letters(1, "too old", 2).await.unwrap(), (100, true));
        assert_eq!(queue.number("SELECT count(*) FROM dead_letters WHERE state = 'open'"), left);
    }
    assert_eq!(queue.store.give_up_dead_letters(1, "too old", 2).await.unwrap(), (1, false));
}

#[tokio::test]
async fn d2_the_digest_of_a_payload_is_one_within_its_job_and_tells_nothing_of_another_jobs() {
    let queue = Queue::new().await;
    let jobs: Vec<JobId> = queue.enqueue(vec![job("k"), job("k")], 0).await.iter().map(id).collect();
    let mut digests = Vec::new();
    for &job in &jobs {
        digests.push(queue.store.job(job).await.unwrap().unwrap().payload_digest.unwrap());
    }
    assert_ne!(digests[0], digests[1], "a payload could be found out by sending guesses");
    assert!(digests.iter().all(|digest| digest.len() == 32), "128 bits are shown: {digests:?}");
    let claimed = queue.lease(1).await;
    queue.settle(settlement(&claimed, die(), 2)).await;
    let letter = queue.store.dead_letter(DeadLetterId(1)).await.unwrap().unwrap();
    assert_eq!((letter.summary.job, letter.payload_digest.as_ref()), (jobs[0], Some(&digests[0])));
}

#[tokio::test]
async fn d4_no_two_values_of_a_call_are_sealed_with_one_nonce() {
    let queue = Queue::new().await;
    queue.enqueue((0..100).map(|_| job("pay")).collect(), 0).await;
    let nonces = "SELECT substr(payload_sealed, 5, 24) AS nonce FROM jobs
                  UNION ALL SELECT substr(extras_sealed, 5, 24) FROM jobs";
    assert_eq!(queue.number(&format!("SELECT count(DISTINCT nonce) FROM ({nonces})")), 200);
}
