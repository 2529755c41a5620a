//! Takes permits before it claims: as many jobs as there are free slots and memory, of the kinds that have room. So
//! waiting for capacity burns no attempt, and what runs is never short of it. It never waits by polling: it is rung when a
//! job may have become claimable, and sleeps until the next one is due.

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use leasehold_domain::KindPolicy;
use leasehold_store::{Claim, ClaimRequest, KindClaim, StoreError};

use crate::{
    attempt,
    config::Config,
    daemon::{Daemon, InForce},
    trouble::Trouble,
};

/// The time after a guest's deadline in which its result is written; a lease is never extended beyond it.
pub(crate) const SETTLE_GRACE_MS: i64 = 1_000;
/// How long claiming rests after it failed.
const REST_AFTER_FAILURE: Duration = Duration::from_secs(1);
/// The longest sleep; only a safeguard, since whatever makes a job claimable rings.
const SLEEP_MAX_MS: i64 = 60_000;

/// Claims and starts attempts until the daemon stops leasing.
pub(crate) async fn run(daemon: Arc<Daemon>) {
    let mut trouble = Trouble::default();
    // After a rest it was rung, most often by an enqueue that is on its way.
    let mut has_rested = false;
    while let Some(claimed) = claim_and_start(&daemon, has_rested).await {
        trouble.note("claiming", &claimed);
        has_rested = matches!(claimed, Ok(Claimed::Nothing));
        match claimed {
            Ok(Claimed::Something) => {}
            Ok(Claimed::Nothing) => rest(&daemon, true).await,
            Ok(Claimed::NoRoom) => rest(&daemon, false).await,
            Err(_) => tokio::time::sleep(REST_AFTER_FAILURE).await,
        }
    }
}

/// What became of one claim.
enum Claimed {
    /// There may be more to claim at once.
    Something,
    /// Nothing is claimable now.
    Nothing,
    /// There was no room for anything.
    NoRoom,
}

/// Makes one claim and starts what it leased; none when the daemon leases no more. A shutdown waits on the same lock, so
/// that no lease is taken behind its back.
async fn claim_and_start(daemon: &Arc<Daemon>, waits_its_turn: bool) -> Option<Result<Claimed, StoreError>> {
    let _leasing = daemon.leasing.lock().await;
    if daemon.stopping.load(Ordering::SeqCst) {
        return None;
    }
    let claimed = claim(daemon, waits_its_turn).await.map(|claim| match claim {
        None => Claimed::NoRoom,
        Some(claim) if claim.jobs.is_empty() && claim.used_up == 0 && !claim.cut_short => Claimed::Nothing,
        Some(claim) => {
            start(daemon, claim);
            Claimed::Something
        }
    });
    Some(claimed)
}

/// Claims what there is room for; nothing when there is none.
async fn claim(daemon: &Daemon, waits_its_turn: bool) -> Result<Option<Claim>, StoreError> {
    let free = daemon.running.free_slots(daemon.sandbox.slots());
    if free == 0 || daemon.store.key_problem().is_some() || daemon.store.damage().is_some() {
        return Ok(None);
    }
    let in_force = daemon.in_force();
    let kinds = kinds_with_room(daemon, &in_force, free);
    if kinds.is_empty() {
        return Ok(None);
    }
    let memory = daemon.running.memory_room(in_force.config.sandbox.memory_total_max_bytes);
    let request = ClaimRequest { now_ms: daemon.now_ms(), max: free, memory, kinds, waits_its_turn };
    daemon.store.claim(request).await.map(Some)
}

fn kinds_with_room(daemon: &Daemon, in_force: &InForce, free: usize) -> Vec<KindClaim> {
    let running = daemon.running.count_by_kind();
    let serves_replays = |policy: &KindPolicy| in_force.serves_replays.contains(&policy.handler);
    let kinds = in_force.config.kinds.values().filter(|policy| {
        (in_force.servable.contains(&policy.handler) || serves_replays(policy))
            && !in_force.paused.contains(policy.kind.as_str())
    });
    let with_room = kinds.filter_map(|policy| {
        let used = running.get(&policy.kind).copied().unwrap_or(0);
        let room = policy.concurrency.map_or(free, |limit| (limit as usize).saturating_sub(used)).min(free);
        (room > 0).then(|| kind_claim(&in_force.config, policy, room, serves_replays(policy)))
    });
    with_room.collect()
}

fn kind_claim(config: &Config, policy: &KindPolicy, max: usize, bound_only: bool) -> KindClaim {
    KindClaim {
        kind: policy.kind.clone(),
        handler: policy.handler.clone(),
        max,
        memory_bytes: memory_bytes(config, policy),
        attempts_max: policy.attempts_max,
        visibility_timeout_ms: policy.visibility_timeout_ms,
        lease_max_ms: policy.deadline_ms + SETTLE_GRACE_MS,
        lane_concurrency: policy.lane_concurrency,
        cooldown: policy.cooldown,
        bound_only,
    }
}

/// What an attempt of the kind may use at the most, in bytes.
fn memory_bytes(config: &Config, policy: &KindPolicy) -> u64 {
    config.handlers.get(&policy.handler).map_or(0, |handler| handler.limits.memory_max_bytes as u64)
}

fn start(daemon: &Arc<Daemon>, claim: Claim) {
    let in_force = daemon.in_force();
    for claimed in claim.jobs {
        daemon.next_reap.may_run_out_at(claimed.lease_expires_at_ms);
        // A reload waits for this, so the kinds are those of the claim.
        let Some(policy) = in_force.config.kinds.get(&claimed.kind) else { continue };
        let memory_bytes = memory_bytes(&in_force.config, policy);
        daemon.running.add(claimed.token, policy, memory_bytes, claimed.lease_expires_at_ms);
        tokio::spawn(attempt::run(Arc::clone(daemon), Arc::clone(&in_force), claimed));
    }
    if claim.used_up > 0 {
        daemon.next_reap.ring();
    }
}

/// Waits until a job may be claimable: somebody rings, an attempt ends, or the next job is due. Without room nothing is
/// claimed, however much is due.
async fn rest(daemon: &Daemon, has_room: bool) {
    let now_ms = daemon.now_ms();
    let due_ms = if has_room { daemon.store.next_visible_ms().await } else { Ok(None) };
    let until = match due_ms {
        Ok(due_ms) => daemon.clock.instant_at(due_ms.unwrap_or(i64::MAX).clamp(now_ms, now_ms + SLEEP_MAX_MS)),
        // A job that is due may be what the queue could not tell of.
        Err(_) => Instant::now() + REST_AFTER_FAILURE,
    };
    tokio::select! {
        () = daemon.claimable.notified() => {}
        () = daemon.running.ended.notified() => {}
        () = tokio::time::sleep_until(until.into()) => {}
    }
}
