//! Q4 to Q7 and Q10 on the store: attempts, beats, expiry, fences and the move to the dead letters.

use leasehold_domain::{AttemptNumber, FencingToken};
use leasehold_store::{Beat, BeginStep, Claimed, KindClaim, Settled, Settlement, StepBegun};

use crate::queue::{self, LEASE_MAX_MS, Queue, VISIBILITY_MS, complete, die, kind, retry, settlement};

fn beat(claimed: &Claimed, lease_expires_at_ms: i64) -> Beat {
    Beat { token: claimed.token, lease_expires_at_ms }
}

fn expiry_ms(queue: &Queue, claimed: &Claimed) -> i64 {
    queue.number(&format!("SELECT lease_expires_at FROM jobs WHERE id = {}", claimed.token.job))
}

#[tokio::test]
async fn q4_the_claim_that_takes_the_lease_counts_the_attempt() {
    let queue = Queue::new().await;
    let job = queue.enqueue_one(0).await;
    let claimed = queue.lease(10).await;
    assert_eq!(claimed.token, FencingToken { job, attempt: AttemptNumber(1) });
    let row = queue.database().query_row(
        "SELECT attempt, attempts_used, state, lease_expires_at, deadline_at FROM jobs",
        [],
        |row| Ok([row.get::<_, i64>(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?]),
    );
    assert_eq!(row.unwrap(), [1, 1, 2, 10 + VISIBILITY_MS, 10 + LEASE_MAX_MS]);
    assert_eq!(
        queue.number("SELECT count(*) FROM attempts WHERE number = 1 AND leased_at = 10 AND ended_at IS NULL"),
        1
    );
}

#[tokio::test]
async fn q3_a_leased_job_is_given_to_nobody_else() {
    let queue = Queue::new().await;
    queue.enqueue_one(0).await;
    queue.lease(0).await;
    // Not even long after its lease has run out: only the reaper's settlement lets it go.
    for now_ms in [0, VISIBILITY_MS - 1, VISIBILITY_MS, 100 * VISIBILITY_MS] {
        assert!(queue.claim(vec![kind("k")], 10, now_ms).await.jobs.is_empty());
    }
}

#[tokio::test]
async fn q5_a_beat_extends_exactly_the_leases_that_it_names() {
    let queue = Queue::new().await;
    for _ in 0..3 {
        queue.enqueue_one(0).await;
    }
    let leased = queue.claim(vec![kind("k")], 3, 0).await.jobs;
    let lost = queue.store.heartbeat(vec![beat(&leased[0], 1_500), beat(&leased[2], 1_600)], 500).await.unwrap();
    assert!(lost.is_empty());
    let expiries: Vec<_> = leased.iter().map(|claimed| expiry_ms(&queue, claimed)).collect();
    assert_eq!(expiries, [1_500, VISIBILITY_MS, 1_600]);
}

#[tokio::test]
async fn q5_a_beat_never_extends_a_lease_past_its_deadline_and_never_shortens_it() {
    let queue = Queue::new().await;
    queue.enqueue_one(0).await;
    let claimed = queue.lease(0).await;
    queue.store.heartbeat(vec![beat(&claimed, 10 * LEASE_MAX_MS)], 500).await.unwrap();
    assert_eq!(expiry_ms(&queue, &claimed), LEASE_MAX_MS);
    queue.store.heartbeat(vec![beat(&claimed, 600)], 500).await.unwrap();
    assert_eq!(expiry_ms(&queue, &claimed), LEASE_MAX_MS);
}

#[tokio::test]
async fn q7_a_beat_revives_no_lease_that_is_lost() {
    let queue = Queue::new().await;
    queue.enqueue_one(0).await;
    let first = queue.lease(0).await;
    let before = queue.contents();
    let lost = queue.store.heartbeat(vec![beat(&first, 3_000)], VISIBILITY_MS).await.unwrap();
    assert_eq!((lost, queue.contents()), (vec![first.token], before));
    // The same under a token that another attempt has followed.
    queue.settle(settlement(&first, retry(10), 10)).await;
    let second = queue.lease(20).await;
    let before = queue.contents();
    let lost = queue.store.heartbeat(vec![beat(&first, 3_000)], 30).await.unwrap();
    assert_eq!((lost, queue.contents()), (vec![first.token], before));
    assert!(queue.store.heartbeat(vec![beat(&second, 3_000)], 30).await.unwrap().is_empty());
}

#[tokio::test]
async fn q6_a_beat_that_came_before_saves_the_lease_from_the_reaper() {
    let queue = Queue::new().await;
    queue.enqueue_one(0).await;
    let claimed = queue.lease(0).await;
    assert_eq!(queue.store.expired_leases(VISIBILITY_MS - 1, 10).await.unwrap(), []);
    let found = queue.store.expired_leases(VISIBILITY_MS, 10).await.unwrap();
    assert_eq!(found.iter().map(|lease| lease.token).collect::<Vec<_>>(), [claimed.token]);
    // Found by the reaper, and extended before the reaper's settlement.
    queue.store.heartbeat(vec![beat(&claimed, 2_000)], VISIBILITY_MS - 1).await.unwrap();
    let expired = |now_ms| Settlement { only_if_expired: true, ..settlement(&claimed, retry(now_ms), now_ms) };
    let before = queue.contents();
    assert_eq!(queue.settle(expired(VISIBILITY_MS)).await, Settled::LeaseLost);
    assert_eq!(queue.contents(), before);
    assert_eq!(queue.store.next_expiry_ms(0).await.unwrap(), Some(2_000));
    assert_eq!(queue.store.next_expiry_ms(1_999).await.unwrap(), Some(2_000));
    assert_eq!(queue.store.next_expiry_ms(2_000).await.unwrap(), None);
    assert_eq!(queue.settle(expired(2_000)).await, Settled::Applied { ended: None, dead_letter: None });
}

#[tokio::test]
async fn q7_a_settlement_under_an_old_token_changes_nothing() {
    let queue = Queue::new().await;
    queue.enqueue_one(0).await;
    let first = queue.lease(0).await;
    queue.settle(settlement(&first, retry(10), 10)).await;
    for verdict in [complete(), retry(20), die()] {
        let before = queue.contents();
        assert_eq!(queue.settle(settlement(&first, verdict, 20)).await, Settled::LeaseLost);
        assert_eq!(queue.contents(), before, "while the job waits");
    }
    let second = queue.lease(20).await;
    for verdict in [complete(), retry(30), die()] {
        let before = queue.contents();
        assert_eq!(queue.settle(settlement(&first, verdict, 30)).await, Settled::LeaseLost);
        assert_eq!(queue.contents(), before, "while another attempt runs");
    }
    queue.settle(settlement(&second, complete(), 40)).await;
    let before = queue.contents();
    assert_eq!(queue.settle(settlement(&second, die(), 50)).await, Settled::LeaseLost);
    assert_eq!(queue.contents(), before, "when the job has ended");
}

#[tokio::test]
async fn q7_a_job_whose_cap_was_lowered_does_not_revive_its_last_token() {
    let queue = Queue::new().await;
    queue.enqueue_one(0).await;
    let first = queue.lease(0).await;
    queue.settle(settlement(&first, retry(10), 10)).await;
    // One attempt is used up under a cap that is one by now: the job is for the reaper.
    let lowered = KindClaim { attempts_max: 1, ..kind("k") };
    let claim = queue.claim(vec![lowered], 1, 20).await;
    assert_eq!((claim.jobs.len(), claim.used_up), (0, 1));
    let before = queue.contents();
    assert_eq!(queue.settle(settlement(&first, complete(), 30)).await, Settled::LeaseLost);
    assert_eq!(queue.contents(), before);
    let for_the_reaper = queue.store.expired_leases(30, 10).await.unwrap();
    assert_eq!(for_the_reaper.len(), 1);
    let dies = Settlement { only_if_expired: true, ..settlement(&first, die(), 30) };
    assert!(matches!(queue.settle(dies).await, Settled::Applied { dead_letter: Some(_), .. }));
}

#[tokio::test]
async fn q7_no_step_begins_under_a_lost_lease() {
    let queue = Queue::new().await;
    queue.enqueue_one(0).await;
    let first = queue.lease(0).await;
    let begin =
        |claimed: &Claimed, now_ms| BeginStep { take_over: true, ..queue::begin(claimed.token, "send", now_ms) };
    // Run out, although nobody has looked yet.
    assert_eq!(queue.store.begin_step(begin(&first, VISIBILITY_MS)).await.unwrap(), StepBegun::LeaseLost);
    queue.settle(settlement(&first, retry(10), 10)).await;
    assert_eq!(queue.store.begin_step(begin(&first, 20)).await.unwrap(), StepBegun::LeaseLost);
    let second = queue.lease(20).await;
    assert_eq!(queue.store.begin_step(begin(&first, 30)).await.unwrap(), StepBegun::LeaseLost);
    assert_eq!(queue.number("SELECT count(*) FROM steps"), 0);
    assert_eq!(queue.store.begin_step(begin(&second, 30)).await.unwrap(), StepBegun::Fresh);
}

#[tokio::test]
async fn q10_a_death_is_one_transaction() {
    let queue = Queue::new().await;
    queue.enqueue_one(0).await;
    let claimed = queue.lease(0).await;
    // A dead letter can't be written without its redacted view: nothing of the death is kept then.
    let unwritable = Settlement { dead_letter: None, ..settlement(&claimed, die(), 10) };
    let before = queue.contents();
    assert!(queue.store.settle(unwritable).await.is_err());
    assert_eq!(queue.contents(), before);
    assert!(matches!(
        queue.settle(settlement(&claimed, die(), 20)).await,
        Settled::Applied { dead_letter: Some(_), .. }
    ));
    assert_eq!(queue.number("SELECT count(*) FROM jobs"), 0);
    assert_eq!(queue.number("SELECT count(*) FROM ended_jobs WHERE state = 'dead'"), 1);
    assert_eq!(queue.number("SELECT count(*) FROM dead_letters WHERE state = 'open'"), 1);
}

#[tokio::test]
async fn q11_a_claim_never_takes_a_job_whose_attempts_are_used_up() {
    let queue = Queue::new().await;
    queue.enqueue_one(0).await;
    for now_ms in [0, 100, 200] {
        let claimed = queue.lease(now_ms).await;
        queue.settle(settlement(&claimed, retry(now_ms + 1), now_ms + 1)).await;
    }
    let claim = queue.claim(vec![kind("k")], 1, 300).await;
    assert_eq!((claim.jobs.len(), claim.used_up), (0, 1));
    assert_eq!(queue.number("SELECT count(*) FROM attempts"), 3);
}
