//! Gives the members of bulk replays their turns, in bounded batches, at the rate that was asked for. What is due next is
//! the domain's decision, whether a member may go the queue's; all that is kept here is how far each has come since it
//! began to go. A start after a crash goes on with the members that have not had their turn.

use std::{
    collections::HashMap,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures_util::future::join_all;
use leasehold_domain::{
    BulkReplayId, TimestampMs,
    bulk_replay::{Next, Pace, Standing, next},
    policy::InDoubtPolicy,
};
use leasehold_store::{BulkRun, StoreError, Turn, TurnTaken};

use crate::{daemon::Daemon, metrics, trouble::Trouble};

/// How many members go at once, so that several share a commit and nobody else waits long.
const BATCH: usize = 25;
/// How long a bulk replay rests after the queue failed.
const REST: Duration = Duration::from_secs(1);
/// The longest sleep; only a safeguard, since whatever makes a member due rings.
const SLEEP_MAX_MS: i64 = 60_000;

/// What came of looking at one bulk replay.
enum Looked {
    /// Something was done, and there may be more.
    Went,
    /// Nothing is due before that time.
    DueAt(TimestampMs),
    /// Its probe has to end first.
    AwaitsProbe,
}

/// Until when all of them rest.
#[derive(Debug, Clone, Copy, Default)]
struct Rest {
    until_ms: Option<TimestampMs>,
    awaits_probe: bool,
    has_more: bool,
}

/// How far each has come since it began to go.
#[derive(Debug, Default)]
struct Paces(HashMap<BulkReplayId, Begun>);

#[derive(Debug, Clone, Copy)]
struct Begun {
    going_since_ms: TimestampMs,
    pace: Pace,
}

impl Paces {
    /// The pace of one; a new one for one that was resumed, or that this process has not seen.
    fn of(&mut self, run: &BulkRun, now_ms: TimestampMs) -> &mut Pace {
        let going_since_ms = run.going_since_ms;
        let fresh = Begun { going_since_ms, pace: Pace::from(now_ms) };
        let begun = self.0.entry(run.id).or_insert(fresh);
        if begun.going_since_ms != going_since_ms {
            *begun = fresh;
        }
        &mut begun.pace
    }
}

/// What lasts of each bulk replay's faults.
type Troubles = HashMap<BulkReplayId, Trouble>;

/// Gives turns until the daemon's end.
pub(crate) async fn run(daemon: Arc<Daemon>) {
    let mut paces = Paces::default();
    let mut ends = daemon.replay_ends();
    let (mut trouble, mut troubles) = (Trouble::default(), Troubles::new());
    while !daemon.stopping.load(Ordering::SeqCst) {
        // Listening begins before anything is looked at, so that no end of a probe falls between.
        ends.mark_unchanged();
        let looked = look(&daemon, &mut paces, &mut troubles).await;
        trouble.note("looking for bulk replays", &looked);
        let rest = match looked {
            Ok(rest) => rest,
            Err(StoreError::Closed) => return,
            Err(_) => Rest { until_ms: Some(after_rest(&daemon)), ..Rest::default() },
        };
        if rest.has_more {
            continue;
        }
        let now_ms = daemon.now_ms();
        let until_ms = rest.until_ms.unwrap_or(i64::MAX).clamp(now_ms, now_ms + SLEEP_MAX_MS);
        tokio::select! {
            () = daemon.bulk_replay_due.notified() => {}
            () = tokio::time::sleep_until(daemon.clock.instant_at(until_ms).into()) => {}
            _ = ends.changed(), if rest.awaits_probe => {}
        }
    }
}

/// Looks at each that runs, once. One that fails rests and holds up no other.
async fn look(daemon: &Daemon, paces: &mut Paces, troubles: &mut Troubles) -> Result<Rest, StoreError> {
    let runs = daemon.store.running_bulk_replays(BATCH).await?;
    troubles.retain(|id, _| runs.iter().any(|run| run.id == *id));
    paces.0.retain(|id, _| runs.iter().any(|run| run.id == *id));
    let mut rest = Rest::default();
    for run in runs {
        let stepped = step(daemon, &run, paces.of(&run, daemon.now_ms())).await;
        troubles.entry(run.id).or_default().note(&format!("a turn of bulk replay {}", run.id), &stepped);
        let looked = match stepped {
            Err(StoreError::Closed) => return Err(StoreError::Closed),
            Err(_) => Looked::DueAt(after_rest(daemon)),
            Ok(looked) => looked,
        };
        match looked {
            Looked::Went => rest.has_more = true,
            Looked::AwaitsProbe => rest.awaits_probe = true,
            Looked::DueAt(at_ms) => rest.until_ms = Some(rest.until_ms.map_or(at_ms, |until_ms| until_ms.min(at_ms))),
        }
    }
    Ok(rest)
}

fn after_rest(daemon: &Daemon) -> TimestampMs {
    daemon.now_ms() + i64::try_from(REST.as_millis()).unwrap_or(i64::MAX)
}

/// Does what is due of one bulk replay.
async fn step(daemon: &Daemon, run: &BulkRun, pace: &mut Pace) -> Result<Looked, StoreError> {
    let now_ms = daemon.now_ms();
    if let Some(rate) = run.rate {
        *pace = pace.caught_up(rate, now_ms);
    }
    let standing = Standing { probe: run.probe, has_pending: !run.pending.is_empty(), rate: run.rate, pace: *pace };
    match next(&standing, now_ms) {
        Next::Go(count) => {
            let count = usize::try_from(count).unwrap_or(usize::MAX).min(run.pending.len());
            go(daemon, run, count, pace).await?;
        }
        Next::WaitUntil(at_ms) => return Ok(Looked::DueAt(at_ms)),
        Next::AwaitProbe => return Ok(Looked::AwaitsProbe),
        Next::PassProbe => {
            daemon.store.pass_probe(run.id).await?;
            tracing::info!(bulk_replay = %run.id, "the probe of a bulk replay ended well; the rest goes");
        }
        Next::FailProbe => {
            let reason = daemon.store.fail_probe(run.id, now_ms).await?;
            tracing::warn!(bulk_replay = %run.id, %reason, "a bulk replay has stopped by itself");
        }
        Next::Finish => {
            daemon.store.finish_bulk_replay(run.id, now_ms).await?;
            tracing::info!(bulk_replay = %run.id, "every member of a bulk replay has had its turn");
        }
    }
    daemon.bulk_replay_changed();
    Ok(Looked::Went)
}

/// Gives the next members their turns. Each is a transaction of its own; together they share a commit.
async fn go(daemon: &Daemon, run: &BulkRun, count: usize, pace: &mut Pace) -> Result<(), StoreError> {
    // What comes back into the queue takes room, as an enqueue does; it waits until there is some.
    daemon.check_disk()?;
    let in_force = daemon.in_force();
    let Some(policy) = in_force.config.kinds.get(&run.kind) else {
        let reason = format!("kind {} is not configured any more; configure it, and resume", run.kind);
        tracing::warn!(bulk_replay = %run.id, %reason, "a bulk replay has stopped by itself");
        return daemon.store.halt_bulk_replay(run.id, &reason, daemon.now_ms()).await;
    };
    let damaged = daemon.damaged(&in_force, policy).await?;
    let turn_of = |dead_letter| Turn {
        bulk_replay: run.id,
        dead_letter,
        handler: policy.handler.clone(),
        damaged: damaged.clone(),
        begin_again: policy.in_doubt == InDoubtPolicy::BeginAgain,
        now_ms: daemon.now_ms(),
        priority_step_ms: in_force.config.queue.priority_step_ms,
    };
    let turns = run.pending.iter().take(count).map(|letter| daemon.store.take_turn(turn_of(*letter)));
    let taken = join_all(turns).await;
    daemon.claimable.notify_one();
    fail::fail_point!("bulk_replay.batch_done");
    let mut failed = Ok(());
    for (dead_letter, taken) in run.pending.iter().zip(taken) {
        match taken {
            Ok(TurnTaken::Replayed(_)) => {
                pace.gone += 1;
                metrics::bulk_replay_turn(run.kind.as_str(), "replayed");
            }
            Ok(TurnTaken::Refused { code }) => {
                metrics::bulk_replay_turn(run.kind.as_str(), "refused");
                tracing::warn!(bulk_replay = %run.id, %dead_letter, code, "a dead letter was refused at its turn");
            }
            Ok(TurnTaken::Stopped { reason }) => {
                tracing::warn!(bulk_replay = %run.id, %reason, "a bulk replay has stopped by itself");
            }
            Ok(TurnTaken::Over) => {}
            Err(error) => failed = Err(error),
        }
    }
    failed
}
