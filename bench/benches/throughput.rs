//! End to end: enqueued through the API in batches, leased, run in a fresh instance, settled; against the two limits.

use std::time::{Duration, Instant};

use leasehold_bench::{
    daemon::{self, Daemon},
    jobs::{LINES, batch, number},
    limits, payload, process,
    spread::Spread,
};

const CLIENTS: usize = 2;

fn main() -> anyhow::Result<()> {
    // Whole batches, as many from each client.
    let jobs = number("BENCH_JOBS", 100_000).next_multiple_of(LINES * CLIENTS);
    let rounds = number("BENCH_ROUNDS", 3);
    for durability in ["full", "normal"] {
        let daemon = Daemon::start(&format!("durability = \"{durability}\""), "")?;
        let (mut rates, mut ratios, mut costs) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..rounds {
            let directory = daemon::directory()?;
            let sql = limits::bare_sql(directory.path(), durability, 50_000)?;
            let call = limits::bare_call(50_000)?;
            let cpu = process::cpu_time(daemon.id())?;
            let took = run(&daemon, jobs)?;
            let rate = count(jobs) / took.as_secs_f64();
            // Both cores doing nothing but that work.
            let bound = 2.0 / (sql + call).as_secs_f64();
            println!("  {durability}: a job's statements {sql:?}, its call {call:?}, bound {bound:.0}/s; {rate:.0}/s");
            rates.push(rate);
            ratios.push(rate / bound);
            costs.push(process::cpu_time(daemon.id())?.saturating_sub(cpu).as_secs_f64() * 1e6 / count(jobs));
        }
        let (rates, ratios, costs) = (Spread::of(rates), Spread::of(ratios), Spread::of(costs));
        println!(
            "{durability:>7}: {} jobs/s; {} of what the limits allow; {:.0} us of CPU a job",
            rates.shown(0),
            ratios.shown(2),
            costs.median()
        );
    }
    Ok(())
}

#[allow(clippy::cast_precision_loss, reason = "a count far below 2^52")]
fn count(jobs: usize) -> f64 {
    jobs as f64
}

/// Sends jobs in over several connections and waits for the end of the last ones.
fn run(daemon: &Daemon, jobs: usize) -> anyhow::Result<Duration> {
    let lines = batch("bench", &payload(), LINES, |_| String::new());
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let clients: Vec<_> =
            (0..CLIENTS).map(|_| scope.spawn(|| send(daemon, &lines, jobs / CLIENTS / LINES))).collect();
        clients.into_iter().try_for_each(|client| client.join().map_err(|_| anyhow::anyhow!("a client panicked"))?)
    })?;
    Ok(begun.elapsed())
}

fn send(daemon: &Daemon, lines: &str, batches: usize) -> anyhow::Result<()> {
    let mut client = daemon.client()?;
    let mut last = 0;
    for _ in 0..batches {
        last = client.enqueue(lines.as_bytes())?;
    }
    // Jobs run in their order but for those that run at once.
    (last - 63..=last).try_for_each(|id| client.wait(id))
}
