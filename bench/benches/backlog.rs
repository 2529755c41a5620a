//! End to end with random client keys: on an empty database, and with a backlog, that many jobs ready, as many scheduled
//! and as many ended. As many jobs are sent as run meanwhile, so that the backlog stays.

#![allow(clippy::cast_possible_wrap, clippy::cast_precision_loss, reason = "counts far below 2^52")]

use std::time::Instant;

use leasehold_bench::{
    daemon::Daemon,
    jobs::{number, random_key, send},
    payload,
    spread::Spread,
};

fn main() -> anyhow::Result<()> {
    let (jobs, rounds, backlog) =
        (number("BENCH_JOBS", 60_000), number("BENCH_ROUNDS", 3), number("BENCH_BACKLOG", 1_000_000));
    let daemon = Daemon::start("", "")?;
    let rounds_of = |name: &str, mut first: Option<i64>| -> anyhow::Result<Spread> {
        let mut rates = Vec::new();
        for round in 0..rounds {
            rates.push(run(&daemon, &format!("{name} {round}"), jobs, first)?);
            first = first.map(|first| first + jobs as i64);
        }
        Ok(Spread::of(rates))
    };
    let empty = rounds_of("empty", None)?;
    let first = fill(&daemon, backlog)?;
    let full = rounds_of("full", Some(first))?;
    println!(
        "end to end with random keys: {} jobs/s on an empty database; {} jobs/s with {backlog} ready, as many scheduled and as \
         many ended: {:.2} of it; the log {:.0} MB",
        empty.shown(0),
        full.shown(0),
        full.median() / empty.median(),
        daemon.file_bytes()?.1 as f64 / 1e6
    );
    Ok(())
}

/// Sends jobs while as many run: those that are sent, or those that stand in line from an id on. Gives how many went
/// through a second.
fn run(daemon: &Daemon, round: &str, jobs: usize, first: Option<i64>) -> anyhow::Result<f64> {
    let mut client = daemon.client()?;
    let begun = Instant::now();
    let last = send(&mut client, "bench", &payload(), jobs, |job| key(round, job))?;
    let last = first.map_or(last, |first| first + jobs as i64 - 1);
    // Jobs run in their order but for those that run at once.
    for id in last - 63..=last {
        client.wait(id)?;
    }
    Ok(jobs as f64 / begun.elapsed().as_secs_f64())
}

fn key(round: &str, job: usize) -> String {
    format!(r#","key":"{}""#, random_key(round, job))
}

/// The ended ones first, since they have to run; then those that are due tomorrow, then those that are ready. Answers the
/// first of these.
fn fill(daemon: &Daemon, backlog: usize) -> anyhow::Result<i64> {
    let mut client = daemon.client()?;
    let last = send(&mut client, "bench", &payload(), backlog, |job| key("ended", job))?;
    for id in last - 63..=last {
        client.wait(id)?;
    }
    let later = |job| format!(r#","delay_ms":86400000{}"#, key("scheduled", job));
    send(&mut client, "bench", &payload(), backlog, later)?;
    client.ask("POST", "/v1/kinds/bench/pause", b"")?;
    let last = send(&mut client, "bench", &payload(), backlog, |job| key("ready", job))?;
    client.ask("POST", "/v1/kinds/bench/resume", b"")?;
    Ok(last - backlog as i64 + 1)
}
