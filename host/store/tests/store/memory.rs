//! H5 and Q15 on the store: what a claim leases when memory is short, and who waits.

use leasehold_domain::{JobId, MemoryRoom};
use leasehold_store::{Claim, KindClaim};

use crate::queue::{Queue, id, job, kind, lane_job};

/// A kind whose attempts take so much.
fn taking(memory_bytes: u64, name: &str) -> KindClaim {
    KindClaim { memory_bytes, ..kind(name) }
}

/// Puts a job of each kind in, one a millisecond.
async fn enqueue(queue: &Queue, kinds: &[&str]) -> Vec<JobId> {
    let mut ids = Vec::new();
    for (now_ms, name) in kinds.iter().enumerate() {
        ids.push(id(&queue.enqueue(vec![job(name)], i64::try_from(now_ms).unwrap()).await[0]));
    }
    ids
}

fn leased(claim: &Claim) -> Vec<JobId> {
    claim.jobs.iter().map(|claimed| claimed.token.job).collect()
}

#[tokio::test]
async fn h5_no_more_is_leased_than_there_is_memory_for_and_what_waits_counts_no_attempt() {
    let queue = Queue::new().await;
    let ids = enqueue(&queue, &["large", "large", "large", "small", "small"]).await;
    let kinds = || vec![taking(40, "large"), taking(10, "small")];
    let claim = queue.claim_within(MemoryRoom::left_by([], 100), kinds(), 10, 10).await;
    // The third large one waits for one of the two, so the small ones take what is left.
    assert_eq!(leased(&claim), [ids[0], ids[1], ids[3], ids[4]]);
    assert_eq!(queue.number(&format!("SELECT attempts_used FROM jobs WHERE id = {}", ids[2].0)), 0);
    let claim = queue.claim_within(MemoryRoom::left_by([40, 10], 100), kinds(), 10, 10).await;
    assert_eq!(leased(&claim), [ids[2]]);
}

#[tokio::test]
async fn q15_nothing_behind_is_leased_while_only_smaller_ones_run_than_the_first_in_line() {
    let queue = Queue::new().await;
    let ids = enqueue(&queue, &["small", "large", "small"]).await;
    let kinds = || vec![taking(10, "small"), taking(80, "large")];
    let claim = queue.claim_within(MemoryRoom::left_by([10, 10, 10], 100), kinds(), 10, 10).await;
    assert_eq!((leased(&claim), claim.cut_short), (vec![ids[0]], false));
    let claim = queue.claim_within(MemoryRoom::left_by([10], 100), kinds(), 10, 10).await;
    assert_eq!(leased(&claim), [ids[1], ids[2]]);
}

#[tokio::test]
async fn q15_a_job_that_its_lane_holds_back_keeps_no_memory_from_others() {
    let queue = Queue::new().await;
    let jobs = [lane_job("large", "a"), lane_job("large", "a"), job("small")];
    let ids: Vec<_> = queue.enqueue(jobs.into(), 0).await.iter().map(id).collect();
    let kinds = || vec![KindClaim { lane_concurrency: Some(1), ..taking(80, "large") }, taking(30, "small")];
    let first = queue.claim_within(MemoryRoom::left_by([], 100), kinds(), 1, 0).await;
    assert_eq!(leased(&first), [ids[0]]);
    // As if the first one took nothing: the second would keep its place, were it not for its lane.
    let claim = queue.claim_within(MemoryRoom::left_by([10, 20], 100), kinds(), 10, 0).await;
    assert_eq!(leased(&claim), [ids[2]]);
}
