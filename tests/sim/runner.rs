//! Attempts and what their guests do, in place of guests: they begin steps, complete them, take them back, or are gone. The
//! effect of a step is applied outside as soon as it was begun, or never.

use std::collections::BTreeMap;

use leasehold_domain::{
    AttemptNumber, Effect, FencingToken, InDoubtPolicy, JobKey, Kind, NewJob, Outcome, Problem, Said, StepName,
    StopReason,
};
use leasehold_store::{BeginStep, Claimed, StepBegun, StepEnded};

use crate::{model::State, world::World};

const STEPS: [&str; 2] = ["charge", "notify"];

/// An attempt whose guest is in memory.
pub struct Attempt {
    pub token: FencingToken,
    pub kind: String,
    pub attempts_used: u32,
    pub releases_running: u32,
    pub unclean_stops: u32,
    /// The open step, and whether its effect was applied outside.
    pub open: Option<(&'static str, bool)>,
    /// How it has to end.
    pub must_end_as: Option<Outcome>,
}

impl Attempt {
    pub fn of(claimed: &Claimed) -> Self {
        let is_refused = claimed.run_on.bound && !claimed.run_on.live;
        let refused = || Outcome::ReplayTargetNotLive { message: "not live".into() };
        Self {
            token: claimed.token,
            kind: claimed.kind.to_string(),
            attempts_used: claimed.attempts_used,
            releases_running: claimed.releases_running,
            unclean_stops: claimed.unclean_stops,
            open: None,
            must_end_as: is_refused.then(refused),
        }
    }
}

impl World {
    /// Lets one guest do something.
    pub async fn act(&mut self) {
        if self.running.is_empty() {
            return;
        }
        let at = self.one_running();
        self.act_of(at, None).await;
    }

    /// Lets a guest go on with its open step, or begin one.
    async fn act_of(&mut self, at: usize, step: Option<&'static str>) {
        match self.running[at].open {
            _ if self.running[at].must_end_as.is_some() => {}
            None => {
                let step = step.unwrap_or_else(|| self.random.pick(&STEPS));
                self.begin(at, step).await;
            }
            Some((step, true)) => self.complete(at, step).await,
            Some((step, false)) => self.take_back(at, step).await,
        }
    }

    /// An attempt loses its lease with a step open, and both it and the next one go on with that step.
    pub async fn overlap(&mut self) {
        let is_open = |attempt: &&Attempt| attempt.open.is_some();
        let Some(Attempt { token, open: Some((step, _)), .. }) = self.running.iter().rfind(is_open) else { return };
        let (job, step) = (token.job, *step);
        let state = self.model.jobs.get(&job.0).map(|job| job.state);
        let Some(State::Leased { expires_at_ms, .. }) = state else { return };
        self.now_ms = self.now_ms.max(expires_at_ms);
        self.reap().await;
        self.check();
        self.claim(Some(100)).await;
        for _ in 0..self.random.between(2, 6) {
            self.check();
            let of_job = (0..self.running.len()).filter(|at| self.running[*at].token.job == job);
            let of_job: Vec<_> = of_job.collect();
            if !of_job.is_empty() {
                let at = self.random.pick(&of_job);
                self.act_of(at, Some(step)).await;
            }
        }
    }

    /// One of the attempts in memory, rather one that overlaps with another of its job.
    fn one_running(&mut self) -> usize {
        let job = |at: usize| self.running[at].token.job;
        let overlaps = |at: &usize| (0..self.running.len()).any(|other| other != *at && job(other) == job(*at));
        let overlapping: Vec<_> = (0..self.running.len()).filter(overlaps).collect();
        if overlapping.is_empty() || self.random.chance(50) {
            return self.random.index(self.running.len());
        }
        self.random.pick(&overlapping)
    }

    /// A guest or its whole process is gone without a word.
    pub fn runner_dies(&mut self) {
        if !self.running.is_empty() {
            let at = self.random.index(self.running.len());
            self.running.swap_remove(at);
        }
    }

    async fn begin(&mut self, at: usize, step: &'static str) {
        let token = self.running[at].token;
        let take_over = self.policy(&self.running[at].kind).in_doubt == InDoubtPolicy::BeginAgain;
        let fingerprint = u8::from(self.random.chance(4));
        // Sometimes the daemon knows nothing of another guest: the fence of the step alone has to hold then.
        let knows = self.random.chance(45);
        let others = self.running.iter().map(|other| other.token).filter(|other| knows && *other != token);
        let others_running: Vec<_> = others.filter(|other| other.job == token.job).map(|other| other.attempt).collect();
        let begin = BeginStep {
            token,
            name: StepName::new(step).unwrap(),
            fingerprint: vec![fingerprint],
            others_running: others_running.clone(),
            take_over,
            now_ms: self.now_ms,
        };
        let found = self.surely(async |store| store.begin_step(begin.clone()).await).await;
        let others: Vec<u32> = others_running.iter().map(|AttemptNumber(number)| *number).collect();
        let expected = self.model.jobs.get_mut(&token.job.0).map_or(StepBegun::LeaseLost, |job| {
            job.begin(step, token.attempt.0, fingerprint, &others, take_over, self.now_ms)
        });
        assert_eq!(found, expected, "{token} began step {step}");
        self.touched.insert(token.job.0);
        self.go_on_with(at, step, &found, take_over);
    }

    fn go_on_with(&mut self, at: usize, step: &'static str, found: &StepBegun, take_over: bool) {
        let id = self.running[at].token.job.0;
        let runs = |world: &Self| world.model.jobs[&id].steps[step].applied_outside;
        match found {
            StepBegun::Fresh => {
                assert_eq!(runs(self), 0, "step {step} of job {id} is fresh, and its effect was applied before");
                self.count("begin: fresh");
                self.apply_outside(at, step);
            }
            StepBegun::InDoubt if take_over => {
                self.count("begin: in doubt");
                self.apply_outside(at, step);
            }
            StepBegun::InDoubt => {
                self.count("begin: in doubt");
                self.running[at].must_end_as = Some(Outcome::StepInDoubt { step: StepName::new(step).unwrap() });
            }
            StepBegun::Applied { .. } => {
                assert!(runs(self) > 0, "step {step} of job {id} is called applied, and its effect never was");
                self.count("begin: applied");
            }
            StepBegun::InProgress => {
                self.count("begin: in progress");
                self.running[at].must_end_as = Some(Outcome::StepInProgress { step: StepName::new(step).unwrap() });
            }
            StepBegun::LeaseLost => {
                self.count("begin: lease lost");
                if self.random.chance(50) {
                    self.running[at].must_end_as = Some(Outcome::Stopped(StopReason::LeaseLost));
                }
            }
            StepBegun::Conflict => {
                self.count("begin: conflict");
                let problem = Problem::new("step.conflict", "another effect under the same name");
                self.running[at].must_end_as = Some(Outcome::Failed { said: Said::Poison, problem });
            }
        }
    }

    fn apply_outside(&mut self, at: usize, step: &'static str) {
        let applies = self.random.chance(75);
        self.running[at].open = Some((step, applies));
        let job = self.model.jobs.get_mut(&self.running[at].token.job.0).unwrap();
        job.steps.get_mut(step).unwrap().applied_outside += u32::from(applies);
    }

    async fn complete(&mut self, at: usize, step: &'static str) {
        let token = self.running[at].token;
        self.running[at].open = None;
        let result = format!("{token} {step}").into_bytes();
        let effects = self.random_effects();
        let name = StepName::new(step).unwrap();
        let now_ms = self.now_ms;
        let found = self
            .surely(async |store| {
                store.complete_step(token, name.clone(), result.clone(), effects.clone(), now_ms).await
            })
            .await;
        let Some(job) = self.model.jobs.get_mut(&token.job.0) else {
            assert_eq!(found, StepEnded::Stale { applied_elsewhere: false }, "{token} of a forgotten job");
            return;
        };
        assert_eq!(found, job.complete(step, token.attempt.0, result, effects), "{token} completed step {step}");
        self.touched.insert(token.job.0);
        self.count(match found {
            StepEnded::Recorded => "complete: recorded",
            StepEnded::AppliedTwice => "complete: applied twice",
            StepEnded::Stale { .. } => "complete: stale",
        });
    }

    async fn take_back(&mut self, at: usize, step: &'static str) {
        let token = self.running[at].token;
        self.running[at].open = None;
        let name = StepName::new(step).unwrap();
        let found = self.surely(async |store| store.take_back_step(token, name.clone()).await).await;
        let Some(job) = self.model.jobs.get_mut(&token.job.0) else {
            assert_eq!(found, StepEnded::Stale { applied_elsewhere: false }, "{token} of a forgotten job");
            return;
        };
        assert_eq!(found, job.take_back(step, token.attempt.0), "{token} took step {step} back");
        self.touched.insert(token.job.0);
        self.count("take back");
    }

    pub fn random_effects(&mut self) -> Vec<Effect> {
        (0..self.random.below(3)).map(|_| self.random_effect()).collect()
    }

    fn random_effect(&mut self) -> Effect {
        // New jobs make new jobs only while the queue is fed anyway; else a drain would never end.
        if !self.all_is_well && self.random.chance(30) {
            let payload = self.next();
            let kind = self.random.pick(&["mail", "charge", "report"]);
            return Effect::Enqueue(NewJob {
                kind: Kind::new(kind).unwrap(),
                key: self.random.chance(50).then(|| JobKey::new(self.random.pick(&["a", "x", "y", "z"])).unwrap()),
                lane: None,
                content_type: "text/plain".into(),
                payload: format!("payload {payload}").into_bytes(),
                delay_ms: self.random.between(0, 500),
                priority: 0,
                metadata: Vec::new(),
            });
        }
        let (store, key) = ("state".to_owned(), self.random.pick(&["p", "q", "r"]).to_owned());
        if self.random.chance(20) {
            return Effect::Delete { store, key };
        }
        Effect::Set { store, key, value: self.next().to_string().into_bytes() }
    }

    /// How a guest ends that is free to choose.
    pub fn random_outcome(&mut self) -> Outcome {
        let failed = |said, class: &str| Outcome::Failed { said, problem: Problem::new(class, "it failed") };
        match self.random.below(if self.all_is_well { 5 } else { 20 }) {
            0..=4 => Outcome::Done { output: self.random.chance(50).then(|| b"output".to_vec()) },
            5 => Outcome::Suppressed { reason: "nothing to do".into() },
            6..=8 => failed(Said::Retry, "down"),
            9..=10 => {
                let retry_after_ms = self.random.chance(60).then(|| self.random.between(0, 20_000));
                failed(Said::RateLimited { retry_after_ms }, "slow")
            }
            11 => failed(Said::Rejected, "gone"),
            12 => failed(Said::Poison, "bad"),
            13 => failed(Said::Poison, "down"),
            14..=15 => Outcome::Broke { problem: Problem::new("handler.trap", "unreachable") },
            16 => Outcome::DownstreamTimeout { problem: Problem::new("downstream.timeout", "no answer") },
            17 => Outcome::HandlerUnavailable { message: "it does not load".into() },
            18 => Outcome::Stopped(StopReason::LeaseLost),
            _ => Outcome::Stopped(StopReason::Shutdown),
        }
    }
}

/// What happened to values: the last write of each key.
pub fn store_values(values: &mut BTreeMap<String, Vec<u8>>, effect: &Effect) {
    match effect {
        Effect::Set { key, value, .. } => drop(values.insert(key.clone(), value.clone())),
        Effect::Delete { key, .. } => drop(values.remove(key)),
        Effect::Enqueue(_) | Effect::Annotate(_) => {}
    }
}
