//! A handler of 15 MB is pushed and goes live while 20 jobs a second run: what that does to them, from the request that
//! enqueues one to the answer that it has ended.

#![allow(clippy::cast_precision_loss, reason = "counts far below 2^52")]

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use leasehold_bench::{
    daemon::{self, Daemon, component},
    jobs::{batch, number},
    large, payload,
    spread::Spread,
};

const APART: Duration = Duration::from_millis(50);
const QUIET: Duration = Duration::from_secs(15);

fn main() -> anyhow::Result<()> {
    let (rounds, bytes) = (number("BENCH_ROUNDS", 3), number("BENCH_BYTES", 15_000_000));
    let daemon = Daemon::start("", "[handlers.large]\n[kinds.large]\nhandler = \"large\"\nowner = \"bench\"")?;
    let small = std::fs::read(component("bench-parse@1.0.0"))?;
    let directory = daemon::directory()?;
    // The span that is measured: about as long as a push takes.
    let quiet = run_beside(&daemon, || {
        std::thread::sleep(QUIET);
        Ok(())
    })?;
    for round in 0..rounds {
        let large = large::rename(&large::enlarge(&small, bytes)?, &format!("round {round}"));
        let file = directory.path().join(format!("large@1.0.{round}.wasm"));
        std::fs::write(&file, &large)?;
        let begun = Instant::now();
        let busy = run_beside(&daemon, || daemon.push(&file))?;
        let took = begun.elapsed();
        let mut client = daemon.client()?;
        let id = client.enqueue(batch("large", &payload(), 1, |_| String::new()).as_bytes())?;
        client.wait(id)?;
        println!(
            "{:.1} MB pushed and live in {took:.1?}, jobs meanwhile: {}; without it {}: p99 {:.2} times as long",
            large.len() as f64 / 1e6,
            busy.shown_ms(),
            quiet.shown_ms(),
            busy.percentile(0.99) / quiet.percentile(0.99)
        );
    }
    Ok(())
}

/// Twenty jobs a second for as long as something takes: their times, in milliseconds.
fn run_beside(daemon: &Daemon, something: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<Spread> {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let jobs = scope.spawn(|| run_jobs(daemon, &over));
        let done = something();
        over.store(true, Ordering::SeqCst);
        let times = jobs.join().map_err(|_| anyhow::anyhow!("the client panicked"))??;
        done.map(|()| Spread::of(times))
    })
}

fn run_jobs(daemon: &Daemon, over: &AtomicBool) -> anyhow::Result<Vec<f64>> {
    let mut client = daemon.client()?;
    let line = batch("bench", &payload(), 1, |_| String::new());
    let mut times = Vec::new();
    while !over.load(Ordering::SeqCst) {
        let begun = Instant::now();
        let id = client.enqueue(line.as_bytes())?;
        client.wait(id)?;
        times.push(begun.elapsed().as_secs_f64() * 1e3);
        // The rate is part of what is measured.
        std::thread::sleep(APART.saturating_sub(begun.elapsed()));
    }
    Ok(times)
}
