//! The database's file while a million jobs of 4 KB go through and are idle thereafter: the log stays bounded, the file
//! shrinks, and no job waits long for that.

#![allow(clippy::cast_precision_loss, reason = "counts far below 2^52")]

use std::time::{Duration, Instant};

use leasehold_bench::{
    client::Client,
    daemon::Daemon,
    jobs::{batch, number, send},
    payload,
};

fn main() -> anyhow::Result<()> {
    let (jobs, patience) = (number("BENCH_JOBS", 1_000_000), number("BENCH_SECONDS", 180));
    let daemon = Daemon::start("", "")?;
    let mut client = daemon.client()?;
    // As many as there will be at least while the file shrinks.
    let slowest_before =
        (0..patience * 10).try_fold(0.0f64, |slowest, _| probe(&mut client).map(|ms| slowest.max(ms)))?;
    client.ask("POST", "/v1/kinds/bench/pause", b"")?;
    let text = format!(r#"{{"to":"someone@example.com","text":"{}"}}"#, "x".repeat(4_096 - 45));
    let mut log_max = 0;
    let mut last = 0;
    for _ in 0..10 {
        last = send(&mut client, "bench", &text, jobs / 10, |_| String::new())?;
        log_max = log_max.max(daemon.file_bytes()?.1);
    }
    let (peak, _) = daemon.file_bytes()?;
    client.ask("POST", "/v1/kinds/bench/resume", b"")?;
    for id in (0..64).map(|number| last - i64::from(number)) {
        client.wait(id)?;
        log_max = log_max.max(daemon.file_bytes()?.1);
    }
    let (before, _) = daemon.file_bytes()?;
    let (begun, mut slowest) = (Instant::now(), 0.0f64);
    while begun.elapsed() < Duration::from_secs(patience as u64) {
        slowest = slowest.max(probe(&mut client)?);
        log_max = log_max.max(daemon.file_bytes()?.1);
        if daemon.file_bytes()?.0 * 2 < before {
            break;
        }
    }
    let mb = |bytes: u64| bytes as f64 / 1e6;
    println!(
        "{jobs} jobs of 4 KB: the file {:.0} MB at its peak, {:.0} MB when all had run, {:.0} MB after {:.0} s more; the log at \
         most {:.0} MB; the slowest job meanwhile took {slowest:.0} ms from request to end, {slowest_before:.0} ms before all of it",
        mb(peak),
        mb(before),
        mb(daemon.file_bytes()?.0),
        begun.elapsed().as_secs_f64(),
        mb(log_max)
    );
    Ok(())
}

/// How long one job takes from request to end on a daemon that is next to idle, in milliseconds.
fn probe(client: &mut Client) -> anyhow::Result<f64> {
    let sent = Instant::now();
    let id = client.enqueue(batch("bench", &payload(), 1, |_| String::new()).as_bytes())?;
    client.wait(id)?;
    let took = sent.elapsed();
    // The daemon is to be next to idle.
    std::thread::sleep(Duration::from_millis(20));
    Ok(took.as_secs_f64() * 1e3)
}
