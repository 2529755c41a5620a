//! I1 to I4 on the store: what a begin finds, what an end records, and when what steps keep becomes real.

use leasehold_domain::{AttemptNumber, Effect, FencingToken, JobId, NewJob, StepName};
use leasehold_store::{BeginStep, Claimed, StepBegun, StepEnded};

use crate::queue::{Queue, complete, die, keyed_job, kind, retry, settlement};

fn name() -> StepName {
    StepName::new("charge").unwrap()
}

fn begin(token: FencingToken, now_ms: i64) -> BeginStep {
    BeginStep {
        token,
        name: name(),
        fingerprint: b"10 EUR".to_vec(),
        others_running: Vec::new(),
        take_over: false,
        now_ms,
    }
}

fn other_effect(begin: BeginStep) -> BeginStep {
    BeginStep { fingerprint: b"20 EUR".to_vec(), ..begin }
}

impl Queue {
    async fn begin(&self, begin: BeginStep) -> StepBegun {
        self.store.begin_step(begin).await.unwrap()
    }

    async fn complete_step(&self, token: FencingToken, effects: Vec<Effect>) -> StepEnded {
        self.store.complete_step(token, name(), b"receipt".to_vec(), effects, 5).await.unwrap()
    }

    async fn take_back(&self, token: FencingToken) -> StepEnded {
        self.store.take_back_step(token, name()).await.unwrap()
    }

    async fn look(&self, job: JobId, fingerprint: &[u8]) -> StepBegun {
        self.store.look_at_step(job, name(), fingerprint.to_vec()).await.unwrap()
    }

    /// How each run of the step has ended.
    async fn runs(&self, job: JobId) -> Vec<(u32, bool, Option<String>)> {
        let record = self.store.job(job).await.unwrap().expect("the job");
        record.step_runs.into_iter().map(|run| (run.attempt, run.in_doubt, run.ended_as)).collect()
    }

    /// Lets a leased job be tried again and leases it.
    async fn next_attempt(&self, claimed: &Claimed, now_ms: i64) -> Claimed {
        self.settle(settlement(claimed, retry(now_ms), now_ms)).await;
        self.lease(now_ms).await
    }
}

async fn leased() -> (Queue, Claimed) {
    let queue = Queue::new().await;
    queue.enqueue_one(0).await;
    let claimed = queue.lease(0).await;
    (queue, claimed)
}

fn applied(other_fingerprint: bool) -> StepBegun {
    StepBegun::Applied { result: b"receipt".to_vec(), other_fingerprint }
}

#[tokio::test]
async fn i1_an_applied_step_is_found_with_its_result_and_whether_it_meant_the_same() {
    let (queue, first) = leased().await;
    let job = first.token.job;
    assert_eq!(queue.look(job, b"10 EUR").await, StepBegun::Fresh);
    assert_eq!(queue.begin(begin(first.token, 1)).await, StepBegun::Fresh);
    assert_eq!(queue.complete_step(first.token, Vec::new()).await, StepEnded::Recorded);
    assert_eq!(queue.runs(job).await, [(1, false, Some("applied".into()))]);
    // Also by the attempt that applied it.
    assert_eq!(queue.begin(begin(first.token, 2)).await, applied(false));
    let second = queue.next_attempt(&first, 10).await;
    assert_eq!(queue.begin(begin(second.token, 11)).await, applied(false));
    assert_eq!(queue.begin(other_effect(begin(second.token, 11))).await, applied(true));
    assert_eq!(queue.look(job, b"10 EUR").await, applied(false));
    assert_eq!(queue.look(job, b"20 EUR").await, applied(true));
}

#[tokio::test]
async fn i2_a_step_whose_beginner_is_gone_is_in_doubt_and_begins_again_only_where_that_is_allowed() {
    let (queue, first) = leased().await;
    let job = first.token.job;
    assert_eq!(queue.begin(begin(first.token, 1)).await, StepBegun::Fresh);
    assert_eq!(queue.begin(begin(first.token, 1)).await, StepBegun::Conflict, "it has begun it already");
    let second = queue.next_attempt(&first, 10).await;
    let before = queue.contents();
    assert_eq!(queue.begin(begin(second.token, 11)).await, StepBegun::InDoubt);
    let running = BeginStep { others_running: vec![AttemptNumber(1)], ..begin(second.token, 11) };
    assert_eq!(queue.begin(running).await, StepBegun::InProgress);
    let elsewhere = BeginStep { others_running: vec![AttemptNumber(7)], ..begin(second.token, 11) };
    assert_eq!(queue.begin(elsewhere).await, StepBegun::InDoubt);
    let take_over = BeginStep { take_over: true, ..begin(second.token, 11) };
    assert_eq!(queue.begin(other_effect(take_over.clone())).await, StepBegun::Conflict);
    assert_eq!(queue.contents(), before, "a refused begin leaves nothing");
    assert_eq!(queue.look(job, b"10 EUR").await, StepBegun::InDoubt);
    assert_eq!(queue.look(job, b"20 EUR").await, StepBegun::Conflict);
    assert_eq!(queue.begin(take_over).await, StepBegun::InDoubt);
    assert_eq!(queue.runs(job).await, [(1, false, None), (2, true, None)]);
}

#[tokio::test]
async fn i2_a_step_that_was_taken_back_begins_afresh_and_one_that_was_in_doubt_stays_so() {
    let (queue, first) = leased().await;
    let job = first.token.job;
    queue.begin(begin(first.token, 1)).await;
    assert_eq!(queue.take_back(first.token).await, StepEnded::Recorded);
    assert_eq!(queue.runs(job).await, [(1, false, Some("taken_back".into()))]);
    assert_eq!(queue.look(job, b"20 EUR").await, StepBegun::Fresh);
    assert_eq!(queue.begin(begin(first.token, 1)).await, StepBegun::Conflict, "one run of a step for each attempt");
    let second = queue.next_attempt(&first, 10).await;
    assert_eq!(queue.begin(other_effect(begin(second.token, 11))).await, StepBegun::Fresh);
    let third = queue.next_attempt(&second, 20).await;
    let take_over = BeginStep { take_over: true, ..other_effect(begin(third.token, 21)) };
    assert_eq!(queue.begin(take_over).await, StepBegun::InDoubt);
    // Its own run did nothing, but the one before may have.
    assert_eq!(queue.take_back(third.token).await, StepEnded::Recorded);
    assert_eq!(queue.look(job, b"20 EUR").await, StepBegun::InDoubt);
    assert_eq!(queue.take_back(second.token).await, StepEnded::Stale { applied_elsewhere: false });
}

#[tokio::test]
async fn i3_an_attempt_that_was_overtaken_can_end_its_run_and_changes_nothing() {
    let (queue, first) = leased().await;
    let job = first.token.job;
    queue.begin(begin(first.token, 1)).await;
    let second = queue.next_attempt(&first, 10).await;
    queue.begin(BeginStep { take_over: true, ..begin(second.token, 11) }).await;
    assert_eq!(queue.begin(begin(first.token, 12)).await, StepBegun::LeaseLost);
    assert_eq!(queue.complete_step(first.token, Vec::new()).await, StepEnded::Stale { applied_elsewhere: false });
    assert_eq!(queue.runs(job).await, [(1, false, Some("stale".into())), (2, true, None)]);
    assert_eq!(queue.complete_step(second.token, Vec::new()).await, StepEnded::AppliedTwice);
    assert_eq!(queue.complete_step(first.token, Vec::new()).await, StepEnded::Stale { applied_elsewhere: true });
}

#[tokio::test]
async fn i1_the_key_that_downstream_sees_is_the_same_for_each_run_and_another_for_each_effect() {
    let queue = Queue::new().await;
    let key = |kind, job, step| queue.store.downstream_key(kind, job, &StepName::new(step).unwrap()).unwrap();
    let one = key("k", "order-1", "charge");
    assert_eq!(one, key("k", "order-1", "charge"));
    assert!(one.len() == 32 && !one.contains("order"), "{one}");
    let others = [key("l", "order-1", "charge"), key("k", "order-2", "charge"), key("k", "order-1", "mail")];
    assert!(others.iter().all(|other| *other != one), "{others:?}");
}

#[tokio::test]
async fn i4_what_steps_and_attempts_keep_becomes_real_with_the_jobs_success_in_order() {
    let queue = Queue::new().await;
    let sent = queue.enqueue(vec![keyed_job("k", "order-1", b"1")], 0).await;
    let job = crate::queue::id(&sent[0]);
    let claimed = queue.lease(0).await;
    queue.begin(begin(claimed.token, 1)).await;
    queue.complete_step(claimed.token, vec![set("a", b"step"), set("b", b"step"), enqueue()]).await;
    // Until then only the job itself sees them.
    assert_eq!(value(&queue, job, "a").await.as_deref(), Some(&b"step"[..]));
    assert_eq!(value(&queue, JobId(job.0 + 1_000), "a").await, None);
    let mut done = settlement(&claimed, complete(), 50);
    done.effects = vec![set("a", b"attempt"), Effect::Delete { store: "s".into(), key: "b".into() }];
    queue.settle(done).await;
    let stranger = JobId(job.0 + 1_000);
    assert_eq!(value(&queue, stranger, "a").await.as_deref(), Some(&b"attempt"[..]));
    assert_eq!(value(&queue, stranger, "b").await, None);
    assert_eq!(queue.store.list_value_keys("s", None).await.unwrap(), (vec!["a".to_owned()], None));
    assert_eq!(queue.number("SELECT count(*) FROM step_effects"), 0);
    // Its delay counts from the success.
    assert!(queue.claim(vec![kind("l")], 1, 149).await.jobs.is_empty());
    let follower = queue.claim(vec![kind("l")], 1, 150).await.jobs.pop().unwrap();
    assert_eq!(follower.contents.as_ref().unwrap().payload, b"next");
}

#[tokio::test]
async fn i4_of_a_job_that_dies_nothing_becomes_real_and_what_its_steps_kept_waits_for_a_replay() {
    let (queue, claimed) = leased().await;
    queue.begin(begin(claimed.token, 1)).await;
    queue.complete_step(claimed.token, vec![set("a", b"step")]).await;
    queue.settle(settlement(&claimed, die(), 10)).await;
    assert_eq!(value(&queue, JobId(claimed.token.job.0 + 1), "a").await, None);
    assert_eq!(queue.number("SELECT count(*) FROM step_effects"), 1);
}

#[tokio::test]
async fn i4_a_store_lists_its_keys_page_by_page() {
    let (queue, claimed) = leased().await;
    let mut done = settlement(&claimed, complete(), 10);
    done.effects = (0..101).map(|number| set(&format!("{number:03}"), b"")).collect();
    queue.settle(done).await;
    let (first, next) = queue.store.list_value_keys("s", None).await.unwrap();
    assert_eq!((first.len(), first[0].as_str(), first[99].as_str()), (100, "000", "099"));
    let (rest, none) = queue.store.list_value_keys("s", next).await.unwrap();
    assert_eq!((rest, none), (vec!["100".to_owned()], None));
}

fn set(key: &str, value: &[u8]) -> Effect {
    Effect::Set { store: "s".into(), key: key.into(), value: value.to_vec() }
}

fn enqueue() -> Effect {
    let job = leasehold_store::EnqueueJob { payload: b"next".to_vec(), ..crate::queue::job("l") };
    Effect::Enqueue(NewJob {
        kind: job.kind,
        key: None,
        lane: None,
        content_type: job.content_type,
        payload: job.payload,
        metadata: Vec::new(),
        delay_ms: 100,
        priority: 0,
    })
}

async fn value(queue: &Queue, job: JobId, key: &str) -> Option<Vec<u8>> {
    queue.store.read_value(job, "s", key).await.unwrap()
}
