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

const PLUGINS: [&str; 3] = ["email-send", "email-bounce", "webhook-deliver"];
const CONFIG: &str = "
[handlers.email-send]
outbound = [\"POST https://email-api.example.com\"]
settings = { endpoint = \"https://email-api.example.com/v1/messages\", from = \"noreply@example.com\" }
stores = { suppressions = \"read\", messages = \"read-write\" }
[handlers.webhook-deliver]
outbound = [\"POST https://*\"]
enqueue = []
secrets = { signing_secret = { file = \"none\", optional = true } }
[handlers.email-bounce]
stores = { suppressions = \"read-write\", messages = \"read\" }
enqueue = [\"email.bounce\"]
annotate = [\"email.send\"]
[kinds.\"email.send\"]
handler = \"email-send\"
owner = \"bench\"
[kinds.\"email.bounce\"]
handler = \"email-bounce\"
owner = \"bench\"
[kinds.\"webhook.deliver\"]
handler = \"webhook-deliver\"
owner = \"bench\"
";

fn idle() -> anyhow::Result<()> {
    let daemon = Daemon::start_with(CONFIG)?;
    for name in PLUGINS {
        let file = format!("../plugins/components/{name}@1.0.0.wasm");
        daemon.push(&Path::new(env!("CARGO_MANIFEST_DIR")).join(file))?;
    }
    println!("idle, 64 slots, {} plugins live: {:.0} MB resident", PLUGINS.len(), megabytes(&daemon)?);
    Ok(())
}

fn megabytes(daemon: &Daemon) -> anyhow::Result<f64> {
    Ok(process::resident_bytes(daemon.id())? as f64 / 1e6)
}
