//! apalis-sqlite: `peer-apalis DIRECTORY JOBS default|full`, one line of JSON on stdout.

use std::{
    error::Error,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use apalis::prelude::*;
use apalis_sqlite::{Config, SqliteConnectOptions, SqlitePool, SqlitePoolOptions, SqliteStorage};
use serde_json::{Value, json};
use sqlx::sqlite::SqliteSynchronous;

const BATCH: usize = 1000;
/// How many jobs its worker takes at once: ten unless told otherwise.
const TAKEN: usize = 500;
const CONNECTIONS: u32 = 4;
/// How long a writer waits for the lock, which the worker holds nearly all the time: five seconds unless told otherwise.
const PATIENCE: Duration = Duration::from_secs(600);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [directory, jobs, durability] = &arguments[..] else {
        return Err("DIRECTORY JOBS default|full".into());
    };
    let jobs: usize = jobs.parse()?;

    let apart = open(directory, "apart.db", durability).await?;
    let begun = Instant::now();
    enqueue(&apart, jobs).await?;
    let enqueueing = begun.elapsed();
    let begun = Instant::now();
    work(&apart, jobs).await?;
    let processing = begun.elapsed();
    let (journal_mode, synchronous) = settings(&apart).await?;
    apart.close().await;

    let together = open(directory, "together.db", durability).await?;
    let begun = Instant::now();
    tokio::try_join!(enqueue(&together, jobs), work(&together, jobs))?;
    let both = begun.elapsed();
    together.close().await;

    let rate = |took: Duration| (jobs as f64 / took.as_secs_f64()).round() as u64;
    println!(
        "{}",
        json!({
            "peer": "apalis-sqlite",
            "version": "1.0.0",
            "durability": durability,
            "journal_mode": journal_mode,
            "synchronous": synchronous,
            "leases": true,
            "sandbox": false,
            "enqueue_per_second": rate(enqueueing),
            "process_per_second": rate(processing),
            "end_to_end_per_second": rate(both),
        })
    );
    Ok(())
}

/// A pool on a new file. What the set-up sets for a connection stays with the connection that it got from the pool; it
/// gets a pool of its own where each connection of the queue is to be as asked for.
async fn open(directory: &str, name: &str, durability: &str) -> Result<SqlitePool, Box<dyn Error>> {
    let mut options = SqliteConnectOptions::new()
        .filename(Path::new(directory).join(name))
        .create_if_missing(true)
        .busy_timeout(PATIENCE);
    if durability == "full" {
        options = options.synchronous(SqliteSynchronous::Full);
    }
    let pool = || SqlitePoolOptions::new().max_connections(CONNECTIONS).connect_with(options.clone());
    let set_up = pool().await?;
    SqliteStorage::setup(&set_up).await?;
    if durability == "default" {
        return Ok(set_up);
    }
    set_up.close().await;
    Ok(pool().await?)
}

/// What the pool's connections have set, each of them.
async fn settings(pool: &SqlitePool) -> Result<(String, String), sqlx::Error> {
    let mut connections = Vec::new();
    let (mut journal_mode, mut synchronous) = (String::new(), Vec::new());
    for _ in 0..pool.size() {
        let mut connection = pool.acquire().await?;
        journal_mode = sqlx::query_scalar("PRAGMA journal_mode").fetch_one(&mut *connection).await?;
        let level: i64 = sqlx::query_scalar("PRAGMA synchronous").fetch_one(&mut *connection).await?;
        synchronous.push(["off", "normal", "full", "extra"][usize::try_from(level).unwrap_or(0)]);
        connections.push(connection);
    }
    synchronous.sort_unstable();
    synchronous.dedup();
    Ok((journal_mode, synchronous.join(" and ")))
}

fn storage(pool: &SqlitePool) -> SqliteStorage<Value> {
    SqliteStorage::new(pool).with_config(Config::default().queue("bench").batch_size(TAKEN))
}

async fn enqueue(pool: &SqlitePool, jobs: usize) -> Result<(), Box<dyn Error>> {
    let mut storage = storage(pool);
    let mut payload = json!({"to": "someone@example.com", "subject": "Your order", "text": ""});
    let length = payload.to_string().len();
    payload["text"] = "x".repeat(200 - length).into();
    for first in (0..jobs).step_by(BATCH) {
        storage.push_bulk(vec![payload.clone(); BATCH.min(jobs - first)]).await?;
    }
    Ok(())
}

/// Runs jobs until all are written as done. Their payloads are parsed on the way to the handler.
async fn work(pool: &SqlitePool, jobs: usize) -> Result<(), Box<dyn Error>> {
    let handled = Arc::new(AtomicUsize::new(0));
    let counter = handled.clone();
    let worker =
        WorkerBuilder::new("bench").backend(storage(pool)).parallelize(tokio::spawn).build(move |_payload: Value| {
            counter.fetch_add(1, Ordering::Relaxed);
            async { Ok::<(), BoxDynError>(()) }
        });
    // Neither the worker nor its tables tell that all is done; they have to be asked.
    let finished = async {
        while handled.load(Ordering::Relaxed) < jobs {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let left = "SELECT count(*) FROM Jobs WHERE status <> 'Done'";
        while sqlx::query_scalar::<_, i64>(left).fetch_one(pool).await? > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Ok(())
    };
    tokio::select! {
        stopped = worker.run() => Err(format!("the worker stopped: {stopped:?}").into()),
        finished = finished => finished,
    }
}
