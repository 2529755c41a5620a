//! What can't run keeps back nothing that could: suspects that wait for one another, replays while there is no current
//! version, and jobs that only the reaper has to do with.

use leasehold_domain::{Cause, DeadLetterId, Digest, HandlerVersion, JobId, Verdict, verdict::SUSPECT_AFTER};
use leasehold_store::{
    Claimed, EnqueueJob, KindClaim, ReplayAnswer, ReplayRequest, Settled, Settlement, StepEnded, StoredVersion,
};

use crate::queue::{Queue, complete, die, id, job, kind, lane_job, replay, retry, settlement};

fn jobs_of(claimed: &[Claimed]) -> Vec<JobId> {
    claimed.iter().map(|claimed| claimed.token.job).collect()
}

/// Puts jobs in that have been running at two unclean stops.
async fn enqueue_suspects(queue: &Queue, jobs: Vec<EnqueueJob>, now_ms: i64) -> Vec<JobId> {
    let ids: Vec<_> = queue.enqueue(jobs, now_ms).await.iter().map(id).collect();
    for claimed in queue.claim(vec![kind("k"), kind("l")], ids.len(), now_ms).await.jobs {
        assert!(ids.contains(&claimed.token.job));
        let stopped = Settlement { unclean_stops: SUSPECT_AFTER, ..settlement(&claimed, retry(now_ms), now_ms) };
        queue.settle(stopped).await;
    }
    ids
}

#[tokio::test]
async fn q13_a_suspect_that_waits_for_another_one_does_not_shut_its_lane() {
    let queue = Queue::new().await;
    let suspects = enqueue_suspects(&queue, vec![lane_job("k", "x"), lane_job("k", "a")], 0).await;
    let limited = || vec![KindClaim { lane_concurrency: Some(1), ..kind("k") }];
    let leased = queue.claim(limited(), 1, 1).await.jobs;
    assert_eq!(jobs_of(&leased), [suspects[0]], "one suspect runs, in another lane");
    // The lane of the other suspect is busy, and that suspect is the first of those who wait for it.
    let others: Vec<_> =
        queue.enqueue(vec![EnqueueJob { priority: 1, ..lane_job("k", "a") }, lane_job("k", "a")], 2).await;
    let others: Vec<_> = others.iter().map(id).collect();
    let first = queue.claim(limited(), 10, 2).await.jobs;
    assert_eq!(jobs_of(&first), [others[0]]);
    queue.settle(settlement(&first[0], complete(), 3)).await;
    let second = queue.claim(limited(), 10, 4).await.jobs;
    assert_eq!(jobs_of(&second), [others[1]], "a job that could run was kept back by a suspect that can't");
    queue.settle(settlement(&second[0], complete(), 5)).await;
    assert!(queue.claim(limited(), 10, 5).await.jobs.is_empty(), "two suspects would run at once");
    queue.settle(settlement(&leased[0], complete(), 6)).await;
    assert_eq!(jobs_of(&queue.claim(limited(), 10, 7).await.jobs), [suspects[1]]);
}

#[tokio::test]
async fn q13_a_suspect_that_was_let_go_and_came_second_does_not_shut_its_lane_either() {
    let queue = Queue::new().await;
    let suspects = enqueue_suspects(&queue, vec![lane_job("k", "a"), job("l")], 0).await;
    let of = |name| vec![KindClaim { lane_concurrency: Some(1), ..kind(name) }];
    let jobs = vec![EnqueueJob { priority: 2, ..lane_job("k", "a") }, lane_job("k", "a")];
    let others: Vec<_> = queue.enqueue(jobs, 1).await.iter().map(id).collect();
    let first = queue.claim(of("k"), 10, 2).await.jobs;
    assert_eq!(jobs_of(&first), [others[0]]);
    assert_eq!(queue.number("SELECT count(*) FROM jobs WHERE held = 1"), 2);
    // Its end lets the suspect of its lane go, and then the other suspect is leased.
    queue.settle(settlement(&first[0], complete(), 3)).await;
    assert_eq!(jobs_of(&queue.claim(of("l"), 10, 4).await.jobs), [suspects[1]]);
    assert_eq!(jobs_of(&queue.claim(of("k"), 10, 5).await.jobs), [others[1]]);
}

#[tokio::test]
async fn q13_a_job_that_was_handed_to_the_reaper_is_nobody_who_ran_when_the_daemon_stopped() {
    let queue = Queue::new().await;
    let suspect = enqueue_suspects(&queue, vec![job("k")], 0).await;
    let lowered = KindClaim { attempts_max: 1, ..kind("k") };
    assert_eq!(queue.claim(vec![lowered], 1, 1).await.used_up, 1);
    let running = queue.enqueue_one(2).await;
    let claimed = queue.claim(vec![kind("k")], 10, 2).await.jobs;
    assert_eq!(jobs_of(&claimed), [running]);
    let queue = queue.reopen();
    let left: Vec<_> = queue.store.leases().await.unwrap().iter().map(|lease| lease.token.job).collect();
    assert_eq!(left, [running], "a lease under which nothing ran was found");
    let expired: Vec<_> =
        queue.store.expired_leases(3, 10).await.unwrap().iter().map(|lease| lease.token.job).collect();
    assert_eq!(expired, suspect, "the reaper still has it");
}

/// Stores a version of the handler and makes it current beside the others.
async fn activate_beside(queue: &Queue, number: &str) -> HandlerVersion {
    let version = HandlerVersion::new("h", number).unwrap();
    let stored = StoredVersion { version: version.clone(), digest: Digest::of(number.as_bytes()), size_bytes: 1 };
    queue.store.put_version(stored, "tests", 0).await.unwrap();
    queue.store.activate_version(&version, true, "tests", 0).await.unwrap();
    version
}

async fn die_and_replay(queue: &Queue, claimed: &Claimed, version: &HandlerVersion, now_ms: i64) {
    let Settled::Applied { dead_letter: Some(letter), .. } = queue.settle(settlement(claimed, die(), now_ms)).await
    else {
        panic!("it did not die")
    };
    let request = ReplayRequest {
        version: Some(version.clone()),
        override_reason: Some("on purpose".into()),
        begin_again: true,
        ..replay(DeadLetterId(letter), now_ms)
    };
    assert!(matches!(queue.store.replay(request).await.unwrap(), ReplayAnswer::Replayed { .. }));
}

#[tokio::test]
async fn r1_a_replay_runs_on_its_version_also_while_no_version_is_current() {
    let queue = Queue::new().await;
    let old = HandlerVersion::new("h", "1.0.0").unwrap();
    let limited = || vec![KindClaim { lane_concurrency: Some(1), ..kind("k") }];
    // One lane, so that the replays have to come past jobs that nothing serves.
    let ids: Vec<_> = queue.enqueue(vec![lane_job("k", "a"), lane_job("k", "a")], 0).await.iter().map(id).collect();
    let dying = queue.claim(vec![kind("k")], 2, 0).await.jobs;
    let current = activate_beside(&queue, "2.0.0").await;
    queue.enqueue(vec![lane_job("k", "a"), lane_job("k", "a")], 1).await;
    for claimed in &dying {
        die_and_replay(&queue, claimed, &old, 2).await;
    }
    let first = queue.claim(limited(), 10, 3).await.jobs;
    assert!(first.len() == 1 && !ids.contains(&first[0].token.job), "{:?}", jobs_of(&first));
    assert_eq!(queue.number("SELECT count(*) FROM jobs WHERE held = 1"), 3);
    queue.store.retire_version(&current, "tests", 4).await.unwrap();
    queue.settle(settlement(&first[0], complete(), 5)).await;
    for (now_ms, id) in (10..).zip(ids) {
        let leased = queue.claim(limited(), 10, now_ms).await.jobs;
        assert_eq!(jobs_of(&leased), [id]);
        assert_eq!((&leased[0].run_on.version, leased[0].run_on.live), (&old, true));
        queue.settle(settlement(&leased[0], complete(), now_ms)).await;
    }
    assert!(queue.claim(limited(), 10, 20).await.jobs.is_empty(), "a job ran on a version that is not current");
    // Whoever claims can also know that the current version can't run.
    queue.store.activate_version(&old, false, "tests", 21).await.unwrap();
    assert!(queue.claim(vec![KindClaim { bound_only: true, ..kind("k") }], 10, 22).await.jobs.is_empty());
    assert_eq!(queue.claim(vec![kind("k")], 10, 23).await.jobs.len(), 1);
}

#[tokio::test]
async fn i4_a_completion_that_comes_after_the_jobs_end_keeps_nothing_that_could_become_real() {
    let cancelled = Verdict::Cancel;
    let died = Verdict::Die { cause: Cause::Exhausted, cooldown_until_ms: None };
    for (verdict, kept) in [(complete(), 0), (cancelled, 0), (died, 1)] {
        let queue = Queue::new().await;
        queue.enqueue_one(0).await;
        let first = queue.lease(0).await;
        let name = queue.begin_step(first.token, 1).await;
        queue.settle(settlement(&first, verdict, 2)).await;
        let effect = leasehold_domain::Effect::Set { store: "s".into(), key: "k".into(), value: b"v".to_vec() };
        let ended = queue.store.complete_step(first.token, name, b"sent".to_vec(), vec![effect], 3).await.unwrap();
        assert_eq!(ended, StepEnded::Recorded, "the step's own beginner stores its result");
        assert_eq!(queue.number("SELECT count(*) FROM step_effects"), kept);
    }
}
