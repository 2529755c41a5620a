//! From the request that enqueues a job to the first instruction of its guest, on an idle daemon; and short jobs while
//! endless loops run on every slot but one. Both against the time of one commit on the same disk.

#![allow(clippy::cast_precision_loss, reason = "counts far below 2^52")]

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use leasehold_bench::{
    client::Client,
    daemon::{Daemon, MISBEHAVE, component},
    jobs::{batch, number},
    limits::commits,
    payload,
    spread::Spread,
};

const CONFIG: &str = "
[sandbox]
slots = 64
[handlers.bench-parse]
[kinds.now]
handler = \"misbehave\"
owner = \"bench\"
[kinds.loops]
handler = \"misbehave\"
owner = \"bench\"
deadline = \"10m\"
[kinds.short]
handler = \"bench-parse\"
owner = \"bench\"
";
/// How often a running guest is looked at.
const TICK: Duration = Duration::from_millis(1);

fn main() -> anyhow::Result<()> {
    let rounds = number("BENCH_ROUNDS", 500);
    let daemon = Daemon::start_with(&format!("{CONFIG}{MISBEHAVE}limits = {{ memory_max = \"16MiB\" }}"))?;
    daemon.push(&component("misbehave@1.0.0"))?;
    daemon.push(&component("bench-parse@1.0.0"))?;
    let mut client = daemon.client()?;
    let commit = commits(&daemon.data().join("commits.db"), rounds)?;
    println!("one commit: {}", commit.shown_ms());
    let first = to_first_instruction(&mut client, rounds)?;
    println!(
        "to the guest's first instruction: {}; {:.1} and {:.1} commits",
        first.shown_ms(),
        first.median() / commit.median(),
        first.percentile(0.99) / commit.median()
    );
    let alone = short_jobs(&mut client, rounds)?;
    for _ in 0..63 {
        client.enqueue(batch("loops", r#"{"do":"loop"}"#, 1, |_| String::new()).as_bytes())?;
    }
    while client.metric("leasehold_attempts_running", "")? < 63.0 {
        std::thread::yield_now();
    }
    let beside = short_jobs(&mut client, rounds)?;
    println!(
        "a short job, sent to ended: {} alone; {} beside 63 endless loops on 64 slots, {:.0} ticks",
        alone.shown_ms(),
        beside.shown_ms(),
        beside.percentile(0.99) / (TICK.as_secs_f64() * 1e3)
    );
    Ok(())
}

/// In milliseconds. The guest tells the time of the same clock.
fn to_first_instruction(client: &mut Client, rounds: usize) -> anyhow::Result<Spread> {
    let mut times = Vec::new();
    for _ in 0..rounds {
        let begun = SystemTime::now().duration_since(UNIX_EPOCH)?;
        let id = client.enqueue(batch("now", r#"{"do":"now"}"#, 1, |_| String::new()).as_bytes())?;
        let result = client.result(id)?;
        let (seconds, nanoseconds): (u64, u32) = serde_json::from_value(result)?;
        times.push(Duration::new(seconds, nanoseconds).saturating_sub(begun).as_secs_f64() * 1e3);
    }
    Ok(Spread::of(times))
}

/// From the request to the answer that the job has ended, in milliseconds.
fn short_jobs(client: &mut Client, rounds: usize) -> anyhow::Result<Spread> {
    let mut times = Vec::new();
    for _ in 0..rounds {
        let begun = Instant::now();
        let id = client.enqueue(batch("short", &payload(), 1, |_| String::new()).as_bytes())?;
        client.wait(id)?;
        times.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    Ok(Spread::of(times))
}
