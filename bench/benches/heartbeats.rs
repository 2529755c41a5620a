//! Heartbeats of 512 running jobs while enqueues flood in: how late the beats are, and whether a lease was lost.

#![allow(clippy::cast_precision_loss, reason = "counts far below 2^52")]

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use leasehold_bench::{
    daemon::{Daemon, MISBEHAVE, component},
    jobs::{LINES, batch, number},
    payload,
};

const RUNNING: usize = 512;
const VISIBILITY_SECONDS: f64 = 10.0;
const CONFIG: &str = "
[queue]
queue_depth_max = 100000000
[sandbox]
slots = 512
memory_total_max = \"4GiB\"
[kinds.sleeps]
handler = \"misbehave\"
owner = \"bench\"
deadline = \"10m\"
visibility_timeout = \"10s\"
heartbeat = \"2s\"
[kinds.waits]
handler = \"misbehave\"
owner = \"bench\"
";

fn main() -> anyhow::Result<()> {
    let span = Duration::from_secs(number("BENCH_SECONDS", 30) as u64);
    let daemon = Daemon::start_with(&format!("{CONFIG}{MISBEHAVE}limits = {{ memory_max = \"4MiB\" }}"))?;
    daemon.push(&component("misbehave@1.0.0"))?;
    let mut client = daemon.client()?;
    let ms = span.as_millis() + 60_000;
    client
        .enqueue(batch("sleeps", &format!(r#"{{"do":"sleep","ms":{ms}}}"#), RUNNING, |_| String::new()).as_bytes())?;
    while client.metric("leasehold_attempts_running", "")? < 512.0 {
        std::thread::yield_now();
    }
    let over = AtomicBool::new(false);
    let sent = std::thread::scope(|scope| -> anyhow::Result<usize> {
        let clients: Vec<_> = (0..2).map(|_| scope.spawn(|| flood(&daemon, &over))).collect();
        // The span that is measured.
        std::thread::sleep(span);
        over.store(true, Ordering::SeqCst);
        let sent = clients.into_iter().map(|client| client.join().map_err(|_| anyhow::anyhow!("a client panicked"))?);
        sent.sum()
    })?;
    let delays = "leasehold_heartbeat_delay_seconds";
    let beats = client.metric(&format!("{delays}_count"), "")?;
    let bounds = ["0.001", "0.0025", "0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1", "2.5"];
    let mut p99 = "more than 2.5";
    for bound in bounds {
        if client.metric(&format!("{delays}_bucket"), &format!("le=\"{bound}\""))? >= beats * 0.99 {
            p99 = bound;
            break;
        }
    }
    println!(
        "heartbeats of {RUNNING} jobs, visibility timeout {VISIBILITY_SECONDS} s, while {:.0} jobs/s came in: {beats} rounds of beats, \
         p99 of their delay at most {p99} s; {} leases ran out",
        sent as f64 / span.as_secs_f64(),
        client.metric("leasehold_lease_expiries_total", "")?.abs()
    );
    Ok(())
}

/// Sends jobs that wait for tomorrow.
fn flood(daemon: &Daemon, over: &AtomicBool) -> anyhow::Result<usize> {
    let mut client = daemon.client()?;
    let lines = batch("waits", &payload(), LINES, |_| r#","delay_ms":86400000"#.into());
    let mut sent = 0;
    while !over.load(Ordering::SeqCst) {
        client.enqueue(lines.as_bytes())?;
        sent += LINES;
    }
    Ok(sent)
}
