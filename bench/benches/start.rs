//! How long a daemon takes until it is ready: with an empty database, and with 50 handlers whose compiled files are there.

use std::{fmt::Write as _, time::Instant};

use leasehold_bench::{
    daemon::{self, Daemon, component},
    jobs::number,
    large,
    spread::Spread,
};

fn main() -> anyhow::Result<()> {
    let (rounds, handlers) = (number("BENCH_ROUNDS", 15), number("BENCH_HANDLERS", 50));
    let empty = starts(&mut Daemon::start_with("")?, rounds)?;
    let config = (0..handlers).fold(String::new(), |mut config, handler| {
        let _ =
            write!(config, "[handlers.h{handler}]\n[kinds.k{handler}]\nhandler = \"h{handler}\"\nowner = \"bench\"\n");
        config
    });
    let mut daemon = Daemon::start_with(&config)?;
    let bytes = std::fs::read(component("bench-parse@1.0.0"))?;
    let directory = daemon::directory()?;
    for handler in 0..handlers {
        let file = directory.path().join(format!("h{handler}@1.0.0.wasm"));
        std::fs::write(&file, large::rename(&bytes, &format!("handler {handler}")))?;
        daemon.push(&file)?;
    }
    let full = starts(&mut daemon, rounds)?;
    println!(
        "ready after: {} ms empty; {} ms with {handlers} handlers: {:.2} times",
        empty.shown(0),
        full.shown(0),
        full.median() / empty.median()
    );
    Ok(())
}

/// In milliseconds.
fn starts(daemon: &mut Daemon, rounds: usize) -> anyhow::Result<Spread> {
    let mut times = Vec::new();
    for _ in 0..rounds {
        daemon.stop()?;
        let begun = Instant::now();
        daemon.restart()?;
        times.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    Ok(Spread::of(times))
}
