//! A host that keeps its steps in memory, as the daemon keeps them in its store, and notes what it was asked.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
};

use leasehold_domain::{Effect, NewJob, StepName};
use leasehold_sandbox::{AttemptHost, BeginError, Begun, CompleteError, EnqueueRefusal, StoreUnavailable};
use tokio::sync::watch;

/// A call that changes something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    Begin(String),
    Complete(String, Vec<Effect>),
    TakeBack(String),
}

/// What the host has of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recorded {
    Nothing,
    Begun,
    Applied,
}

#[derive(Default)]
struct State {
    /// Begun, or applied with a result.
    steps: BTreeMap<String, Option<Vec<u8>>>,
    calls: Vec<Call>,
    values: BTreeMap<(String, String), Vec<u8>>,
    begin_error: Option<BeginError>,
    result_max_bytes: Option<usize>,
    panics: bool,
}

/// The host of the tests' attempts.
pub struct Host {
    state: Mutex<State>,
    /// How many calls have arrived; begins wait while `held` is set.
    arrived: watch::Sender<usize>,
    held: watch::Sender<bool>,
}

impl Host {
    pub fn new() -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), arrived: watch::Sender::new(0), held: watch::Sender::new(false) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub fn calls(&self) -> Vec<Call> {
        self.state().calls.clone()
    }

    /// A step that an earlier attempt began and did not end.
    pub fn leave_begun(&self, name: &str) {
        self.state().steps.insert(name.into(), None);
    }

    pub fn fail_begins(&self, error: BeginError) {
        self.state().begin_error = Some(error);
    }

    pub fn limit_results(&self, bytes: usize) {
        self.state().result_max_bytes = Some(bytes);
    }

    /// The host's own defect.
    pub fn panic_at_begins(&self) {
        self.state().panics = true;
    }

    pub fn put(&self, store: &str, key: &str, value: &str) {
        self.state().values.insert((store.into(), key.into()), value.into());
    }

    /// What is recorded of a step.
    pub fn step(&self, name: &str) -> Recorded {
        match self.state().steps.get(name) {
            None => Recorded::Nothing,
            Some(None) => Recorded::Begun,
            Some(Some(_)) => Recorded::Applied,
        }
    }

    /// Begins wait from here on.
    pub fn hold(&self) {
        self.held.send_replace(true);
    }

    pub fn let_go(&self) {
        self.held.send_replace(false);
    }

    /// Waits until so many calls have arrived.
    pub async fn arrived(&self, calls: usize) {
        self.arrived.subscribe().wait_for(|arrived| *arrived >= calls).await.unwrap();
    }

    fn note(&self, call: Call) {
        self.state().calls.push(call);
        self.arrived.send_modify(|arrived| *arrived += 1);
    }
}

#[async_trait::async_trait]
impl AttemptHost for Host {
    async fn begin_step(&self, name: &StepName, _fingerprint: &[u8]) -> Result<Begun, BeginError> {
        self.note(Call::Begin(name.to_string()));
        self.held.subscribe().wait_for(|held| !held).await.unwrap();
        let panics = self.state().panics;
        assert!(!panics, "the host's defect, as told");
        let mut state = self.state();
        if let Some(error) = state.begin_error {
            return Err(error);
        }
        let idempotency_key = format!("key-of-{name}");
        match state.steps.get(name.as_str()).cloned() {
            Some(Some(result)) => Ok(Begun::Applied { result }),
            Some(None) => Ok(Begun::InDoubt { idempotency_key }),
            None => {
                state.steps.insert(name.to_string(), None);
                Ok(Begun::Fresh { idempotency_key })
            }
        }
    }

    async fn complete_step(&self, name: &StepName, result: Vec<u8>, effects: Vec<Effect>) -> Result<(), CompleteError> {
        if self.state().result_max_bytes.is_some_and(|most| result.len() > most) {
            return Err(CompleteError::TooLarge);
        }
        self.state().steps.insert(name.to_string(), Some(result));
        self.note(Call::Complete(name.to_string(), effects));
        Ok(())
    }

    async fn take_back_step(&self, name: &StepName) -> Result<(), CompleteError> {
        self.state().steps.remove(name.as_str());
        self.note(Call::TakeBack(name.to_string()));
        Ok(())
    }

    async fn read_value(&self, store: &str, key: &str) -> Result<Option<Vec<u8>>, StoreUnavailable> {
        Ok(self.state().values.get(&(store.to_owned(), key.to_owned())).cloned())
    }

    async fn list_keys(&self, store: &str, _: Option<u64>) -> Result<(Vec<String>, Option<u64>), StoreUnavailable> {
        let state = self.state();
        Ok((state.values.keys().filter(|(name, _)| name == store).map(|(_, key)| key.clone()).collect(), None))
    }

    fn check_new_job(&self, job: &NewJob) -> Result<(), EnqueueRefusal> {
        if job.kind.as_str() == "unknown" { Err(EnqueueRefusal::UnknownKind) } else { Ok(()) }
    }
}
