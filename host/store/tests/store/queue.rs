//! A queue in a directory of its own, with one handler live, and short ways to do what tests do over and over.

use std::path::Path;

use leasehold_domain::{
    Cause, DeadLetterId, Digest, Effect, FencingToken, HandlerName, HandlerVersion, JobId, Kind, Lane, MemoryRoom,
    StepName, TimestampMs, Verdict, ids::JobKey,
};
use leasehold_store::{
    AttemptRecordText, BeginStep, Claim, ClaimRequest, Claimed, DeadLetterText, Durability, EnqueueAnswer, EnqueueJob,
    KindClaim, ReplayRequest, Settled, Settlement, StepEnded, Store, StoreOptions, StoredVersion,
};
use rusqlite::{Connection, OpenFlags, types::Value};
use tempfile::TempDir;

/// One step of priority.
pub const PRIORITY_STEP_MS: i64 = 60_000;
/// How long the leases of these tests hold.
pub const VISIBILITY_MS: i64 = 1_000;
/// How far heartbeats may extend them.
pub const LEASE_MAX_MS: i64 = 5_000;
/// More than any of these tests puts in.
const DEPTH_MAX: u64 = 1_000_000;

/// A store and its directory.
pub struct Queue {
    pub store: Store,
    directory: TempDir,
}

/// How the database of a directory is opened. Its tests lose no power.
pub fn options(directory: &Path) -> StoreOptions {
    StoreOptions {
        directory: directory.to_owned(),
        key_file: directory.join("leasehold.key"),
        durability: Durability::Normal,
        wal_autocheckpoint_pages: 1_000,
        batch_time: StoreOptions::BATCH_TIME,
    }
}

impl Queue {
    /// A new queue with the handler `h` live.
    pub async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(&options(directory.path())).unwrap();
        let version = HandlerVersion::new("h", "1.0.0").unwrap();
        let stored = StoredVersion { version: version.clone(), digest: Digest::of(b"h"), size_bytes: 1 };
        store.put_version(stored, "tests", 0).await.unwrap();
        store.activate_version(&version, false, "tests", 0).await.unwrap();
        Self { store, directory }
    }

    /// Closes the store and opens it again, as a restart does.
    pub fn reopen(self) -> Self {
        self.store.close();
        let Self { store, directory } = self;
        drop(store);
        Self { store: Store::open(&options(directory.path())).unwrap(), directory }
    }

    /// A connection that looks into the database.
    pub fn database(&self) -> Connection {
        let path = options(self.directory.path()).database();
        Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap()
    }

    /// The one number that a question answers.
    pub fn number(&self, sql: &str) -> i64 {
        self.database().query_row(sql, [], |row| row.get(0)).unwrap()
    }

    /// Everything that stands about jobs, to tell whether something has changed it.
    pub fn contents(&self) -> Vec<Vec<Value>> {
        let database = self.database();
        let rows = ["jobs", "ended_jobs", "attempts", "steps", "step_runs", "dead_letters", "depths"].map(|table| {
            let mut statement = database.prepare(&format!("SELECT * FROM {table}")).unwrap();
            let columns = statement.column_count();
            let rows = statement.query_map([], |row| (0..columns).map(|column| row.get(column)).collect()).unwrap();
            rows.collect::<Result<Vec<_>, _>>().unwrap()
        });
        rows.into_iter().flatten().collect()
    }

    /// Puts jobs in.
    pub async fn enqueue(&self, jobs: Vec<EnqueueJob>, now_ms: TimestampMs) -> Vec<EnqueueAnswer> {
        self.store.enqueue(jobs, "tests", now_ms, PRIORITY_STEP_MS, DEPTH_MAX).await.unwrap()
    }

    /// Puts one job of kind `k` in.
    pub async fn enqueue_one(&self, now_ms: TimestampMs) -> JobId {
        id(&self.enqueue(vec![job("k")], now_ms).await[0])
    }

    /// Claims up to `max` jobs.
    pub async fn claim(&self, kinds: Vec<KindClaim>, max: usize, now_ms: TimestampMs) -> Claim {
        self.claim_within(MemoryRoom::UNLIMITED, kinds, max, now_ms).await
    }

    /// Claims up to `max` jobs whose attempts take no more memory than there is.
    pub async fn claim_within(
        &self,
        memory: MemoryRoom,
        kinds: Vec<KindClaim>,
        max: usize,
        now_ms: TimestampMs,
    ) -> Claim {
        self.store.claim(ClaimRequest { now_ms, max, memory, kinds, waits_its_turn: false }).await.unwrap()
    }

    /// Leases the next job of kind `k`.
    pub async fn lease(&self, now_ms: TimestampMs) -> Claimed {
        let mut claim = self.claim(vec![kind("k")], 1, now_ms).await;
        claim.jobs.pop().expect("a job that can be leased")
    }

    /// Begins the step `send` of an attempt.
    pub async fn begin_step(&self, token: FencingToken, now_ms: TimestampMs) -> StepName {
        let begin = begin(token, "send", now_ms);
        self.store.begin_step(begin.clone()).await.unwrap();
        begin.name
    }

    /// Begins and completes the step `send` of an attempt.
    pub async fn apply_step(&self, token: FencingToken, effects: Vec<Effect>, now_ms: TimestampMs) {
        let name = self.begin_step(token, now_ms).await;
        let ended = self.store.complete_step(token, name, b"sent".to_vec(), effects, now_ms).await.unwrap();
        assert_eq!(ended, StepEnded::Recorded);
    }

    /// Settles an attempt.
    pub async fn settle(&self, settlement: Settlement) -> Settled {
        self.store.settle(settlement).await.unwrap()
    }
}

/// The id in an answer.
pub fn id(answer: &EnqueueAnswer) -> JobId {
    match answer {
        EnqueueAnswer::Enqueued { id, .. }
        | EnqueueAnswer::Duplicate { id, .. }
        | EnqueueAnswer::KeyConflict { id } => *id,
        EnqueueAnswer::QueueFull => panic!("the queue is full"),
    }
}

/// A job that is visible at once.
pub fn job(kind: &str) -> EnqueueJob {
    EnqueueJob {
        kind: Kind::new(kind).unwrap(),
        key: None,
        lane: None,
        content_type: "application/octet-stream".into(),
        payload: b"payload".to_vec(),
        metadata: Vec::new(),
        visible_at_ms: 0,
        run_at_wall_ms: None,
        priority: 0,
    }
}

/// A job with a key.
pub fn keyed_job(kind: &str, key: &str, payload: &[u8]) -> EnqueueJob {
    EnqueueJob { key: Some(JobKey::new(key).unwrap()), payload: payload.to_vec(), ..job(kind) }
}

/// A job of a lane.
pub fn lane_job(kind: &str, lane: &str) -> EnqueueJob {
    EnqueueJob { lane: Some(Lane::new(lane).unwrap()), ..job(kind) }
}

/// What is claimed of a kind without limits.
pub fn kind(kind: &str) -> KindClaim {
    KindClaim {
        kind: Kind::new(kind).unwrap(),
        handler: HandlerName::new("h").unwrap(),
        max: usize::MAX,
        memory_bytes: 1,
        attempts_max: 3,
        visibility_timeout_ms: VISIBILITY_MS,
        lease_max_ms: LEASE_MAX_MS,
        lane_concurrency: None,
        cooldown: false,
        bound_only: false,
    }
}

/// The settlement of a claimed job's attempt.
pub fn settlement(claimed: &Claimed, verdict: Verdict, now_ms: TimestampMs) -> Settlement {
    let ended_as = match verdict {
        Verdict::Complete { .. } => "done",
        Verdict::Suppress { .. } => "suppressed",
        Verdict::Release { .. } => "released",
        Verdict::Cancel => "cancelled",
        Verdict::Retry { .. } | Verdict::Die { .. } => "failed",
    };
    Settlement {
        token: claimed.token,
        now_ms,
        verdict,
        attempt: AttemptRecordText { ended_as, ..AttemptRecordText::default() },
        effects: Vec::new(),
        dead_letter: Some(DeadLetterText {
            view: "{}".into(),
            masked_key: "k".into(),
            keep_original: true,
            page_after: 1,
        }),
        only_if_expired: false,
        priority_step_ms: PRIORITY_STEP_MS,
        unclean_stops: 0,
    }
}

/// The attempt ended well.
pub const fn complete() -> Verdict {
    Verdict::Complete { output: None }
}

/// The job is tried again.
pub const fn retry(visible_at_ms: TimestampMs) -> Verdict {
    Verdict::Retry { visible_at_ms, cooldown_until_ms: None }
}

/// The job dies.
pub const fn die() -> Verdict {
    Verdict::Die { cause: Cause::Poison, cooldown_until_ms: None }
}

/// The begin of a step that is not taken over from anybody.
pub fn begin(token: FencingToken, name: &str, now_ms: TimestampMs) -> BeginStep {
    BeginStep {
        token,
        name: StepName::new(name).unwrap(),
        fingerprint: Vec::new(),
        others_running: Vec::new(),
        take_over: false,
        now_ms,
    }
}

/// The replay of a dead letter onto the current version.
pub fn replay(dead_letter: DeadLetterId, now_ms: TimestampMs) -> ReplayRequest {
    ReplayRequest {
        dead_letter,
        handler: HandlerName::new("h").unwrap(),
        version: None,
        damaged: Vec::new(),
        actor: "tests".into(),
        reason: "again".into(),
        override_reason: None,
        payload: None,
        resolutions: Vec::new(),
        begin_again: false,
        bulk_replay: None,
        now_ms,
        priority_step_ms: PRIORITY_STEP_MS,
    }
}
