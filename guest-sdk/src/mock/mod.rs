//! A host for native tests: it holds what a handler may import, scripts the answers of downstream, and records what the
//! handler did. It keeps steps, stored values and jobs as the real host does, so a test can run a job twice and see
//! what the second attempt finds. It opens no connection and reads no clock.

pub(crate) mod imports;
mod state;

use std::{cell::RefCell, collections::VecDeque, rc::Rc};

use serde::Serialize;

pub use self::state::{Answer, SentRequest};
use self::state::{State, StepRecord};
use crate::{
    BeginError, CompleteError, Failure, Job, Payload, Replay, Success, log::Level, outbox::NewJob, records::Note,
};

thread_local! {
    /// The host of the handler that runs on this thread, if one does.
    static CURRENT: RefCell<Option<Rc<RefCell<State>>>> = const { RefCell::new(None) };
}

/// A host for native tests. Clones share their state.
#[derive(Clone, Default)]
pub struct MockHost(Rc<RefCell<State>>);

impl MockHost {
    /// A host that grants nothing and answers nothing, at the start of 2026.
    pub fn new() -> Self {
        let host = Self::default();
        host.0.borrow_mut().now_ms = 1_767_225_600_000;
        host
    }

    fn with(self, change: impl FnOnce(&mut State)) -> Self {
        change(&mut self.0.borrow_mut());
        self
    }

    /// Sets the wall clock, which stands still but for the handler's own sleeping.
    #[must_use]
    pub fn now_ms(self, now_ms: u64) -> Self {
        self.with(|state| state.now_ms = now_ms)
    }

    /// Grants a setting or a secret.
    #[must_use]
    pub fn setting(self, name: &str, value: &str) -> Self {
        self.with(|state| {
            state.settings.insert(name.into(), value.into());
        })
    }

    /// Grants a key-value store.
    #[must_use]
    pub fn store(self, name: &str) -> Self {
        self.with(|state| {
            state.stores.entry(name.into()).or_default();
        })
    }

    /// Puts a value into a key-value store, and grants the store.
    #[must_use]
    pub fn stored_value(self, store: &str, key: &str, value: &[u8]) -> Self {
        self.with(|state| {
            state.stores.entry(store.into()).or_default().insert(key.into(), value.into());
        })
    }

    /// Grants a key-value store for reading alone.
    #[must_use]
    pub fn read_only_store(self, name: &str) -> Self {
        self.store(name).with(|state| {
            state.read_only_stores.insert(name.into());
        })
    }

    /// Grants notes on jobs of a kind.
    #[must_use]
    pub fn annotates(self, kind: &str) -> Self {
        self.with(|state| {
            state.kinds_to_annotate.insert(kind.into());
        })
    }

    /// Lets downstream give this answer to the next request that has none yet. A request without an answer fails the test.
    #[must_use]
    pub fn answer(self, answer: Answer) -> Self {
        self.with(|state| state.answers.push_back(answer))
    }

    /// Lets the step be one that an earlier attempt has applied with this result.
    ///
    /// # Panics
    /// When the result can't be written as JSON.
    #[must_use]
    pub fn applied_step(self, name: &str, result: &impl Serialize) -> Self {
        let result = serde_json::to_vec(result).expect("a step's result must serialise");
        self.with(|state| {
            state.steps.insert(name.into(), StepRecord::Applied { result });
        })
    }

    /// Lets the step be one that an earlier attempt has left in doubt.
    #[must_use]
    pub fn step_in_doubt(self, name: &str) -> Self {
        self.with(|state| {
            state.steps.insert(name.into(), StepRecord::InDoubt { fingerprint: None });
        })
    }

    /// Lets the next step not be begun.
    #[must_use]
    pub fn begin_error(self, error: BeginError) -> Self {
        self.with(|state| state.begin_error = Some(error))
    }

    /// Lets the next step's result not be stored.
    #[must_use]
    pub fn complete_error(self, error: CompleteError) -> Self {
        self.with(|state| state.complete_error = Some(error))
    }

    /// Runs one attempt of a handler. What it stored and enqueued becomes real if it succeeds, as with the real host.
    ///
    /// # Panics
    /// When the handler does, when it sends a request for which there is no answer, and inside another handler's run.
    pub fn run<T: Payload>(
        &self,
        handle: impl FnOnce(Job<T>) -> Result<Success, Failure>,
        job: MockJob,
    ) -> Result<Success, Failure> {
        self.0.borrow_mut().begin_attempt();
        let outer = CURRENT.replace(Some(Rc::clone(&self.0)));
        assert!(outer.is_none(), "a handler runs inside another one's test");
        let _leave = Leave;
        let outcome = job.0.parsed().and_then(handle);
        self.0.borrow_mut().end_attempt(outcome.is_ok());
        outcome
    }

    /// The requests that left, in order.
    pub fn requests(&self) -> Vec<SentRequest> {
        self.0.borrow().requests.clone()
    }

    /// The value in a store, as the world sees it after the attempts so far.
    pub fn value(&self, store: &str, key: &str) -> Option<Vec<u8>> {
        self.0.borrow().stores.get(store)?.get(key).cloned()
    }

    /// The jobs that were enqueued by attempts that succeeded.
    pub fn enqueued(&self) -> Vec<NewJob> {
        self.0.borrow().enqueued.clone()
    }

    /// The notes that were made by attempts that succeeded.
    pub fn notes(&self) -> Vec<Note> {
        self.0.borrow().notes.clone()
    }

    /// What was logged, in order.
    pub fn logs(&self) -> Vec<(Level, String)> {
        self.0.borrow().logs.clone()
    }

    /// Whether the step counts as applied.
    pub fn is_applied(&self, step: &str) -> bool {
        matches!(self.0.borrow().steps.get(step), Some(StepRecord::Applied { .. }))
    }

    /// Whether the step is in doubt.
    pub fn is_in_doubt(&self, step: &str) -> bool {
        matches!(self.0.borrow().steps.get(step), Some(StepRecord::InDoubt { .. }))
    }

    /// The answers that no request has taken yet.
    pub fn answers_left(&self) -> usize {
        self.0.borrow().answers.len()
    }
}

/// Takes the host away from the thread when the handler returns, and when it panics.
struct Leave;

impl Drop for Leave {
    fn drop(&mut self) {
        CURRENT.set(None);
    }
}

/// Uses the host of this thread.
fn with_state<R>(call: impl FnOnce(&mut State) -> R) -> R {
    CURRENT.with_borrow(|current| {
        let state = current.as_ref().expect("there is no host here: run the handler with mock::MockHost::run");
        call(&mut state.borrow_mut())
    })
}

/// A job for a test.
pub struct MockJob(Job<Vec<u8>>);

impl MockJob {
    /// A job with these bytes as its payload, at its first of five attempts.
    pub fn raw(payload: impl Into<Vec<u8>>) -> Self {
        Self(Job {
            id: 1,
            kind: "mock".into(),
            key: "mock-key".into(),
            lane: None,
            attempt: 1,
            attempts_used: 1,
            attempts_max: 5,
            enqueued_at_ms: 1_767_225_600_000,
            deadline_ms: 1_767_225_630_000,
            content_type: "application/json".into(),
            payload: payload.into(),
            metadata: Vec::new(),
            replay: None,
        })
    }

    /// A job with this value as its JSON payload.
    ///
    /// # Panics
    /// When the value can't be written as JSON.
    pub fn json(payload: &impl Serialize) -> Self {
        Self::raw(serde_json::to_vec(payload).expect("a test's payload must serialise"))
    }

    /// Sets the attempt's number.
    #[must_use]
    pub fn attempt(mut self, attempt: u32) -> Self {
        self.0.attempt = attempt;
        self.0.attempts_used = attempt;
        self
    }

    /// Makes the attempt one of a replay.
    #[must_use]
    pub fn replay(mut self, replay: Replay) -> Self {
        self.0.replay = Some(replay);
        self
    }
}

/// The answers that are scripted for requests to come.
type Answers = VecDeque<Answer>;
