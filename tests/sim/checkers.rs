//! What must hold after every step, looked at through a connection of its own: the database says what the model says, no
//! row of a job that the step did not touch has changed, and no rule of the queue is broken.

use std::{
    collections::{BTreeMap, hash_map::DefaultHasher},
    hash::{Hash, Hasher},
};

use leasehold_domain::{JobId, verdict::SUSPECT_AFTER};
use leasehold_store::{Claimed, KindClaim};
use rusqlite::types::{FromSql, ValueRef};

use crate::{
    model::{Job, State, StepState},
    world::World,
};

/// A digest of all rows about each job.
pub type Rows = BTreeMap<i64, u64>;

/// How often what is dear is checked, in steps.
const DEAR_EVERY: u64 = 40;

/// All rows about jobs. Whether a job is waiting, ready or held can change with its lane and with time.
const ROWS: [&str; 8] = [
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

/// Each names rows that must not be.
const NOBODY: [(&str, &str); 15] = [
    ("a job stands in two states", "SELECT id FROM jobs WHERE id IN (SELECT id FROM ended_jobs)"),
    (
        "attempt numbers have a gap",
        "SELECT job_id FROM attempts GROUP BY job_id HAVING count(*) <> max(number) OR min(number) <> 1",
    ),
    (
        "a job's attempt is not its last one",
        "SELECT id FROM jobs WHERE attempt <> coalesce((SELECT max(number) FROM attempts WHERE job_id = id), 0)",
    ),
    (
        "an attempt is open that holds no lease",
        "SELECT a.job_id FROM attempts a LEFT JOIN jobs j ON j.id = a.job_id AND j.attempt = a.number AND j.state = 2
         WHERE a.ended_at IS NULL AND j.id IS NULL",
    ),
    (
        "two attempts of a job overlap",
        "SELECT b.job_id FROM attempts a JOIN attempts b ON b.job_id = a.job_id AND b.number = a.number + 1
         WHERE a.ended_at IS NULL OR b.leased_at < a.ended_at",
    ),
    (
        "what the cap counts is not the number of attempts that count",
        "SELECT id FROM jobs j WHERE attempts_used <> (
             SELECT count(*) FROM attempts a WHERE a.job_id = j.id AND a.counted AND a.replay_id IS j.replay_id)",
    ),
    (
        "a dead job has no open dead letter, or not one",
        "SELECT id FROM ended_jobs e WHERE (state = 'dead')
             <> (SELECT count(*) FROM dead_letters d WHERE d.job_id = e.id AND d.state = 'open')",
    ),
    (
        "a job that has not died has an open dead letter",
        "SELECT job_id FROM dead_letters WHERE state = 'open' AND job_id NOT IN (SELECT id FROM ended_jobs)",
    ),
    (
        "the depth is not the number of jobs",
        "SELECT kind FROM depths d WHERE depth <> (SELECT count(*) FROM jobs j WHERE j.kind = d.kind)",
    ),
    (
        "a held job has nothing that will let it go",
        "SELECT id FROM jobs h WHERE held = 1
         AND NOT EXISTS (SELECT 1 FROM jobs l WHERE l.kind = h.kind AND l.lane IS h.lane AND l.state IN (1, 2))
         AND NOT EXISTS (SELECT 1 FROM lane_cooldowns c WHERE c.kind = h.kind AND c.lane = coalesce(h.lane, ''))",
    ),
    (
        "two suspects run at once",
        "SELECT count(*) FROM jobs WHERE state = 2 AND unclean_stops >= 2 GROUP BY 1 = 1 HAVING count(*) > 1",
    ),
    (
        "a retired version runs an attempt",
        "SELECT j.id FROM jobs j JOIN handler_versions v ON v.id = j.version_id
         WHERE v.state IN ('staged', 'retired') AND j.bound_version_id IS NULL AND j.state = 2",
    ),
    (
        "a draining version has nothing to wait for",
        "SELECT id FROM handler_versions v WHERE state = 'draining'
         AND NOT EXISTS (SELECT 1 FROM jobs WHERE state = 2 AND version_id = v.id)",
    ),
    (
        "a key is kept of a job that is not",
        "SELECT job_id FROM job_keys WHERE job_id NOT IN (SELECT id FROM jobs)
             AND job_id NOT IN (SELECT id FROM ended_jobs)",
    ),
    (
        "a replay of an ended job has not ended",
        "SELECT r.id FROM replays r WHERE ended_at IS NULL
             AND r.id <> coalesce((SELECT replay_id FROM jobs WHERE id = r.job_id), 0)",
    ),
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
    fn all<T: FromSql>(&self, sql: &str) -> Vec<T> {
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
    pub fn check_nothing_was_passed_over(&self, served: &[&KindClaim], claimed: &[Claimed], max: usize) {
        for kind in served {
            let ids: Vec<_> = claimed.iter().filter(|job| job.kind == kind.kind).map(|job| job.token.job.0).collect();
            let last = ids.iter().map(|id| (self.model.jobs[id].place(), *id)).max();
            let has_room = claimed.len() < max && ids.len() < kind.max;
            for (id, job) in self.model.jobs.iter().filter(|(_, job)| job.kind == kind.kind.as_str()) {
                if !self.could_have_run(job) {
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
        // A suspect that has to wait for another holds its place in its lane.
        let waits_for_suspect =
            self.model.jobs.values().any(|other| {
                other.is_queued() && is_suspect(other) && other.kind == job.kind && other.lane == job.lane
            });
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

fn hash_value(value: ValueRef<'_>, hasher: &mut DefaultHasher) {
    match value {
        ValueRef::Null => 0_u8.hash(hasher),
        ValueRef::Integer(number) => number.hash(hasher),
        ValueRef::Real(number) => number.to_bits().hash(hasher),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => bytes.hash(hasher),
    }
}
