//! What must hold after every step, looked at through a connection of its own: the database says what the model says, no
//! row of a job that the step did not touch has changed, and no rule of the queue is broken.

use std::{
    collections::{BTreeMap, hash_map::DefaultHasher},
    hash::{Hash, Hasher},
};

use leasehold_domain::{HandlerState, JobId, verdict::SUSPECT_AFTER};
use leasehold_store::{Claimed, KindClaim, VersionRow};
use rusqlite::types::{FromSql, ValueRef};

use crate::{
    model::{Job, State, StepState},
    rules::NOBODY,
    world::World,
};

/// A digest of all rows about each job.
pub type Rows = BTreeMap<i64, u64>;

/// How often what is dear is checked, in steps.
const DEAR_EVERY: u64 = 40;

/// All rows about jobs. Whether a job is waiting, ready or held can change with its lane and with time.
pub const ROWS: [&str; 8] = [
    "SELECT id, kind, lane, place, visible_at, priority, attempt, attempts_used, releases_running, unclean_stops,
            lease_expires_at, deadline_at, cancel_requested, version_id, bound_version_id, replay_id, enqueued_at,
            enqueued_by, payload_digest, key_digest, payload_sealed, extras_sealed FROM jobs",
    "SELECT * FROM ended_jobs",
    "SELECT * FROM attempts",
    "SELECT * FROM steps",
    "SELECT * FROM step_runs",
    "SELECT job_id, * FROM step_effects",
    "SELECT job_id, * FROM dead_letters",
    "SELECT job_id, * FROM replays",
];

impl World {
    /// Checks what must hold after a step.
    pub fn check(&mut self) {
        self.steps += 1;
        self.check_untouched();
        self.check_jobs();
        self.check_ended_jobs();
        for id in std::mem::take(&mut self.touched) {
            self.check_steps(id);
        }
        self.check_lanes();
        for (what, sql) in NOBODY {
            let found: Vec<i64> = self.all(sql);
            assert!(found.is_empty(), "{what}: {found:?}");
        }
        if self.steps.is_multiple_of(DEAR_EVERY) {
            assert_eq!(self.all::<String>("PRAGMA integrity_check"), ["ok"]);
            assert!(self.all::<String>("SELECT \"table\" FROM pragma_foreign_key_check").is_empty());
        }
    }

    /// The first column of all rows.
    pub fn all<T: FromSql>(&self, sql: &str) -> Vec<T> {
        let mut statement = self.database.prepare_cached(sql).unwrap();
        statement.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
    }

    /// Jobs that are in the queue and were not known.
    pub fn new_ids(&self) -> Vec<i64> {
        let ids = self.all("SELECT id FROM jobs ORDER BY id");
        ids.into_iter().filter(|id| !self.model.given.contains(id)).collect()
    }

    fn check_untouched(&mut self) {
        let mut hashers: BTreeMap<i64, DefaultHasher> = BTreeMap::new();
        for sql in ROWS {
            let mut statement = self.database.prepare_cached(sql).unwrap();
            let columns = statement.column_count();
            let mut rows = statement.query([]).unwrap();
            while let Some(row) = rows.next().unwrap() {
                let hasher = hashers.entry(row.get(0).unwrap()).or_default();
                for column in 0..columns {
                    hash_value(row.get_ref(column).unwrap(), hasher);
                }
            }
        }
        let rows: Rows = hashers.into_iter().map(|(id, hasher)| (id, hasher.finish())).collect();
        for id in rows.keys().chain(self.rows.keys()) {
            let is_same = rows.get(id) == self.rows.get(id);
            assert!(is_same || self.touched.contains(id), "rows of job {id} changed, which the step did not touch");
        }
        self.rows = rows;
    }

    /// Each job that has not ended stands as the model says, and no other is there.
    fn check_jobs(&mut self) {
        let mut found = Vec::new();
        let mut held = 0;
        let mut statement = self
            .database
            .prepare_cached(
                "SELECT id, kind, lane, state = 2, visible_at, place, attempt, attempts_used, releases_running,
                        unclean_stops, cancel_requested, replay_id, bound_version_id, lease_expires_at, deadline_at, held
                 FROM jobs ORDER BY id",
            )
            .unwrap();
        let mut rows = statement.query([]).unwrap();
        while let Some(row) = rows.next().unwrap() {
            let get = |column| row.get::<_, Option<i64>>(column).unwrap();
            let text = |column| row.get::<_, Option<String>>(column).unwrap();
            let numbers: [Option<i64>; 12] = std::array::from_fn(|at| get(at + 3));
            found.push((row.get::<_, i64>(0).unwrap(), text(1).unwrap(), text(2), numbers));
            held += row.get::<_, i64>(15).unwrap();
        }
        drop(rows);
        drop(statement);
        let live = self.model.jobs.iter().filter(|(_, job)| !matches!(job.state, State::Ended { .. }));
        let expected: Vec<_> =
            live.map(|(id, job)| (*id, job.kind.clone(), job.lane.clone(), numbers_of(job))).collect();
        for (found, expected) in found.iter().zip(&expected) {
            assert_eq!(found, expected, "a job does not stand as it should");
        }
        assert_eq!(found.len(), expected.len(), "jobs were lost or came from nowhere");
        if held > 0 {
            self.count("lane held");
        }
    }

    fn check_ended_jobs(&self) {
        let mut statement = self
            .database
            .prepare_cached("SELECT id, state, ended_at, attempt, trimmed FROM ended_jobs ORDER BY id")
            .unwrap();
        let rows = statement.query_map([], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?, row.get::<_, i64>(2)?, row.get::<_, u32>(3)?))
        });
        let found: Vec<_> = rows.unwrap().collect::<Result<_, _>>().unwrap();
        let ended = self.model.jobs.iter().filter_map(|(id, job)| match job.state {
            State::Ended { state, at_ms } => Some((*id, state.as_str().to_owned(), at_ms, job.attempt)),
            _ => None,
        });
        let expected: Vec<_> = ended.collect();
        assert_eq!(found.len(), expected.len(), "ended jobs were lost or came from nowhere");
        for (found, expected) in found.iter().zip(&expected) {
            assert_eq!(found, expected, "an ended job does not stand as it should");
        }
    }

    /// The steps of a job, their runs and what they keep, as the model says.
    fn check_steps(&self, id: i64) {
        let Some(job) = self.model.jobs.get(&id) else { return };
        let texts = |sql| {
            let mut statement = self.database.prepare_cached(sql).unwrap();
            let rows = statement.query_map([id], |row| row.get::<_, String>(0)).unwrap();
            rows.collect::<Result<Vec<_>, _>>().unwrap()
        };
        let steps = job.steps.iter().map(|(name, step)| {
            let state = match step.state {
                StepState::Begun => "begun",
                StepState::Applied(_) => "applied",
                StepState::TakenBack => "taken_back",
            };
            format!("{name} {state} {}", step.begun_by)
        });
        let sql = "SELECT name || ' ' || state || ' ' || begun_by FROM steps WHERE job_id = ?1 ORDER BY name";
        assert_eq!(texts(sql), steps.collect::<Vec<_>>(), "steps of job {id}");
        let runs = job.steps.iter().flat_map(|(name, step)| {
            step.runs.iter().map(move |(attempt, (in_doubt, ended_as))| {
                format!("{name} {attempt} {} {}", u8::from(*in_doubt), ended_as.unwrap_or("open"))
            })
        });
        let sql = "SELECT name || ' ' || attempt || ' ' || in_doubt || ' ' || coalesce(ended_as, 'open')
                   FROM step_runs WHERE job_id = ?1 ORDER BY name, attempt";
        assert_eq!(texts(sql), runs.collect::<Vec<_>>(), "runs of steps of job {id}");
        let kept = texts("SELECT step FROM step_effects WHERE job_id = ?1");
        assert_eq!(kept.len(), job.kept.len(), "what the steps of job {id} keep");
    }

    /// No lane has more leased jobs than its limit, and the cooldowns are those that there should be.
    fn check_lanes(&self) {
        for policy in &self.kinds {
            let Some(limit) = policy.lane_concurrency else { continue };
            for lane in ["north", "south", "west"] {
                let leased = self.model.leased_of(policy.kind.as_str(), Some(lane));
                assert!(leased <= limit as usize, "{leased} jobs of {} are leased in lane {lane}", policy.kind);
            }
        }
        let found =
            self.all::<String>("SELECT kind || ' ' || lane || ' ' || until FROM lane_cooldowns ORDER BY kind, lane");
        let expected = self.model.cooldowns.iter().map(|((kind, lane), until_ms)| format!("{kind} {lane} {until_ms}"));
        assert_eq!(found, expected.collect::<Vec<_>>(), "cooldowns");
    }

    /// After a claim that had room left nothing stands there that could have been leased, and nothing that came later was
    /// leased before something of the same kind that stands.
    pub fn check_nothing_was_passed_over(
        &mut self,
        kinds: &[KindClaim],
        versions: &[VersionRow],
        claimed: &[Claimed],
        max: usize,
    ) {
        let runs_on_bound = |job: &&Claimed| {
            job.run_on.bound && versions.iter().all(|row| !row.current || row.version.name != job.run_on.version.name)
        };
        if claimed.iter().any(|job| runs_on_bound(&job)) {
            self.count("claim: bound alone");
        }
        for kind in kinds {
            let of_handler = || versions.iter().filter(|row| row.version.name == kind.handler);
            let has_current = of_handler().any(|row| row.current);
            // Without a current version only replays have something to run on.
            let is_live = of_handler().any(|row| row.state == HandlerState::Live);
            let is_served = |job: &Job| has_current || is_live && job.bound.is_some();
            let ids: Vec<_> = claimed.iter().filter(|job| job.kind == kind.kind).map(|job| job.token.job.0).collect();
            let last = ids.iter().map(|id| (self.model.jobs[id].place(), *id)).max();
            let has_room = claimed.len() < max && ids.len() < kind.max;
            for (id, job) in self.model.jobs.iter().filter(|(_, job)| job.kind == kind.kind.as_str()) {
                if !is_served(job) || !self.could_have_run(job) {
                    continue;
                }
                assert!(!has_room, "job {id} could have been leased and was not: {job:#?}");
                let is_behind = kind.lane_concurrency.is_some() || last.is_none_or(|last| last < (job.place(), *id));
                assert!(is_behind, "a later job was leased before job {id}");
            }
        }
    }

    fn could_have_run(&self, job: &Job) -> bool {
        let is_suspect = |job: &Job| job.unclean_stops >= SUSPECT_AFTER;
        // Suspects run one at a time.
        let waits_for_suspect =
            is_suspect(job) && self.model.jobs.values().any(|other| other.is_leased() && is_suspect(other));
        let policy = self.policy(&job.kind);
        job.is_queued()
            && job.visible_at_ms <= self.now_ms
            && !waits_for_suspect
            && !self.model.is_lane_blocked(policy, job.lane.as_deref(), self.now_ms)
    }

    /// Jobs without an attempt left that a claim has handed to the reaper.
    pub fn handed_to_reaper(&self, expected: usize) -> Vec<i64> {
        let ids = self.all::<i64>("SELECT id FROM jobs WHERE state = 2 ORDER BY id");
        let handed: Vec<_> = ids.into_iter().filter(|id| self.model.jobs[id].is_queued()).collect();
        assert_eq!(handed.len(), expected, "jobs were leased without a word");
        for id in &handed {
            let job = &self.model.jobs[id];
            assert!(job.attempts_used >= self.policy(&job.kind).attempts_max, "job {id} has attempts left");
        }
        handed
    }

    /// All has ended: what jobs that succeeded have stored is there, and nothing else.
    pub async fn check_the_end(&self) {
        assert_eq!(self.all::<i64>("SELECT count(*) FROM jobs"), [0]);
        let (names, _) = self.store.list_value_keys("state", None).await.unwrap();
        assert_eq!(names.len(), self.model.values.len(), "values that nobody has stored");
        for (key, value) in &self.model.values {
            let found = self.store.read_value(JobId(0), "state", key).await.unwrap();
            assert_eq!(found.as_ref(), Some(value), "the value under {key}");
        }
    }
}

/// The numbers of a job's row.
fn numbers_of(job: &Job) -> [Option<i64>; 12] {
    let (expires_at_ms, deadline_ms) = match job.state {
        State::Leased { expires_at_ms, deadline_ms, .. } => (Some(expires_at_ms), Some(deadline_ms)),
        _ => (None, None),
    };
    [
        Some(i64::from(job.is_leased())),
        Some(job.visible_at_ms),
        Some(job.place()),
        Some(i64::from(job.attempt)),
        Some(i64::from(job.attempts_used)),
        Some(i64::from(job.releases_running)),
        Some(i64::from(job.unclean_stops)),
        Some(i64::from(job.cancel_requested)),
        job.replay,
        job.bound.map(|version| version.0),
        expires_at_ms,
        deadline_ms,
    ]
}

pub fn hash_value(value: ValueRef<'_>, hasher: &mut DefaultHasher) {
    match value {
        ValueRef::Null => 0_u8.hash(hasher),
        ValueRef::Integer(number) => number.hash(hasher),
        ValueRef::Real(number) => number.to_bits().hash(hasher),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => bytes.hash(hasher),
    }
}
