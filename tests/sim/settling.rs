//! The ends of attempts: the queue's own decision, its settlement, and what the model expects of both. Late ends, under
//! tokens whose lease was lost, go the same way.

use leasehold_domain::{
    Cause, Effect, ErrorClass, FencingToken, JobFacts, JobState, NewJob, Outcome, StopReason, Treatment, Verdict,
    Vocabulary,
    backoff::Jitter,
    decide,
    verdict::{Decision, ReleaseBounds},
};
use leasehold_store::{AttemptRecordText, DeadLetterText, EnqueueJob, LeasedJob, Settled, Settlement};

use crate::{
    model::{Letter, PRIORITY_STEP_MS, State},
    runner::{Attempt, store_values},
    world::World,
};

const BOUNDS: ReleaseBounds = ReleaseBounds { release_max: 2, release_delay_ms: 250 };

fn ended_as(outcome: &Outcome, verdict: &Verdict) -> &'static str {
    match (outcome, verdict) {
        (_, Verdict::Release { .. }) => "released",
        (Outcome::Done { .. }, _) => "done",
        (Outcome::Suppressed { .. }, _) => "suppressed",
        (Outcome::LeaseExpired | Outcome::Stopped(_), _) => "expired",
        (Outcome::DaemonStopped { .. } | Outcome::DaemonStoppedAtOnce, _) => "daemon_stopped",
        (Outcome::HandlerUnavailable { .. } | Outcome::ReplayTargetNotLive { .. }, _) => "not_run",
        _ => "failed",
    }
}

fn vocabulary() -> Vocabulary {
    let classes = [
        ("down", Treatment::Retry),
        ("slow", Treatment::RateLimited),
        ("gone", Treatment::Rejected),
        ("bad", Treatment::Poison),
    ];
    Vocabulary::new(classes.map(|(class, treatment)| (ErrorClass::new(class), treatment)))
}

/// A settlement and what was decided before it.
pub struct End {
    pub settlement: Settlement,
    pub decision: Decision,
}

impl World {
    /// Lets one guest end, if its open step allows it, and settles its attempt.
    pub async fn end_one(&mut self) {
        if self.running.is_empty() {
            return;
        }
        let at = self.random.index(self.running.len());
        let attempt = self.running.swap_remove(at);
        let effects = self.random_effects();
        let (facts, chosen) = self.chosen_end(&attempt);
        self.settle(&attempt.kind, &facts, &chosen, effects, false).await;
    }

    /// How a guest ends, and what is known of its job then.
    pub fn chosen_end(&mut self, attempt: &Attempt) -> (JobFacts, Outcome) {
        // A guest that ends well has no step open.
        let free = self.random_outcome();
        let chosen = match attempt.must_end_as.clone() {
            Some(outcome) => outcome,
            None if attempt.open.is_some() && matches!(free, Outcome::Done { .. } | Outcome::Suppressed { .. }) => {
                Outcome::Stopped(StopReason::Shutdown)
            }
            None => free,
        };
        let job = self.model.jobs.get(&attempt.token.job.0);
        // What the runner knows of a request to cancel may be older than the request.
        let cancel_requested = job.is_some_and(|job| job.cancel_requested) && self.random.chance(70);
        let facts = JobFacts {
            job: attempt.token.job,
            attempt: attempt.token.attempt,
            attempts_used: attempt.attempts_used,
            releases_running: attempt.releases_running,
            cancel_requested,
            unclean_stops: attempt.unclean_stops,
        };
        (facts, chosen)
    }

    /// Takes the leases that ran out.
    pub async fn reap(&mut self) {
        let now_ms = self.now_ms;
        let expired = self.surely(async |store| store.expired_leases(now_ms, 50).await).await;
        let is_expired = |state| matches!(state, State::Leased { expires_at_ms, .. } if expires_at_ms <= now_ms);
        let due = self.model.jobs.values().filter(|job| is_expired(job.state)).count();
        assert_eq!(expired.len(), due.min(50), "not the leases that ran out were found");
        for lease in expired {
            self.end_without_worker(&lease, &Outcome::LeaseExpired, true).await;
        }
    }

    /// Decides about an attempt whose worker is gone and settles it.
    pub async fn end_without_worker(&mut self, lease: &LeasedJob, outcome: &Outcome, only_if_expired: bool) {
        let facts = JobFacts {
            job: lease.token.job,
            attempt: lease.token.attempt,
            attempts_used: lease.attempts_used,
            releases_running: lease.releases_running,
            cancel_requested: lease.cancel_requested,
            unclean_stops: lease.unclean_stops,
        };
        self.settle(lease.kind.as_str(), &facts, outcome, Vec::new(), only_if_expired).await;
    }

    async fn settle(
        &mut self,
        kind: &str,
        facts: &JobFacts,
        outcome: &Outcome,
        effects: Vec<Effect>,
        only_if_expired: bool,
    ) {
        let end = self.end_of(kind, facts, outcome, effects, only_if_expired);
        let settled = self.surely(async |store| store.settle(end.settlement.clone()).await).await;
        self.note_settled(&end, settled);
    }

    /// What is decided about an attempt that ended so.
    pub fn end_of(
        &mut self,
        kind: &str,
        facts: &JobFacts,
        outcome: &Outcome,
        effects: Vec<Effect>,
        only_if_expired: bool,
    ) -> End {
        let jitter = Jitter::from_bits(self.random.bits());
        let policy = self.policy(kind).clone();
        let decision = decide(facts, outcome, &policy, &vocabulary(), BOUNDS, self.now_ms, jitter);
        let token = FencingToken { job: facts.job, attempt: facts.attempt };
        let unclean_stops = facts.unclean_stops_after(outcome);
        let settlement = Settlement {
            token,
            now_ms: self.now_ms,
            verdict: decision.verdict.clone(),
            attempt: AttemptRecordText {
                ended_as: ended_as(outcome, &decision.verdict),
                error_class: decision.class().map(|class| class.as_str().to_owned()),
                ..AttemptRecordText::default()
            },
            effects,
            dead_letter: Some(DeadLetterText {
                view: "{}".into(),
                masked_key: "key".into(),
                keep_original: policy.keep_original,
                page_after: 1,
            }),
            only_if_expired,
            priority_step_ms: PRIORITY_STEP_MS,
            unclean_stops,
        };
        End { settlement, decision }
    }

    /// Notes what an end has come to.
    pub fn note_settled(&mut self, End { settlement, decision }: &End, settled: Settled) {
        let Settlement { token, only_if_expired, unclean_stops, .. } = *settlement;
        let keep_original = settlement.dead_letter.as_ref().unwrap().keep_original;
        let id = token.job.0;
        let job = self.model.jobs.get(&id);
        let is_own = job.is_some_and(|job| job.can_be_settled_by(token.attempt.0, self.now_ms, only_if_expired));
        let Settled::Applied { ended, dead_letter } = settled else {
            assert!(!is_own, "{token} holds its lease, and its settlement was called late");
            return self.count("settle: late");
        };
        assert!(is_own, "{token} holds no lease, and its settlement was carried out");
        self.touched.insert(id);
        let cancel_requested = self.model.jobs[&id].cancel_requested;
        self.note_cooldown(id, &decision.verdict);
        let expected = match &decision.verdict {
            Verdict::Complete { .. } => Some(JobState::Done),
            Verdict::Suppress { .. } => Some(JobState::Suppressed),
            _ if cancel_requested => Some(JobState::Cancelled),
            Verdict::Cancel => Some(JobState::Cancelled),
            Verdict::Die { .. } => Some(JobState::Dead),
            Verdict::Retry { visible_at_ms, .. } => self.note_waiting(id, *visible_at_ms, false, unclean_stops),
            Verdict::Release { visible_at_ms } => self.note_waiting(id, *visible_at_ms, true, unclean_stops),
        };
        assert_eq!(ended, expected, "{token} was settled by {:?}", decision.verdict);
        assert_eq!(dead_letter.is_some(), expected == Some(JobState::Dead), "{token}");
        if let Some(state) = expected {
            self.note_end(id, state);
        }
        if let (Some(letter), Verdict::Die { cause, .. }) = (dead_letter, &decision.verdict) {
            self.note_death(id, Letter { id: letter, cause: *cause, has_original: keep_original });
        }
        if matches!(expected, Some(JobState::Done | JobState::Suppressed)) {
            self.note_effects(id, &settlement.effects);
        }
    }

    fn note_cooldown(&mut self, id: i64, verdict: &Verdict) {
        if let Verdict::Retry { cooldown_until_ms: Some(until_ms), .. }
        | Verdict::Die { cooldown_until_ms: Some(until_ms), .. } = verdict
        {
            let job = &self.model.jobs[&id];
            let lane = (job.kind.clone(), job.lane.clone().unwrap_or_default());
            let cooldown = self.model.cooldowns.entry(lane).or_insert(*until_ms);
            *cooldown = (*cooldown).max(*until_ms);
        }
    }

    fn note_waiting(&mut self, id: i64, visible_at_ms: i64, is_release: bool, unclean_stops: u32) -> Option<JobState> {
        let job = self.model.jobs.get_mut(&id).unwrap();
        job.state = State::Queued;
        job.visible_at_ms = visible_at_ms;
        job.unclean_stops = unclean_stops;
        job.attempts_used -= u32::from(is_release);
        job.releases_running = if is_release { job.releases_running + 1 } else { 0 };
        None
    }

    /// Notes that a job has ended.
    pub fn note_end(&mut self, id: i64, state: JobState) {
        let at_ms = self.now_ms;
        let job = self.model.jobs.get_mut(&id).unwrap();
        job.state = State::Ended { state, at_ms };
        if state == JobState::Cancelled {
            job.kept.clear();
        }
        self.count(match state {
            JobState::Done => "ended: done",
            JobState::Suppressed => "ended: suppressed",
            JobState::Cancelled => "ended: cancelled",
            _ => "ended: dead",
        });
    }

    fn note_death(&mut self, id: i64, letter: Letter) {
        let job = self.model.jobs.get_mut(&id).unwrap();
        job.letter = Some(letter);
        if letter.cause != Cause::ReplayRefused {
            job.died_on.extend(job.last_digest);
        }
        self.count(match letter.cause {
            Cause::Poison => "dead: poison",
            Cause::Rejected => "dead: rejected",
            Cause::Exhausted => "dead: exhausted",
            Cause::Crashed => "dead: crashed",
            Cause::InDoubt => "dead: in_doubt",
            Cause::ReplayRefused => "dead: replay_refused",
        });
    }

    /// Effects of steps and of the last attempt are real now: the values are stored, and the jobs are there, in order.
    fn note_effects(&mut self, id: i64, of_attempt: &[Effect]) {
        let mut effects = std::mem::take(&mut self.model.jobs.get_mut(&id).unwrap().kept);
        effects.extend_from_slice(of_attempt);
        let mut new = self.new_ids().into_iter();
        for effect in effects {
            store_values(&mut self.model.values, &effect);
            let Effect::Enqueue(job) = effect else {
                self.count("effect: stored");
                continue;
            };
            let key = job.key.as_ref().map(|key| (job.kind.to_string(), key.to_string()));
            if key.is_some_and(|key| self.model.keys.contains_key(&key)) {
                self.count("effect: key taken");
                continue;
            }
            let visible_at_ms = self.now_ms + job.delay_ms;
            let id = new.next().expect("a job that an ended job enqueued is not there");
            let NewJob { kind, key, lane, content_type, payload, priority, metadata, .. } = job;
            let run_at_wall_ms = None;
            let job = EnqueueJob {
                kind,
                key,
                lane,
                content_type,
                payload,
                metadata,
                visible_at_ms,
                run_at_wall_ms,
                priority,
            };
            self.note_new(id, job);
            self.count("effect: enqueued");
        }
        assert_eq!(new.next(), None, "a job came from nowhere when job {id} ended");
    }
}
