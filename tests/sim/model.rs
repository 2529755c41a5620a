//! What must be true of the queue, kept in memory: each job as the answers and the contract say that it stands. It never
//! looks into the database.

use std::collections::{BTreeMap, BTreeSet};

use leasehold_domain::{Cause, Digest, Effect, JobState, KindPolicy, TimestampMs, VersionId, place::place_in_line};
use leasehold_store::{StepBegun, StepEnded};

/// One step of priority.
pub const PRIORITY_STEP_MS: i64 = 60_000;

/// Everything that is known.
#[derive(Clone, Default)]
pub struct Model {
    /// All jobs that were answered as enqueued and are not forgotten.
    pub jobs: BTreeMap<i64, Job>,
    /// The first job of each (kind, key), with the payload that it was sent with.
    pub keys: BTreeMap<(String, String), (i64, Vec<u8>)>,
    /// What jobs that have succeeded have stored.
    pub values: BTreeMap<String, Vec<u8>>,
    /// Until when each (kind, lane) cools down.
    pub cooldowns: BTreeMap<(String, String), TimestampMs>,
    /// All ids that were ever given.
    pub given: BTreeSet<i64>,
}

/// One job.
#[derive(Debug, Clone)]
pub struct Job {
    pub kind: String,
    pub lane: Option<String>,
    pub payload: Vec<u8>,
    pub key: Option<String>,
    pub priority: i32,
    pub state: State,
    pub visible_at_ms: TimestampMs,
    pub attempt: u32,
    pub attempts_used: u32,
    pub releases_running: u32,
    pub unclean_stops: u32,
    pub cancel_requested: bool,
    pub steps: BTreeMap<&'static str, Step>,
    /// What its completed steps will enqueue and store.
    pub kept: Vec<Effect>,
    /// The component of its last attempt.
    pub last_digest: Option<Digest>,
    /// The components that it has died on.
    pub died_on: BTreeSet<Digest>,
    pub replay: Option<i64>,
    pub bound: Option<VersionId>,
    pub letter: Option<Letter>,
}

/// Where a job stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Waiting, ready or held: the model does not tell them apart.
    Queued,
    /// Held by its last attempt, or handed to the reaper without a new one.
    Leased { expires_at_ms: TimestampMs, deadline_ms: TimestampMs, handed_to_reaper: bool },
    /// Ended.
    Ended { state: JobState, at_ms: TimestampMs },
}

/// An open dead letter.
#[derive(Debug, Clone, Copy)]
pub struct Letter {
    pub id: i64,
    pub cause: Cause,
    pub has_original: bool,
}

/// One step of a job.
#[derive(Debug, Clone)]
pub struct Step {
    pub state: StepState,
    pub begun_by: u32,
    pub fingerprint: u8,
    /// Each run: whether it was in doubt, and how it ended.
    pub runs: BTreeMap<u32, (bool, Option<&'static str>)>,
    /// How many times the effect was applied outside.
    pub applied_outside: u32,
}

/// Where a step stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StepState {
    Begun,
    Applied(Vec<u8>),
    TakenBack,
}

impl Job {
    /// Whether an attempt holds the job's lease at a time.
    pub fn is_held_by(&self, attempt: u32, now_ms: TimestampMs) -> bool {
        matches!(self.state, State::Leased { expires_at_ms, .. } if expires_at_ms > now_ms) && self.attempt == attempt
    }

    /// Whether a settlement under an attempt's token is to be carried out.
    pub fn can_be_settled_by(&self, attempt: u32, now_ms: TimestampMs, only_if_expired: bool) -> bool {
        let State::Leased { expires_at_ms, handed_to_reaper, .. } = self.state else { return false };
        let in_time = if only_if_expired { expires_at_ms <= now_ms } else { !handed_to_reaper };
        self.attempt == attempt && in_time
    }

    pub const fn is_leased(&self) -> bool {
        matches!(self.state, State::Leased { .. })
    }

    pub fn is_dead(&self) -> bool {
        matches!(self.state, State::Ended { state: JobState::Dead, .. })
    }

    /// Whether an attempt is open: not so when a job without an attempt left was handed to the reaper.
    pub const fn has_open_attempt(&self) -> bool {
        matches!(self.state, State::Leased { handed_to_reaper: false, .. })
    }

    pub const fn is_queued(&self) -> bool {
        matches!(self.state, State::Queued)
    }

    pub fn place(&self) -> i64 {
        place_in_line(self.visible_at_ms, self.priority, PRIORITY_STEP_MS)
    }

    /// The steps that were begun and did not come to an end.
    pub fn open_steps(&self) -> Vec<&'static str> {
        self.steps.iter().filter(|(_, step)| step.state == StepState::Begun).map(|(name, _)| *name).collect()
    }

    /// What a begin must answer, noted as begun where the store must have.
    pub fn begin(
        &mut self,
        name: &'static str,
        attempt: u32,
        fingerprint: u8,
        others_running: &[u32],
        take_over: bool,
        now_ms: TimestampMs,
    ) -> StepBegun {
        if !self.is_held_by(attempt, now_ms) {
            return StepBegun::LeaseLost;
        }
        let found = match self.steps.get(name) {
            None => StepBegun::Fresh,
            Some(step) => match &step.state {
                StepState::Applied(result) => {
                    let other_fingerprint = step.fingerprint != fingerprint;
                    return StepBegun::Applied { result: result.clone(), other_fingerprint };
                }
                _ if step.begun_by == attempt => return StepBegun::Conflict,
                StepState::TakenBack => StepBegun::Fresh,
                StepState::Begun if others_running.contains(&step.begun_by) => return StepBegun::InProgress,
                StepState::Begun if step.fingerprint != fingerprint => return StepBegun::Conflict,
                StepState::Begun => StepBegun::InDoubt,
            },
        };
        if found == StepBegun::Fresh || take_over {
            let before = self.steps.remove(name);
            let (mut runs, applied_outside) =
                before.map_or_else(Default::default, |step| (step.runs, step.applied_outside));
            runs.insert(attempt, (found == StepBegun::InDoubt, None));
            let step = Step { state: StepState::Begun, begun_by: attempt, fingerprint, runs, applied_outside };
            self.steps.insert(name, step);
        }
        found
    }

    /// What a completion must answer, noted.
    pub fn complete(&mut self, name: &str, attempt: u32, result: Vec<u8>, effects: Vec<Effect>) -> StepEnded {
        let step = self.steps.get_mut(name).unwrap();
        if step.state != StepState::Begun || step.begun_by != attempt {
            step.end_run(attempt, "stale");
            let applied_elsewhere = matches!(step.state, StepState::Applied(_)) && step.begun_by != attempt;
            return StepEnded::Stale { applied_elsewhere };
        }
        step.state = StepState::Applied(result);
        step.end_run(attempt, "applied");
        if !matches!(self.state, State::Ended { state, .. } if state != JobState::Dead) {
            self.kept.extend(effects);
        }
        let stale = |(by, (_, ended_as)): (&u32, &(bool, Option<&str>))| *by != attempt && *ended_as == Some("stale");
        if step.runs.iter().any(stale) { StepEnded::AppliedTwice } else { StepEnded::Recorded }
    }

    /// What taking a step back must answer, noted.
    pub fn take_back(&mut self, name: &str, attempt: u32) -> StepEnded {
        let step = self.steps.get_mut(name).unwrap();
        let is_own = step.state == StepState::Begun && step.begun_by == attempt;
        if is_own && !step.runs[&attempt].0 {
            step.state = StepState::TakenBack;
        }
        step.end_run(attempt, "taken_back");
        if is_own { StepEnded::Recorded } else { StepEnded::Stale { applied_elsewhere: false } }
    }
}

impl Step {
    fn end_run(&mut self, attempt: u32, ended_as: &'static str) {
        self.runs.get_mut(&attempt).unwrap().1.get_or_insert(ended_as);
    }
}

impl Model {
    /// Whether a lane takes no further attempt.
    pub fn is_lane_blocked(&self, policy: &KindPolicy, lane: Option<&str>, now_ms: TimestampMs) -> bool {
        let kind = policy.kind.as_str();
        let cooling = self.cooldowns.get(&(kind.to_owned(), lane.unwrap_or("").to_owned()));
        if policy.cooldown && cooling.is_some_and(|until_ms| *until_ms > now_ms) {
            return true;
        }
        let (Some(limit), Some(_)) = (policy.lane_concurrency, lane) else { return false };
        self.leased_of(kind, lane) >= limit as usize
    }

    /// How many jobs of a kind and lane are leased.
    pub fn leased_of(&self, kind: &str, lane: Option<&str>) -> usize {
        self.jobs.values().filter(|job| job.is_leased() && job.kind == kind && job.lane.as_deref() == lane).count()
    }

    /// Notes a job that has gone in.
    pub fn add(&mut self, id: i64, job: Job) {
        assert!(self.given.insert(id), "id {id} was given twice");
        if let Some(key) = &job.key {
            self.keys.insert((job.kind.clone(), key.clone()), (id, job.payload.clone()));
        }
        self.jobs.insert(id, job);
    }
}
