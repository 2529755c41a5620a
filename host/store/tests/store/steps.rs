//! I1 to I3 on the store: what a step's begin finds and what its end records.

use leasehold_domain::{AttemptNumber, FencingToken, JobId, StepName};
use leasehold_store::{BeginStep, Claimed, StepBegun, StepEnded};

use crate::queue::{self, Queue, retry, settlement};

fn name() -> StepName {
    StepName::new("charge").unwrap()
}

fn begin(token: FencingToken, now_ms: i64) -> BeginStep {
    BeginStep { fingerprint: b"10 EUR".to_vec(), ..queue::begin(token, name().as_str(), now_ms) }
}

fn other_effect(begin: BeginStep) -> BeginStep {
    BeginStep { fingerprint: b"20 EUR".to_vec(), ..begin }
}

impl Queue {
    async fn begin(&self, begin: BeginStep) -> StepBegun {
        self.store.begin_step(begin).await.unwrap()
    }

    async fn complete_step(&self, token: FencingToken) -> StepEnded {
        self.store.complete_step(token, name(), b"receipt".to_vec(), Vec::new(), 5).await.unwrap()
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
    assert_eq!(queue.complete_step(first.token).await, StepEnded::Recorded);
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
async fn i1_a_jobs_record_shows_where_its_steps_stand() {
    let (queue, claimed) = leased().await;
    let shown = || async {
        let record = queue.store.job(claimed.token.job).await.unwrap().expect("the job");
        let steps = record.steps.into_iter();
        steps
            .map(|step| (step.name, step.state, step.begun_by, step.begun_at_ms, step.applied_at_ms))
            .collect::<Vec<_>>()
    };
    assert_eq!(shown().await, []);
    queue.begin(begin(claimed.token, 3)).await;
    assert_eq!(shown().await, [("charge".to_owned(), "begun".to_owned(), 1, 3, None)]);
    queue.complete_step(claimed.token).await;
    assert_eq!(shown().await, [("charge".to_owned(), "applied".to_owned(), 1, 3, Some(5))]);
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
    assert_eq!(queue.complete_step(first.token).await, StepEnded::Stale { applied_elsewhere: false });
    assert_eq!(queue.runs(job).await, [(1, false, Some("stale".into())), (2, true, None)]);
    assert_eq!(queue.complete_step(second.token).await, StepEnded::AppliedTwice);
    assert_eq!(queue.complete_step(first.token).await, StepEnded::Stale { applied_elsewhere: true });
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
