//! Q15 and Q9 on the store: places in line, limits and cooldowns.

use leasehold_domain::{JobId, Verdict};
use leasehold_store::{Claim, EnqueueJob, KindClaim};

use crate::queue::{PRIORITY_STEP_MS, Queue, complete, id, job, kind, lane_job, retry, settlement};

fn with_priority(priority: i32) -> EnqueueJob {
    EnqueueJob { priority, ..job("k") }
}

/// Leases one job after the other, and tells in which order.
async fn order(queue: &Queue, kinds: &[KindClaim], now_ms: i64) -> Vec<JobId> {
    let mut order = Vec::new();
    while let Some(claimed) = queue.claim(kinds.to_vec(), 1, now_ms).await.jobs.pop() {
        order.push(claimed.token.job);
    }
    order
}

#[tokio::test]
async fn q15_priority_goes_first_and_waiting_makes_up_for_it() {
    let queue = Queue::new().await;
    let now_ms = 10 * PRIORITY_STEP_MS;
    let old = id(&queue.enqueue(vec![with_priority(0)], 0).await[0]);
    let low = id(&queue.enqueue(vec![with_priority(-1)], now_ms).await[0]);
    let usual = id(&queue.enqueue(vec![with_priority(0)], now_ms).await[0]);
    let high = id(&queue.enqueue(vec![with_priority(9)], now_ms).await[0]);
    let higher = id(&queue.enqueue(vec![with_priority(11)], now_ms).await[0]);
    // Ten steps of waiting are worth more than nine of priority and less than eleven.
    assert_eq!(order(&queue, &[kind("k")], now_ms).await, [higher, old, high, usual, low]);
}

#[tokio::test]
async fn q15_a_steady_stream_of_a_higher_priority_overtakes_a_job_for_its_steps_and_no_longer() {
    let queue = Queue::new().await;
    let low = id(&queue.enqueue(vec![with_priority(0)], 0).await[0]);
    let mut overtook = 0;
    // As many come as are leased, so without ageing the first one would wait for ever.
    for step in 0..20 {
        let now_ms = step * PRIORITY_STEP_MS;
        queue.enqueue(vec![with_priority(3)], now_ms).await;
        if queue.lease(now_ms).await.token.job == low {
            break;
        }
        overtook += 1;
    }
    assert_eq!(overtook, 3);
}

#[tokio::test]
async fn q15_the_one_job_of_a_kind_is_leased_at_once_beside_a_backlog_at_its_limit() {
    let queue = Queue::new().await;
    for _ in 0..20 {
        queue.enqueue((0..1_000).map(|_| job("backlog")).collect(), 0).await;
    }
    let one = id(&queue.enqueue(vec![job("one")], 1).await[0]);
    let room = |max| vec![KindClaim { max, ..kind("backlog") }, kind("one")];
    let leased: Vec<_> = queue.claim(room(4), 8, 1).await.jobs.iter().map(|claimed| claimed.token.job).collect();
    assert_eq!(
        leased.iter().position(|job| *job == one),
        Some(4),
        "only as many as its kind has room for are before it"
    );
    // It goes before the backlog where its priority says so, and behind it where nothing does.
    let urgent = EnqueueJob { priority: 1, ..job("one") };
    let urgent = id(&queue.enqueue(vec![urgent], 2).await[0]);
    assert_eq!(queue.claim(room(usize::MAX), 1, 2).await.jobs[0].token.job, urgent);
    let usual = id(&queue.enqueue(vec![job("one")], 3).await[0]);
    assert_ne!(queue.claim(room(usize::MAX), 1, 3).await.jobs[0].token.job, usual);
}

#[tokio::test]
async fn q15_the_heads_of_all_kinds_are_merged_by_their_place() {
    let queue = Queue::new().await;
    let mut expected = Vec::new();
    for (now_ms, name) in [(0, "k"), (1, "l"), (2, "m"), (3, "k"), (4, "m"), (5, "l")] {
        expected.push(id(&queue.enqueue(vec![job(name)], now_ms).await[0]));
    }
    assert_eq!(order(&queue, &[kind("m"), kind("k"), kind("l")], 10).await, expected);
}

#[tokio::test]
async fn q15_a_retry_stands_behind_those_that_were_visible_before_it() {
    let queue = Queue::new().await;
    let first = queue.enqueue_one(0).await;
    let claimed = queue.lease(0).await;
    let second = queue.enqueue_one(50).await;
    queue.settle(settlement(&claimed, retry(100), 10)).await;
    assert!(queue.store.next_visible_ms().await.unwrap() == Some(100));
    assert_eq!(order(&queue, &[kind("k")], 99).await, [second]);
    assert_eq!(order(&queue, &[kind("k")], 100).await, [first]);
}

#[tokio::test]
async fn q15_a_kind_takes_no_more_than_it_has_room_for() {
    let queue = Queue::new().await;
    queue.enqueue((0..5).map(|_| job("k")).chain((0..5).map(|_| job("l"))).collect(), 0).await;
    let claim = queue.claim(vec![KindClaim { max: 2, ..kind("k") }, kind("l")], 6, 0).await;
    let of_k = |claim: &Claim| claim.jobs.iter().filter(|claimed| claimed.kind.as_str() == "k").count();
    assert_eq!((of_k(&claim), claim.jobs.len()), (2, 6));
    // Nor when the claim itself has room for more, and looks again.
    let claim = queue.claim(vec![KindClaim { max: 2, ..kind("k") }, kind("l")], 6, 0).await;
    assert_eq!((of_k(&claim), claim.jobs.len()), (2, 3));
}

#[tokio::test]
async fn q15_a_lane_takes_no_more_than_its_limit_and_goes_on_when_one_of_its_jobs_ends() {
    let queue = Queue::new().await;
    let jobs = ["a", "a", "a", "b"].map(|lane| lane_job("k", lane));
    let ids: Vec<_> = queue.enqueue(jobs.into(), 0).await.iter().map(id).collect();
    let limited = || vec![KindClaim { lane_concurrency: Some(1), ..kind("k") }];
    let leased = queue.claim(limited(), 10, 0).await.jobs;
    assert_eq!(leased.iter().map(|claimed| claimed.token.job).collect::<Vec<_>>(), [ids[0], ids[3]]);
    assert!(queue.claim(limited(), 10, 0).await.jobs.is_empty());
    queue.settle(settlement(&leased[0], complete(), 1)).await;
    let leased = queue.claim(limited(), 10, 1).await.jobs;
    assert_eq!(leased.iter().map(|claimed| claimed.token.job).collect::<Vec<_>>(), [ids[1]]);
}

#[tokio::test]
async fn q15_a_lane_uses_a_raised_limit_once_what_is_held_of_it_is_let_go() {
    let queue = Queue::new().await;
    let ids: Vec<_> = queue.enqueue(vec![lane_job("k", "a"), lane_job("k", "a")], 0).await.iter().map(id).collect();
    let of = |limit| [KindClaim { lane_concurrency: Some(limit), ..kind("k") }];
    assert_eq!(order(&queue, &of(1), 1).await, [ids[0]]);
    assert_eq!(order(&queue, &of(2), 2).await, [], "the second was held under the limit from before");
    queue.store.let_go_held_lanes().await.unwrap();
    assert_eq!(order(&queue, &of(2), 3).await, [ids[1]]);
}

#[tokio::test]
async fn q15_what_is_held_is_let_go_in_all_lanes_however_many_there_are() {
    let queue = Queue::new().await;
    let lanes: Vec<_> = (0..33).map(|lane| format!("lane-{lane}")).collect();
    queue.enqueue(lanes.iter().chain(&lanes).map(|lane| lane_job("k", lane)).collect(), 0).await;
    let of = |limit| [KindClaim { lane_concurrency: Some(limit), ..kind("k") }];
    assert_eq!(claim_all(&queue, &of(1), 100, 1).await.0.len(), 33);
    assert_eq!(queue.number("SELECT count(*) FROM jobs WHERE held = 1"), 33);
    queue.store.let_go_held_lanes().await.unwrap();
    assert_eq!(queue.number("SELECT count(*) FROM jobs WHERE held = 1"), 0);
}

#[tokio::test]
async fn q5_a_claim_takes_no_further_job_once_it_has_four_megabytes_of_payloads() {
    let queue = Queue::new().await;
    let sizes = [3 << 20, 1 << 20, 1, 4 << 20, 1];
    let jobs = sizes.map(|bytes| EnqueueJob { payload: vec![b' '; bytes], ..job("k") });
    let ids: Vec<_> = queue.enqueue(jobs.into(), 0).await.iter().map(id).collect();
    for expected in [&ids[..2], &ids[2..4], &ids[4..]] {
        let leased = queue.claim(vec![kind("k")], 10, 1).await.jobs;
        assert_eq!(leased.iter().map(|claimed| claimed.token.job).collect::<Vec<_>>(), expected);
    }
}

/// Claims until nothing more is found, as the dispatcher does; answers what was leased and in how many claims.
async fn claim_all(queue: &Queue, kinds: &[KindClaim], max: usize, now_ms: i64) -> (Vec<JobId>, usize) {
    let (mut leased, mut claims) = (Vec::new(), 0);
    loop {
        let claim = queue.claim(kinds.to_vec(), max, now_ms).await;
        claims += 1;
        leased.extend(claim.jobs.iter().map(|claimed| claimed.token.job));
        if claim.jobs.is_empty() && !claim.cut_short {
            return (leased, claims);
        }
    }
}

#[tokio::test]
async fn q15_a_blocked_lanes_backlog_is_passed_by_and_looked_at_once() {
    let queue = Queue::new().await;
    let backlog: Vec<_> = (0..20_000).map(|_| lane_job("k", "a")).collect();
    let first = id(&queue.enqueue(backlog, 0).await[0]);
    let behind = id(&queue.enqueue(vec![lane_job("k", "b")], 1).await[0]);
    let limited = [KindClaim { max: 8, lane_concurrency: Some(1), ..kind("k") }];
    let (leased, claims) = claim_all(&queue, &limited, 8, 1).await;
    assert_eq!(leased, [first, behind]);
    assert!(claims > 2, "the backlog is too short to cut a claim short");
    // What was found to be blocked once costs the next claim nothing.
    let another = id(&queue.enqueue(vec![lane_job("k", "c")], 2).await[0]);
    let (leased, claims) = claim_all(&queue, &limited, 8, 2).await;
    assert_eq!((leased, claims), (vec![another], 2));
}

#[tokio::test]
async fn q9_a_cooldown_holds_its_lane_back_until_its_end_whatever_the_end_of_the_job() {
    let deaths =
        |until_ms| Verdict::Die { cause: leasehold_domain::Cause::Exhausted, cooldown_until_ms: Some(until_ms) };
    let retries = |until_ms| Verdict::Retry { visible_at_ms: until_ms, cooldown_until_ms: Some(until_ms) };
    for verdict in [deaths(500), retries(500)] {
        let queue = Queue::new().await;
        let jobs = ["a", "a", "b"].map(|lane| lane_job("k", lane));
        let ids: Vec<_> = queue.enqueue(jobs.into(), 0).await.iter().map(id).collect();
        let cooled = [KindClaim { cooldown: true, ..kind("k") }];
        let limited = queue.claim(cooled.to_vec(), 1, 0).await.jobs.pop().unwrap();
        queue.settle(settlement(&limited, verdict, 10)).await;
        assert_eq!(order(&queue, &cooled, 499).await, [ids[2]]);
        assert_eq!(queue.store.next_visible_ms().await.unwrap(), Some(500));
        assert!(order(&queue, &cooled, 500).await.contains(&ids[1]));
    }
}

#[tokio::test]
async fn q9_a_kind_that_has_no_cooldown_any_more_waits_for_none() {
    let queue = Queue::new().await;
    let jobs = vec![lane_job("k", "a"), lane_job("k", "a")];
    let ids: Vec<_> = queue.enqueue(jobs, 0).await.iter().map(id).collect();
    let limited = queue.claim(vec![KindClaim { cooldown: true, ..kind("k") }], 1, 0).await.jobs.pop().unwrap();
    let verdict = Verdict::Retry { visible_at_ms: 500, cooldown_until_ms: Some(500) };
    queue.settle(settlement(&limited, verdict, 10)).await;
    assert_eq!(order(&queue, &[kind("k")], 20).await, [ids[1]]);
}

#[tokio::test]
async fn q9_jobs_without_a_lane_share_a_cooldown_that_lanes_do_not() {
    let queue = Queue::new().await;
    let ids: Vec<_> = queue.enqueue(vec![job("k"), job("k"), lane_job("k", "a")], 0).await.iter().map(id).collect();
    let cooled = [KindClaim { cooldown: true, ..kind("k") }];
    let limited = queue.claim(cooled.to_vec(), 1, 0).await.jobs.pop().unwrap();
    let verdict = Verdict::Retry { visible_at_ms: 500, cooldown_until_ms: Some(500) };
    queue.settle(settlement(&limited, verdict, 10)).await;
    assert_eq!(order(&queue, &cooled, 20).await, [ids[2]]);
    assert_eq!(order(&queue, &cooled, 500).await.len(), 2);
}

#[tokio::test]
async fn h9_a_kind_without_a_current_version_is_not_leased() {
    let queue = Queue::new().await;
    queue.enqueue(vec![job("k"), job("unserved")], 0).await;
    let unserved = KindClaim { handler: leasehold_domain::HandlerName::new("absent").unwrap(), ..kind("unserved") };
    let claim = queue.claim(vec![unserved, kind("k")], 10, 0).await;
    assert_eq!(claim.jobs.len(), 1);
    assert_eq!(queue.number("SELECT count(*) FROM jobs WHERE kind = 'unserved' AND state = 1 AND attempt = 0"), 1);
}
