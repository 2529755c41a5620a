//! The queue, the clock, the runner's attempts and the model, and one random step after another. Each step says which jobs
//! it may touch; nothing else may have changed after it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use leasehold_domain::{
    HandlerName, InDoubtPolicy, JobKey, Kind, KindPolicy, Lane, TimestampMs, VersionId, backoff::Backoff,
};
use leasehold_store::{
    Beat, ClaimRequest, Claimed, Durability, EnqueueAnswer, EnqueueJob, KindClaim, Store, StoreOptions, VersionRow,
};
use rusqlite::{Connection, OpenFlags};
use tempfile::TempDir;

use crate::{
    checkers::Rows,
    disk::Disk,
    model::{Job, Model, PRIORITY_STEP_MS, State},
    random::Random,
    runner::Attempt,
};

const START_MS: TimestampMs = 1_000_000_000;
const DAY_MS: i64 = 86_400_000;
const LANES: [&str; 3] = ["north", "south", "west"];
const KEYS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
/// More than the steps of a drain need.
const DRAIN_ROUNDS: u32 = 5_000;

pub struct World {
    pub store: Store,
    pub disk: Arc<Disk>,
    pub directory: TempDir,
    /// Looks into the database beside the store.
    pub database: Connection,
    pub now_ms: TimestampMs,
    pub random: Random,
    pub model: Model,
    pub running: Vec<Attempt>,
    pub kinds: Vec<KindPolicy>,
    /// All rows about jobs after the last step.
    pub rows: Rows,
    /// The jobs that this step may touch.
    pub touched: BTreeSet<i64>,
    /// What happened, and how many times.
    pub happened: BTreeMap<&'static str, u64>,
    pub sequence: u64,
    pub steps: u64,
    /// Whether all runners do their work well, for the drain at the end.
    pub all_is_well: bool,
}

pub fn options(directory: &TempDir) -> StoreOptions {
    StoreOptions {
        directory: directory.path().to_owned(),
        key_file: directory.path().join("leasehold.key"),
        durability: Durability::Full,
        // Often enough that a kill finds the log at all of its stages.
        wal_autocheckpoint_pages: 200,
        // A seed repeats its order of writes, however slow the machine is.
        batch_time: Duration::MAX,
    }
}

pub fn look_into(directory: &TempDir) -> Connection {
    let path = options(directory).database();
    // Past the disk of the simulation, whose faults are not for those who check.
    let database = Connection::open_with_flags_and_vfs(path, OpenFlags::SQLITE_OPEN_READ_ONLY, c"unix").unwrap();
    database.set_prepared_statement_cache_capacity(64);
    database
}

/// Three kinds of two handlers, with different rules.
fn kinds() -> Vec<KindPolicy> {
    let base = |kind: &str, handler: &str| KindPolicy {
        visibility_timeout_ms: 1_000,
        deadline_ms: 4_000,
        backoff: Backoff { min_ms: 100, max_ms: 5_000 },
        retry_after_max_ms: 10_000,
        attempts_max: 3,
        ..KindPolicy::of_unconfigured(&Kind::new(kind).unwrap(), HandlerName::new(handler).unwrap())
    };
    vec![
        KindPolicy {
            lane_concurrency: Some(2),
            cooldown: true,
            in_doubt: InDoubtPolicy::BeginAgain,
            ..base("mail", "mailer")
        },
        KindPolicy { lane_concurrency: Some(1), attempts_max: 2, ..base("charge", "biller") },
        KindPolicy {
            attempts_max: 4,
            concurrency: Some(4),
            in_doubt: InDoubtPolicy::BeginAgain,
            keep_original: false,
            ..base("report", "biller")
        },
    ]
}

impl World {
    pub async fn new(seed: u64) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let disk = Disk::under_directory(directory.path(), seed);
        let store = Store::open(&options(&directory)).unwrap();
        let database = look_into(&directory);
        let mut world = Self {
            store,
            disk,
            directory,
            database,
            now_ms: START_MS,
            random: Random::new(seed),
            model: Model::default(),
            running: Vec::new(),
            kinds: kinds(),
            rows: Rows::default(),
            touched: BTreeSet::new(),
            happened: BTreeMap::new(),
            sequence: 0,
            steps: 0,
            all_is_well: false,
        };
        for handler in ["mailer", "biller"] {
            world.put_version(handler).await;
            world.activate_latest(handler).await;
        }
        world
    }

    pub fn count(&mut self, what: &'static str) {
        *self.happened.entry(what).or_insert(0) += 1;
    }

    pub fn next(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    pub fn policy(&self, kind: &str) -> &KindPolicy {
        self.kinds.iter().find(|policy| policy.kind.as_str() == kind).unwrap()
    }

    /// One random step, and all that must hold after it.
    pub async fn step(&mut self) {
        let what = self.random.below(100);
        match self.random.below(100) {
            0..=7 => self.step_with_fault(what).await,
            8..=11 => self.step_with_power_cut(what).await,
            12..=13 => self.gather(what < 30).await,
            _ => self.do_step(what).await,
        }
        self.check();
    }

    /// One step of a hundred kinds.
    pub async fn do_step(&mut self, what: u64) {
        match what {
            0..=12 => self.enqueue().await,
            13..=20 => self.advance().await,
            21..=34 => self.claim(None).await,
            35..=40 => self.heartbeat().await,
            41..=68 => self.act().await,
            69..=78 => self.end_one().await,
            79..=81 => self.overlap().await,
            82..=86 => self.reap().await,
            87 => self.cancel().await,
            88 => self.lose_current_version().await,
            89..=90 => self.change_version().await,
            91..=94 => self.replay_or_discard().await,
            95 => self.restarts().await,
            96 => self.retain().await,
            97 => self.change_cap(),
            _ => self.runner_dies(),
        }
    }

    async fn enqueue(&mut self) {
        let jobs: Vec<_> = (0..self.random.between(1, 3)).map(|_| self.random_job()).collect();
        let now_ms = self.now_ms;
        let answers = self
            .surely(async |store| store.enqueue(jobs.clone(), "sim", now_ms, PRIORITY_STEP_MS, u64::MAX).await)
            .await;
        assert_eq!(answers.len(), jobs.len());
        for (job, answer) in jobs.into_iter().zip(answers) {
            self.note_enqueued(job, &answer);
        }
    }

    pub fn random_job(&mut self) -> EnqueueJob {
        let kind = self.random.index(self.kinds.len());
        let key = self.random.chance(40).then(|| JobKey::new(self.random.pick(&KEYS)).unwrap());
        // With a key mostly the same payload, so that a second enqueue is a duplicate and sometimes a conflict.
        let payload = if key.is_some() && self.random.chance(75) { 0 } else { self.next() };
        let delay_ms = if self.random.chance(20) { self.random.between(1, 3_000) } else { 0 };
        EnqueueJob {
            kind: self.kinds[kind].kind.clone(),
            key,
            lane: self.random.chance(70).then(|| Lane::new(self.random.pick(&LANES)).unwrap()),
            content_type: "text/plain".into(),
            payload: format!("payload {payload}").into_bytes(),
            metadata: Vec::new(),
            visible_at_ms: self.now_ms + delay_ms,
            run_at_wall_ms: None,
            priority: i32::try_from(self.random.between(-1, 1)).unwrap(),
        }
    }

    pub fn note_enqueued(&mut self, job: EnqueueJob, answer: &EnqueueAnswer) {
        let kind = job.kind.to_string();
        let key = job.key.as_ref().map(ToString::to_string);
        let first = key.and_then(|key| self.model.keys.get(&(kind, key))).cloned();
        match (answer, first) {
            (EnqueueAnswer::Enqueued { id, .. }, None) => self.note_new(id.0, job),
            (EnqueueAnswer::Duplicate { id, .. }, Some((first, payload))) if payload == job.payload => {
                assert_eq!(id.0, first, "another job than the first one was named");
                self.count("enqueue: duplicate");
            }
            (EnqueueAnswer::KeyConflict { id }, Some((first, payload))) if payload != job.payload => {
                assert_eq!(id.0, first, "another job than the first one was named");
                self.count("enqueue: key conflict");
            }
            (answer, first) => panic!("an enqueue was answered with {answer:?}; the key's first job is {first:?}"),
        }
    }

    /// Notes a job that is in.
    pub fn note_new(&mut self, id: i64, job: EnqueueJob) {
        self.touched.insert(id);
        let job = Job {
            kind: job.kind.into(),
            lane: job.lane.map(Into::into),
            payload: job.payload,
            key: job.key.map(|key| key.as_str().to_owned()),
            priority: job.priority,
            state: State::Queued,
            visible_at_ms: job.visible_at_ms.max(self.now_ms),
            attempt: 0,
            attempts_used: 0,
            releases_running: 0,
            unclean_stops: 0,
            cancel_requested: false,
            steps: BTreeMap::new(),
            kept: Vec::new(),
            last_digest: None,
            died_on: BTreeSet::new(),
            replay: None,
            bound: None,
            letter: None,
        };
        self.model.add(id, job);
    }

    async fn advance(&mut self) {
        match self.random.below(20) {
            0..=11 => self.now_ms += self.random.between(1, 200),
            // To the last moment of the next lease, or to its first moment after.
            12..=15 => {
                if let Some(expiry_ms) = self.surely(async |store| store.next_expiry_ms(i64::MIN).await).await {
                    self.now_ms = self.now_ms.max(expiry_ms - i64::from(self.random.chance(50)));
                }
            }
            16..=18 => {
                if let Some(visible_ms) = self.surely(async |store| store.next_visible_ms().await).await {
                    self.now_ms = self.now_ms.max(visible_ms - i64::from(self.random.chance(30)));
                }
            }
            _ => self.now_ms += self.random.between(1, 3 * DAY_MS),
        }
    }

    /// Leases jobs, within the permits that a caller would have.
    pub async fn claim(&mut self, max: Option<usize>) {
        let drawn = usize::try_from(self.random.between(1, 8)).unwrap();
        let max = max.unwrap_or(drawn);
        let kinds: Vec<_> = self.kinds.iter().map(|policy| self.permits(policy)).collect();
        let versions = self.versions().await;
        let now_ms = self.now_ms;
        self.model.cooldowns.retain(|_, until_ms| *until_ms > now_ms);
        let request = ClaimRequest {
            now_ms,
            max,
            memory: leasehold_domain::MemoryRoom::UNLIMITED,
            kinds: kinds.clone(),
            waits_its_turn: false,
        };
        let claim = self.surely(async |store| store.claim(request.clone()).await).await;
        assert!(claim.jobs.len() <= max, "more jobs were leased than asked for");
        for claimed in &claim.jobs {
            self.note_claimed(claimed, &versions);
        }
        for id in self.handed_to_reaper(claim.used_up) {
            self.touched.insert(id);
            let job = self.model.jobs.get_mut(&id).unwrap();
            job.state = State::Leased { expires_at_ms: now_ms, deadline_ms: now_ms, handed_to_reaper: true };
            self.count("claim: cap lowered");
        }
        if !claim.cut_short {
            self.check_nothing_was_passed_over(&kinds, &versions, &claim.jobs, max);
        }
    }

    fn permits(&self, policy: &KindPolicy) -> KindClaim {
        let running = self.running.iter().filter(|attempt| attempt.kind == policy.kind.as_str()).count();
        KindClaim {
            kind: policy.kind.clone(),
            handler: policy.handler.clone(),
            max: policy.concurrency.map_or(usize::MAX, |limit| (limit as usize).saturating_sub(running)),
            memory_bytes: 1,
            attempts_max: policy.attempts_max,
            visibility_timeout_ms: policy.visibility_timeout_ms,
            lease_max_ms: policy.deadline_ms + policy.visibility_timeout_ms,
            lane_concurrency: policy.lane_concurrency,
            cooldown: policy.cooldown,
            bound_only: false,
        }
    }

    fn note_claimed(&mut self, claimed: &Claimed, versions: &[VersionRow]) {
        let (id, now_ms) = (claimed.token.job.0, self.now_ms);
        let policy = self.policy(claimed.kind.as_str()).clone();
        let lane = claimed.lane.as_ref().map(Lane::as_str);
        assert!(!self.model.is_lane_blocked(&policy, lane, now_ms), "job {id} was leased in a blocked lane");
        assert!(self.touched.insert(id), "job {id} was leased twice by one claim");
        let job = self.model.jobs.get_mut(&id).unwrap_or_else(|| panic!("job {id} was leased and is not known"));
        assert!(job.is_queued(), "job {id} was leased while it stands at {:?}", job.state);
        assert!(job.visible_at_ms <= now_ms, "job {id} was leased before it was visible");
        job.attempt += 1;
        job.attempts_used += 1;
        assert!(job.attempts_used <= policy.attempts_max, "job {id} was leased beyond its cap");
        let found = (claimed.token.attempt.0, claimed.attempts_used, claimed.releases_running, claimed.unclean_stops);
        assert_eq!(found, (job.attempt, job.attempts_used, job.releases_running, job.unclean_stops), "job {id}");
        assert_eq!(claimed.contents.as_ref().unwrap().payload, job.payload, "job {id} has another payload");
        assert_eq!(claimed.replay.as_ref().map(|replay| replay.id.0), job.replay, "job {id}");
        let deadline_ms = now_ms + policy.deadline_ms + policy.visibility_timeout_ms;
        let expires_at_ms = now_ms + policy.visibility_timeout_ms;
        job.state = State::Leased { expires_at_ms, deadline_ms, handed_to_reaper: false };
        job.last_digest = Some(claimed.run_on.digest);
        check_version(claimed, job.bound, &policy, versions);
        self.running.push(Attempt::of(claimed));
    }

    async fn heartbeat(&mut self) {
        let all = self.random.chance(50);
        let lease_expires_at_ms = self.now_ms + 1_000;
        let mut beats = Vec::new();
        for attempt in &self.running {
            if all || self.random.chance(50) {
                beats.push(Beat { token: attempt.token, lease_expires_at_ms });
            }
        }
        let now_ms = self.now_ms;
        let lost = self.surely(async |store| store.heartbeat(beats.clone(), now_ms).await).await;
        for beat in beats {
            let job = self.model.jobs.get_mut(&beat.token.job.0);
            let held = job.filter(|job| job.is_held_by(beat.token.attempt.0, self.now_ms));
            assert_eq!(lost.contains(&beat.token), held.is_none(), "the beat of {}", beat.token);
            if let Some(State::Leased { expires_at_ms, deadline_ms, .. }) = held.map(|job| &mut job.state) {
                *expires_at_ms = (*expires_at_ms).max(lease_expires_at_ms.min(*deadline_ms));
                self.touched.insert(beat.token.job.0);
                self.count("heartbeat: extended");
            } else {
                self.count("heartbeat: lost");
            }
        }
    }

    /// With all runners well-behaved and time moving on, everything ends.
    pub async fn drain(&mut self) {
        self.all_is_well = true;
        for handler in ["mailer", "biller"] {
            self.put_version(handler).await;
            self.activate_latest(handler).await;
        }
        for _ in 0..DRAIN_ROUNDS {
            if self.model.jobs.values().all(|job| matches!(job.state, State::Ended { .. })) {
                return self.check_the_end().await;
            }
            self.reap().await;
            self.check();
            self.claim(Some(100)).await;
            self.check();
            while !self.running.is_empty() {
                self.end_one().await;
                self.check();
            }
            self.now_ms += self.random.between(1, 2_000);
        }
        let left: Vec<_> =
            self.model.jobs.iter().filter(|(_, job)| !matches!(job.state, State::Ended { .. })).collect();
        panic!("these jobs never end: {left:#?}");
    }
}

/// New attempts run on the current version, those of a replay on the one that it is bound to.
fn check_version(claimed: &Claimed, bound: Option<VersionId>, policy: &KindPolicy, versions: &[VersionRow]) {
    let run_on = &claimed.run_on;
    let row = versions.iter().find(|row| row.id == run_on.id).expect("a stored version");
    assert_eq!((&row.version, row.digest), (&run_on.version, run_on.digest));
    assert_eq!(run_on.version.name, policy.handler);
    assert_eq!(run_on.live, row.state == leasehold_domain::HandlerState::Live);
    match bound {
        Some(bound) => assert!(run_on.bound && run_on.id == bound, "a replay left the version that it is bound to"),
        None => assert!(!run_on.bound && row.current, "an attempt began on a version that is not current"),
    }
}
