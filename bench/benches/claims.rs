//! What a claim of 64 jobs takes, on an empty database and with a backlog: that many jobs ready, as many scheduled, as many
//! ended. On the store itself, one call at a time, each durable before it is answered.

use std::time::Instant;

use leasehold_bench::{daemon, jobs::number, jobs::random_key, payload, spread::Spread};
use leasehold_domain::{Digest, HandlerName, HandlerVersion, Kind, MemoryRoom, Verdict, ids::JobKey};
use leasehold_store::{
    AttemptRecordText, ClaimRequest, Claimed, Durability, EnqueueJob, KindClaim, Settlement, Store, StoreOptions,
    StoredVersion,
};

const CLAIM: usize = 64;
const CLAIMS: usize = 500;
const BATCH: usize = 1_000;

fn main() -> anyhow::Result<()> {
    let backlog = number("BENCH_BACKLOG", 1_000_000);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let directory = daemon::directory()?;
        let options = StoreOptions {
            directory: directory.path().to_owned(),
            key_file: directory.path().join("key"),
            durability: Durability::Full,
            wal_autocheckpoint_pages: 8_000,
            batch_time: StoreOptions::BATCH_TIME,
        };
        let store = Store::open(&options)?;
        let version = HandlerVersion::new("h", "1.0.0")?;
        let stored = StoredVersion { version: version.clone(), digest: Digest::of(b"h"), size_bytes: 1 };
        store.put_version(stored, "bench", 0).await?;
        store.activate_version(&version, false, "bench", 0).await?;
        let mut queue = Queue { store, sent: 0, now_ms: 0 };
        let empty = queue.measure().await?;
        queue.fill(backlog).await?;
        let full = queue.measure().await?;
        println!(
            "a claim of {CLAIM}: {} on an empty database; {} with {backlog} jobs ready, as many scheduled and as many ended; \
             p99 {:.2} times as long",
            empty.shown_ms(),
            full.shown_ms(),
            full.percentile(0.99) / empty.percentile(0.99)
        );
        Ok(())
    })
}

struct Queue {
    store: Store,
    sent: usize,
    now_ms: i64,
}

impl Queue {
    async fn enqueue(&mut self, jobs: usize, visible_at_ms: i64) -> anyhow::Result<()> {
        for _ in 0..jobs.div_ceil(BATCH) {
            let batch: Result<Vec<_>, anyhow::Error> =
                (0..BATCH.min(jobs)).map(|job| Self::job(self.sent + job, visible_at_ms)).collect();
            let batch = batch?;
            self.sent += batch.len();
            self.store.enqueue(batch, "bench", self.now_ms, 60_000, u64::MAX).await?;
        }
        Ok(())
    }

    fn job(number: usize, visible_at_ms: i64) -> anyhow::Result<EnqueueJob> {
        Ok(EnqueueJob {
            kind: Kind::new("bench")?,
            key: Some(JobKey::new(random_key("claims", number))?),
            lane: None,
            content_type: "application/json".into(),
            payload: payload().into_bytes(),
            metadata: Vec::new(),
            visible_at_ms,
            run_at_wall_ms: None,
            priority: 0,
        })
    }

    async fn claim(&mut self, max: usize) -> anyhow::Result<Vec<Claimed>> {
        let kind = KindClaim {
            kind: Kind::new("bench")?,
            handler: HandlerName::new("h")?,
            max,
            memory_bytes: 1,
            attempts_max: 8,
            visibility_timeout_ms: 30_000,
            lease_max_ms: 60_000,
            lane_concurrency: None,
            cooldown: false,
            bound_only: false,
        };
        let memory = MemoryRoom::left_by([], 1 << 40);
        let request = ClaimRequest { now_ms: self.now_ms, max, memory, kinds: vec![kind], waits_its_turn: false };
        Ok(self.store.claim(request).await?.jobs)
    }

    async fn settle(&self, jobs: Vec<Claimed>) -> anyhow::Result<()> {
        let now_ms = self.now_ms;
        let settling = jobs.into_iter().map(|job| {
            let store = self.store.clone();
            let settlement = Settlement {
                token: job.token,
                now_ms,
                verdict: Verdict::Complete { output: None },
                attempt: AttemptRecordText { ended_as: "done", ..AttemptRecordText::default() },
                effects: Vec::new(),
                dead_letter: None,
                only_if_expired: false,
                priority_step_ms: 60_000,
                unclean_stops: 0,
            };
            tokio::spawn(async move { store.settle(settlement).await })
        });
        for settled in settling.collect::<Vec<_>>() {
            settled.await??;
        }
        Ok(())
    }

    /// Takes jobs through their life, as many as there are ready before as after, and times the claims, in milliseconds.
    async fn measure(&mut self) -> anyhow::Result<Spread> {
        let mut times = Vec::new();
        for _ in 0..CLAIMS {
            self.enqueue(CLAIM, 0).await?;
            self.now_ms += 1;
            let begun = Instant::now();
            let jobs = self.claim(CLAIM).await?;
            times.push(begun.elapsed().as_secs_f64() * 1e3);
            anyhow::ensure!(jobs.len() == CLAIM, "{} jobs were claimed", jobs.len());
            self.settle(jobs).await?;
        }
        Ok(Spread::of(times))
    }

    /// Ended first, since these are claimed; then those that wait for a day, then the ready ones.
    async fn fill(&mut self, backlog: usize) -> anyhow::Result<()> {
        self.enqueue(backlog, 0).await?;
        loop {
            let jobs = self.claim(BATCH).await?;
            if jobs.is_empty() {
                break;
            }
            self.settle(jobs).await?;
        }
        self.enqueue(backlog, 86_400_000).await?;
        self.enqueue(backlog, 0).await
    }
}
