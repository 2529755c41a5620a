//! What operators do: cancel, versions, caps, replays, and what retention does for them.

use leasehold_domain::{DeadLetterId, Digest, HandlerState, HandlerVersion, InDoubtPolicy, JobId, JobState, StepName};
use leasehold_store::{
    Activated, Cancelled, Discarded, PutVersion, ReplayAnswer, ReplayRequest, Resolution, Retention, StoredVersion,
    VersionRow,
};

use crate::{
    model::{Job, PRIORITY_STEP_MS, State, StepState},
    world::World,
};

impl World {
    pub async fn cancel(&mut self) {
        let ids: Vec<i64> = self.model.given.iter().copied().collect();
        if ids.is_empty() {
            return;
        }
        // Mostly one of the last, since those have not ended.
        let from = if self.random.chance(70) { ids.len().saturating_sub(15) } else { 0 };
        let id = self.random.pick(&ids[from..]);
        let now_ms = self.now_ms;
        let found = self.surely(async |store| store.cancel(JobId(id), "operator", now_ms).await).await;
        let Some(job) = self.model.jobs.get_mut(&id) else { return assert_eq!(found, Cancelled::NotFound) };
        match job.state {
            State::Queued => {
                assert_eq!(found, Cancelled::Now);
                self.note_end(id, JobState::Cancelled);
                self.count("cancelled at once");
            }
            State::Leased { .. } => {
                assert!(matches!(found, Cancelled::WhenStopped(token) if token.attempt.0 == job.attempt));
                job.cancel_requested = true;
                self.count("cancelled when stopped");
            }
            State::Ended { state, .. } => return assert_eq!(found, Cancelled::AlreadyEnded(state)),
        }
        self.touched.insert(id);
    }

    pub fn change_cap(&mut self) {
        let at = self.random.index(self.kinds.len());
        let least = if self.random.chance(20) { 1 } else { 2 };
        self.kinds[at].attempts_max = u32::try_from(self.random.between(least, 4)).unwrap();
    }

    pub async fn change_version(&mut self) {
        let handler = self.random.pick(&["mailer", "biller"]);
        match self.random.below(4) {
            0 => self.put_version(handler).await,
            1..=2 => self.activate_one(handler).await,
            _ => {
                let versions = self.versions_of(handler).await;
                let current: Vec<_> = versions.iter().filter(|row| row.current).collect();
                let retires_current = !current.is_empty() && self.random.chance(50);
                let version =
                    if retires_current { current[0].version.clone() } else { self.random.pick(&versions).version };
                self.retire(&version).await;
                let current = self.versions_of(handler).await.into_iter().any(|row| row.current);
                // Mostly there is a live version; else nothing would ever happen.
                if !current && self.random.chance(70) {
                    self.activate_latest(handler).await;
                }
            }
        }
    }

    pub async fn put_version(&mut self, handler: &str) {
        let text = format!("1.{}.0", self.next());
        let version = HandlerVersion::new(handler, &text).unwrap();
        let digest = Digest::of(format!("{handler} {text}").as_bytes());
        let stored = StoredVersion { version, digest, size_bytes: 1 };
        assert_eq!(self.put(&stored).await, PutVersion::Stored);
        assert_eq!(self.put(&stored).await, PutVersion::Same);
        let other = StoredVersion { digest: Digest::of(b"other"), ..stored };
        assert_eq!(self.put(&other).await, PutVersion::OtherBytes { stored: digest });
    }

    async fn put(&mut self, version: &StoredVersion) -> PutVersion {
        let now_ms = self.now_ms;
        self.surely(async |store| store.put_version(version.clone(), "operator", now_ms).await).await
    }

    async fn activate(&mut self, version: &HandlerVersion, keep_live: bool) -> Activated {
        let now_ms = self.now_ms;
        self.surely(async |store| store.activate_version(version, keep_live, "operator", now_ms).await).await
    }

    async fn retire(&mut self, version: &HandlerVersion) {
        let now_ms = self.now_ms;
        self.surely(async |store| store.retire_version(version, "operator", now_ms).await).await;
    }

    pub async fn versions(&mut self) -> Vec<VersionRow> {
        self.surely(async |store| store.versions().await).await
    }

    async fn versions_of(&mut self, handler: &str) -> Vec<VersionRow> {
        let versions = self.versions().await;
        versions.into_iter().filter(|row| row.version.name.as_str() == handler).collect()
    }

    async fn random_version(&mut self, handler: &str) -> VersionRow {
        let versions = self.versions_of(handler).await;
        self.random.pick(&versions)
    }

    async fn activate_one(&mut self, handler: &str) {
        let version = self.random_version(handler).await.version;
        let keep_live = self.random.chance(40);
        let before = self.versions_of(handler).await;
        let activated = self.activate(&version, keep_live).await;
        let live = before.into_iter().filter(|row| row.state == HandlerState::Live && row.version != version);
        let drained: Vec<_> = if keep_live { Vec::new() } else { live.map(|row| row.version).collect() };
        assert_eq!(activated, Activated::Current { drained });
    }

    pub async fn activate_latest(&mut self, handler: &str) {
        let version = self.versions_of(handler).await.pop().unwrap().version;
        self.activate(&version, false).await;
        let current: Vec<_> = self.versions_of(handler).await.into_iter().filter(|row| row.current).collect();
        assert!(current.len() == 1 && current[0].version == version, "{version} is not current");
    }

    pub async fn replay_or_discard(&mut self) {
        let dead: Vec<i64> = self.model.jobs.iter().filter(|(_, job)| job.is_dead()).map(|(id, _)| *id).collect();
        if dead.is_empty() {
            return;
        }
        let id = self.random.pick(&dead);
        if self.random.chance(15) {
            return self.discard(id).await;
        }
        let request = self.replay_request(id).await;
        let versions = self.versions_of(request.handler.as_str()).await;
        let answer = self.surely(async |store| store.replay(request.clone()).await).await;
        self.note_replay(id, &request, &versions, &answer);
    }

    /// A replay is bound to a version that is live beside the current one, and the current one is retired.
    pub async fn lose_current_version(&mut self) {
        let Some(id) = self.model.jobs.iter().find(|(_, job)| job.is_dead()).map(|(id, _)| *id) else { return };
        let mut request = self.replay_request(id).await;
        let handler = request.handler.clone();
        self.activate_latest(handler.as_str()).await;
        let beside = self.versions_of(handler.as_str()).await.pop().unwrap().version;
        self.put_version(handler.as_str()).await;
        let versions = self.versions_of(handler.as_str()).await;
        let current = versions.last().unwrap().version.clone();
        self.activate(&current, true).await;
        let versions = self.versions_of(handler.as_str()).await;
        request.version = Some(beside);
        let answer = self.surely(async |store| store.replay(request.clone()).await).await;
        self.note_replay(id, &request, &versions, &answer);
        self.retire(&current).await;
        self.check();
        self.claim(Some(100)).await;
        if self.random.chance(70) {
            self.check();
            self.activate_latest(handler.as_str()).await;
        }
    }

    async fn discard(&mut self, id: i64) {
        let letter = self.model.jobs[&id].letter.unwrap();
        let mut discards = Vec::new();
        for _ in 0..2 {
            let (now_ms, id) = (self.now_ms, DeadLetterId(letter.id));
            discards.push(self.surely(async |store| store.discard(id, "operator", "given up", now_ms).await).await);
        }
        assert_eq!(discards, [Discarded::Now, Discarded::NotOpen { state: "discarded".into() }]);
        let at_ms = self.now_ms;
        let job = self.model.jobs.get_mut(&id).unwrap();
        job.state = State::Ended { state: JobState::Discarded, at_ms };
        job.kept.clear();
        job.letter = None;
        self.touched.insert(id);
        self.count("discarded");
    }

    /// An operator who tells the truth about steps in doubt, if anything.
    async fn replay_request(&mut self, id: i64) -> ReplayRequest {
        let job = self.model.jobs[&id].clone();
        let policy = self.policy(&job.kind).clone();
        let resolves = self.random.chance(70);
        let mut resolutions = Vec::new();
        for step in job.open_steps().into_iter().filter(|_| resolves) {
            let was_applied = job.steps[step].applied_outside > 0;
            let said = if was_applied { Resolution::Applied(b"found".to_vec()) } else { Resolution::NotApplied };
            resolutions.push((StepName::new(step).unwrap(), said));
        }
        // Mostly one that is live, so that it has something to run on.
        let versions = self.versions_of(policy.handler.as_str()).await;
        let live: Vec<_> = versions.iter().filter(|row| row.state == HandlerState::Live).cloned().collect();
        let named = if live.is_empty() || self.random.chance(40) { &versions } else { &live };
        let named = self.random.pick(named).version;
        ReplayRequest {
            dead_letter: DeadLetterId(job.letter.unwrap().id),
            handler: policy.handler,
            version: self.random.chance(50).then_some(named),
            damaged: Vec::new(),
            actor: "operator".into(),
            reason: "again".into(),
            override_reason: self.random.chance(50).then(|| "it was downstream".into()),
            payload: self.random.chance(40).then(|| format!("corrected {}", self.next()).into_bytes()),
            resolutions,
            begin_again: policy.in_doubt == InDoubtPolicy::BeginAgain,
            bulk_replay: None,
            now_ms: self.now_ms,
            priority_step_ms: PRIORITY_STEP_MS,
        }
    }

    fn note_replay(&mut self, id: i64, request: &ReplayRequest, versions: &[VersionRow], answer: &ReplayAnswer) {
        let job = &self.model.jobs[&id];
        let target = versions.iter().find(|row| match &request.version {
            Some(version) => row.version == *version,
            None => row.current,
        });
        let target = target.filter(|row| row.state == HandlerState::Live);
        let is_open = !request.begin_again && job.open_steps().len() > request.resolutions.len();
        let letter = job.letter.unwrap();
        let excused = request.payload.is_some() || request.override_reason.is_some();
        let blames = letter.cause.blames_handler() || letter.cause == leasehold_domain::Cause::ReplayRefused;
        let expected = match target {
            None => "version_not_live",
            Some(_) if is_open => "step_unresolved",
            Some(row) if blames && job.died_on.contains(&row.digest) && !excused => "defect_not_fixed",
            Some(_) if request.payload.is_none() && !letter.has_original => "no original",
            Some(_) => "replayed",
        };
        match answer {
            ReplayAnswer::Replayed { replay, job, version, digest } => {
                let target = target.expect("a live version to replay on");
                assert_eq!(expected, "replayed");
                assert_eq!((job.0, version, digest), (id, &target.version, &target.digest));
                self.put_back(id, request, replay.0, target.id);
            }
            ReplayAnswer::Refused(refusal) => {
                assert_eq!(refusal.code(), expected);
                self.count("replay: refused");
            }
            ReplayAnswer::NoOriginal => {
                assert_eq!("no original", expected);
                self.count("replay: no original");
            }
            other => panic!("a replay was answered with {other:?} where {expected} was expected"),
        }
    }

    fn put_back(&mut self, id: i64, request: &ReplayRequest, replay: i64, version: leasehold_domain::VersionId) {
        let visible_at_ms = self.now_ms;
        let job = self.model.jobs.get_mut(&id).unwrap();
        for (name, said) in &request.resolutions {
            let (_, step) = job.steps.iter_mut().find(|(step, _)| **step == name.as_str()).unwrap();
            step.state = match said {
                Resolution::Applied(result) => StepState::Applied(result.clone()),
                Resolution::NotApplied => StepState::TakenBack,
            };
        }
        *job = Job {
            state: State::Queued,
            visible_at_ms,
            attempts_used: 0,
            releases_running: 0,
            unclean_stops: 0,
            cancel_requested: false,
            replay: Some(replay),
            bound: Some(version),
            letter: None,
            payload: request.payload.clone().unwrap_or_else(|| job.payload.clone()),
            ..job.clone()
        };
        self.touched.insert(id);
        self.count("replayed");
        if !request.resolutions.is_empty() {
            self.count("replay: resolved");
        }
    }

    pub async fn retain(&mut self) {
        let forget_ended_before_ms = self.now_ms - self.random.between(0, 86_400_000);
        let retention = Retention {
            forget_ended_before_ms,
            trim_ended_before_ms: forget_ended_before_ms + self.random.between(0, 10_000),
            ended_jobs_max: self.random.below(60),
        };
        self.surely(async |store| store.retain(retention).await).await;
        let ended: Vec<_> = self
            .model
            .jobs
            .iter()
            .filter_map(|(id, job)| match job.state {
                State::Ended { state, at_ms } if state != JobState::Dead => Some((*id, at_ms)),
                _ => None,
            })
            .collect();
        for (id, at_ms) in ended {
            self.touched.insert(id);
            if at_ms < forget_ended_before_ms {
                self.model.jobs.remove(&id);
                self.model.keys.retain(|_, (first, _)| *first != id);
                self.count("forgotten");
            }
        }
    }
}
