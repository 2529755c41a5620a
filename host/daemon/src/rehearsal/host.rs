//! The host of a rehearsal: steps and requests are recorded, what earlier attempts left is read from the queue, and
//! nothing is ever written there.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leasehold_domain::{Effect, JobId, Kind, NewJob, StepName};
use leasehold_sandbox::{
    Answered, Answers, AttemptHost, BeginError, Begun, CompleteError, EnqueueRefusal, OutboundRequest, StoreUnavailable,
};
use leasehold_store::{StepBegun, StoreError};

use super::{Rehearsal, answers::Script};
use crate::{config::Config, daemon::Daemon, intake};

/// The bodies and results that are shown of one rehearsal, together.
const SHOWN_MAX_BYTES: usize = 2 << 20;

/// How a step was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Found {
    Fresh,
    InDoubt,
    /// Applied before, with this result, unless too much is shown already.
    Applied(Option<Vec<u8>>),
    Conflict,
}

/// One thing that happened.
pub(super) enum Event {
    Begun { step: StepName, found: Found, idempotency_key: String },
    Completed { step: StepName, result: Option<Vec<u8>>, effects: Vec<Effect> },
    TakenBack { step: StepName },
    Request { request: OutboundRequest, answered: String },
}

/// What happened, in order.
#[derive(Default)]
pub(super) struct Recorded {
    pub(super) events: Vec<Event>,
    /// Whether the last event is a request that the run was stopped at.
    pub(super) is_unanswered: bool,
    script: Script,
    left_to_show_bytes: usize,
}

impl Recorded {
    pub(super) fn answers_left(&self) -> usize {
        self.script.len()
    }

    /// Keeps bytes to be shown, unless they are too many.
    fn shown(&mut self, bytes: Vec<u8>) -> Option<Vec<u8>> {
        self.left_to_show_bytes = self.left_to_show_bytes.checked_sub(bytes.len())?;
        Some(bytes)
    }

    /// Nothing that follows the request at which the run was stopped is the guest's own doing.
    fn push(&mut self, event: Event) {
        if !self.is_unanswered {
            self.events.push(event);
        }
    }

    fn answer(&mut self, mut request: OutboundRequest) -> Answered {
        let (answer, answered) = self.script.take(&request);
        request.body = request.body.take().and_then(|body| self.shown(body));
        self.push(Event::Request { request, answered });
        self.is_unanswered |= matches!(answer, Answered::Unanswered);
        answer
    }
}

/// The record of one rehearsal, which its host and its network's stand-in write together.
pub(super) struct Record(Mutex<Recorded>);

impl Record {
    pub(super) fn new(script: Script) -> Self {
        Self(Mutex::new(Recorded { script, left_to_show_bytes: SHOWN_MAX_BYTES, ..Recorded::default() }))
    }

    /// The record stays sound when a thread panics, since each change is one call.
    fn lock(&self) -> MutexGuard<'_, Recorded> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What happened, once the guest has ended.
    pub(super) fn take(&self) -> Recorded {
        std::mem::take(&mut self.lock())
    }

    /// Stands in the network's place.
    pub(super) fn answers(self: &Arc<Self>) -> Answers {
        let record = Arc::clone(self);
        Arc::new(move |request| record.lock().answer(request))
    }
}

/// The host of one rehearsal.
pub(super) struct RehearsalHost {
    daemon: Arc<Daemon>,
    config: Arc<Config>,
    job: JobId,
    kind: Kind,
    job_key: String,
    output_max_bytes: usize,
    record: Arc<Record>,
}

impl RehearsalHost {
    pub(super) fn new(daemon: &Arc<Daemon>, rehearsal: &Rehearsal, record: &Arc<Record>) -> Self {
        let config = Arc::clone(&rehearsal.in_force.config);
        let limits = config.handlers.get(&rehearsal.policy.handler).map(|handler| &handler.limits);
        Self {
            daemon: Arc::clone(daemon),
            job: rehearsal.found.job,
            kind: rehearsal.policy.kind.clone(),
            job_key: rehearsal.contents.key.clone(),
            output_max_bytes: limits.map_or(0, |limits| limits.output_max_bytes),
            record: Arc::clone(record),
            config,
        }
    }

    async fn look(&self, name: &StepName, fingerprint: &[u8]) -> Result<(StepBegun, String), StoreError> {
        let idempotency_key = self.daemon.store.downstream_key(self.kind.as_str(), &self.job_key, name)?;
        let found = self.daemon.store.look_at_step(self.job, name.clone(), fingerprint.to_vec()).await?;
        Ok((found, idempotency_key))
    }
}

fn unavailable(error: &StoreError) -> StoreUnavailable {
    StoreUnavailable(error.code().to_owned())
}

#[async_trait::async_trait]
impl AttemptHost for RehearsalHost {
    async fn begin_step(&self, name: &StepName, fingerprint: &[u8]) -> Result<Begun, BeginError> {
        let (begun, idempotency_key) = self.look(name, fingerprint).await.map_err(|error| {
            tracing::error!(job = %self.job, step = %name, code = error.code(), %error, "a rehearsal's step could not be looked up");
            BeginError::Unavailable
        })?;
        let key = idempotency_key.clone();
        let mut record = self.record.lock();
        let (found, answer) = match begun {
            StepBegun::Fresh => (Found::Fresh, Ok(Begun::Fresh { idempotency_key })),
            StepBegun::InDoubt => (Found::InDoubt, Ok(Begun::InDoubt { idempotency_key })),
            StepBegun::Applied { result, .. } => {
                (Found::Applied(record.shown(result.clone())), Ok(Begun::Applied { result }))
            }
            StepBegun::Conflict => (Found::Conflict, Err(BeginError::Conflict)),
            // Nobody runs a dead letter's job.
            StepBegun::InProgress | StepBegun::LeaseLost => return Err(BeginError::Unavailable),
        };
        record.push(Event::Begun { step: name.clone(), found, idempotency_key: key });
        answer
    }

    async fn complete_step(&self, name: &StepName, result: Vec<u8>, effects: Vec<Effect>) -> Result<(), CompleteError> {
        if result.len() > self.output_max_bytes {
            return Err(CompleteError::TooLarge);
        }
        let mut record = self.record.lock();
        let result = record.shown(result);
        record.push(Event::Completed { step: name.clone(), result, effects });
        Ok(())
    }

    async fn take_back_step(&self, name: &StepName) -> Result<(), CompleteError> {
        self.record.lock().push(Event::TakenBack { step: name.clone() });
        Ok(())
    }

    async fn read_value(&self, store: &str, key: &str) -> Result<Option<Vec<u8>>, StoreUnavailable> {
        self.daemon.store.read_value(self.job, store, key).await.map_err(|error| unavailable(&error))
    }

    async fn list_keys(
        &self,
        store: &str,
        cursor: Option<u64>,
    ) -> Result<(Vec<String>, Option<u64>), StoreUnavailable> {
        self.daemon.store.list_value_keys(store, cursor).await.map_err(|error| unavailable(&error))
    }

    fn check_new_job(&self, job: &NewJob) -> Result<(), EnqueueRefusal> {
        intake::check_new_job(&self.config, job)
    }
}
