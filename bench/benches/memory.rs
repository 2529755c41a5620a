//! The memory of a daemon: idle with 64 slots and the plugins loaded, and over a million jobs.

#![allow(clippy::cast_precision_loss, reason = "counts far below 2^52")]

use std::path::Path;

use leasehold_bench::{
    daemon::Daemon,
    jobs::{number, send},
    payload, process,
};

const PARTS: usize = 10;

fn main() -> anyhow::Result<()> {
    idle()?;
    let jobs = number("BENCH_JOBS", 1_000_000) / PARTS;
    let daemon = Daemon::start("", "")?;
    let mut client = daemon.client()?;
    let mut sizes = Vec::new();
    for _ in 0..PARTS {
        let last = send(&mut client, "bench", &payload(), jobs, |_| String::new())?;
        for id in last - 63..=last {
            client.wait(id)?;
        }
        sizes.push(megabytes(&daemon)?);
    }
    let shown: Vec<_> = sizes.iter().map(|size| format!("{size:.0}")).collect();
    println!(
        "resident after each {jobs} jobs, in MB: {}; the last is {:+.1} % of the second",
        shown.join(" "),
        (sizes[PARTS - 1] / sizes[1] - 1.0) * 100.0
    );
    Ok(())
}

fn idle() -> anyhow::Result<()> {
    let plugins = ["email-send", "email-bounce", "webhook-deliver"];
    let config: String = plugins
        .iter()
        .map(|name| format!("[handlers.{name}]\n[kinds.{name}]\nhandler = \"{name}\"\nowner = \"bench\"\n"))
        .collect::<Vec<_>>()
        .concat();
    let daemon = Daemon::start_with(&config)?;
    for name in plugins {
        let file = format!("../plugins/components/{name}@1.0.0.wasm");
        daemon.push(&Path::new(env!("CARGO_MANIFEST_DIR")).join(file))?;
    }
    println!("idle, 64 slots, {} plugins live: {:.0} MB resident", plugins.len(), megabytes(&daemon)?);
    Ok(())
}

fn megabytes(daemon: &Daemon) -> anyhow::Result<f64> {
    Ok(process::resident_bytes(daemon.id())? as f64 / 1e6)
}
