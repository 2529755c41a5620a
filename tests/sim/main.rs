//! The queue under random schedules: the real store on a real file, a scripted runner in place of guests, a virtual clock,
//! and a seed that determines everything. A model says what must be true; it is compared with the database after every
//! step. The disk under it fails and loses power, by the same seed. `LEASEHOLD_SIM_SEED` repeats one run,
//! `LEASEHOLD_SIM_SEEDS` runs that many more, from `LEASEHOLD_SIM_FIRST` on.

mod checkers;
mod disk;
mod faults;
mod model;
mod operator;
mod random;
mod restarts;
#[path = "../support/rules.rs"]
mod rules;
mod runner;
mod settling;
mod vfs;
mod world;
mod writer;

use std::{
    collections::BTreeMap,
    num::NonZero,
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::{SystemTime, UNIX_EPOCH},
};

use world::World;

/// How many steps a run has before it is drained.
const STEPS: u32 = 300;
const FIXED_SEEDS: u64 = 50;
const FRESH_SEEDS: u64 = 10;

/// What the fixed seeds have to meet; else the simulation proves nothing of it.
const MUST_HAPPEN: [&str; 46] = [
    "begin: applied",
    "begin: conflict",
    "begin: fresh",
    "begin: in doubt",
    "begin: in progress",
    "begin: lease lost",
    "cancelled at once",
    "cancelled when stopped",
    "claim: bound alone",
    "claim: cap lowered",
    "complete: applied twice",
    "complete: stale",
    "dead: crashed",
    "dead: exhausted",
    "dead: in_doubt",
    "dead: poison",
    "dead: rejected",
    "dead: replay_refused",
    "discarded",
    "effect: enqueued",
    "effect: stored",
    "ended: done",
    "ended: suppressed",
    "enqueue: duplicate",
    "enqueue: key conflict",
    "fault: answered",
    "fault: no start",
    "fault: survived",
    "forgotten",
    "gathered",
    "gathered: lost",
    "heartbeat: extended",
    "heartbeat: lost",
    "lane held",
    "power cut: after the commit",
    "power cut: at rest",
    "power cut: before the commit",
    "replay: no original",
    "replay: refused",
    "replay: resolved",
    "replayed",
    "restart: at once",
    "restart: clean",
    "restart: kill",
    "settle: late",
    "take back",
];

/// Says how a failed run is repeated.
struct Repeat(u64);

impl Drop for Repeat {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!(
                "\nrepeat it with: LEASEHOLD_SIM_SEED={} cargo test -p leasehold-store --test sim schedules\n",
                self.0
            );
        }
    }
}

/// Runs one seed to its end. Answers what happened, and how many times.
fn run(seed: u64) -> BTreeMap<&'static str, u64> {
    let _repeat = Repeat(seed);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let mut world = World::new(seed).await;
        for _ in 0..STEPS {
            world.step().await;
        }
        world.drain().await;
        world.happened
    })
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{variable} is no number")))
}

#[test]
fn o6_the_queue_holds_its_invariants_under_random_schedules() {
    if let Some(seed) = number("LEASEHOLD_SIM_SEED") {
        println!("seed {seed}: {:?}", run(seed));
        return;
    }
    let mut happened = BTreeMap::new();
    for seed in 1..=FIXED_SEEDS {
        for (what, times) in run(seed) {
            *happened.entry(what).or_insert(0) += times;
        }
    }
    println!("{happened:#?}");
    let never: Vec<_> = MUST_HAPPEN.into_iter().filter(|what| !happened.contains_key(what)).collect();
    assert!(never.is_empty(), "the fixed seeds never met {never:?}");
}

#[test]
fn o6_the_queue_holds_its_invariants_under_fresh_schedules() {
    if number("LEASEHOLD_SIM_SEED").is_some() {
        return;
    }
    let seeds = number("LEASEHOLD_SIM_SEEDS").unwrap_or(FRESH_SEEDS);
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
    let first = number("LEASEHOLD_SIM_FIRST").unwrap_or_else(|| u64::try_from(now_ms).unwrap());
    println!("seeds {first} to {}", first + seeds - 1);
    let next = AtomicU64::new(first);
    let take = || Some(next.fetch_add(1, Ordering::Relaxed)).filter(|seed| *seed < first + seeds);
    // Each has its own directory and disk, so that they run side by side.
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, NonZero::get) {
            scope.spawn(|| {
                while let Some(seed) = take() {
                    run(seed);
                }
            });
        }
    });
}
