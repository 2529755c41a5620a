//! effectum: `peer-effectum DIRECTORY JOBS default|wal`, one line of JSON on stdout.

use std::{
    error::Error,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use effectum::{Job, JobRunner, Queue, RunningJob, Worker};
use rusqlite::Connection;
use serde_json::{Value, json};

const BATCH: usize = 1000;
/// How many jobs its worker runs at once, and below how many it asks for more.
const CONCURRENCY: (u16, u16) = (256, 128);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [directory, jobs, durability] = &arguments[..] else {
        return Err("DIRECTORY JOBS default|wal".into());
    };
    let jobs: usize = jobs.parse()?;

    let (apart, file) = open(directory, "apart.db", durability).await?;
    let journal_mode: String = Connection::open(file)?.pragma_query_value(None, "journal_mode", |row| row.get(0))?;
    let begun = Instant::now();
    enqueue(&apart, jobs).await?;
    let enqueueing = begun.elapsed();
    let begun = Instant::now();
    finish(work(&apart).await?, jobs).await;
    let processing = begun.elapsed();
    apart.close(Duration::from_secs(10)).await?;

    let (together, _) = open(directory, "together.db", durability).await?;
    let begun = Instant::now();
    let worker = work(&together).await?;
    enqueue(&together, jobs).await?;
    finish(worker, jobs).await;
    let both = begun.elapsed();
    together.close(Duration::from_secs(10)).await?;

    let rate = |took: Duration| (jobs as f64 / took.as_secs_f64()).round() as u64;
    println!(
        "{}",
        json!({
            "peer": "effectum",
            "version": "0.7.0",
            "durability": durability,
            "journal_mode": journal_mode,
            // It sets this on the one connection that writes, which it lends to nobody.
            "synchronous": "normal",
            "leases": true,
            "sandbox": false,
            "enqueue_per_second": rate(enqueueing),
            "process_per_second": rate(processing),
            "end_to_end_per_second": rate(both),
        })
    );
    Ok(())
}

/// A queue on a new file. A file that is in WAL mode already stays in it.
async fn open(directory: &str, name: &str, durability: &str) -> Result<(Queue, PathBuf), Box<dyn Error>> {
    let file = Path::new(directory).join(name);
    if durability == "wal" {
        Connection::open(&file)?.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(()))?;
    }
    Ok((Queue::new(&file).await?, file))
}

async fn enqueue(queue: &Queue, jobs: usize) -> effectum::Result<()> {
    let text = json!({"to": "someone@example.com", "subject": "Your order", "text": ""});
    let mut payload = text.clone();
    payload["text"] = "x".repeat(200 - text.to_string().len()).into();
    for first in (0..jobs).step_by(BATCH) {
        let batch = (first..jobs.min(first + BATCH)).map(|_| Ok(Job::builder("bench").json_payload(&payload)?.build()));
        queue.add_jobs(batch.collect::<effectum::Result<_>>()?).await?;
    }
    Ok(())
}

async fn work(queue: &Queue) -> effectum::Result<Worker> {
    let handler =
        JobRunner::builder("bench", |job: RunningJob, ()| async move { job.json_payload::<Value>().map(|_| ()) });
    let worker = Worker::builder(queue, ()).max_concurrency(CONCURRENCY.0).min_concurrency(CONCURRENCY.1);
    worker.jobs([handler.build()]).build().await
}

/// Waits until all jobs are written as done. The worker counts them and tells nobody, so it has to be asked.
async fn finish(worker: Worker, jobs: usize) {
    while worker.counts().finished < jobs as u64 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
