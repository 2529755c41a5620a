//! One attempt's host: what a guest does under the sandbox becomes durable in the queue through here. It never decides
//! anything about the job.

use std::{sync::Arc, time::Duration};

use leasehold_domain::{Effect, FencingToken, InDoubtPolicy, KindPolicy, NewJob, StepName};
use leasehold_sandbox::{AttemptHost, BeginError, Begun, CompleteError, EnqueueRefusal, StoreUnavailable};
use leasehold_store::{BeginStep, Contents, StepBegun, StepEnded, StoreError};

use crate::{
    daemon::{Daemon, InForce},
    intake, metrics,
    redact::redact_notes,
    settlement::{WRITE_BACKOFF, draw_jitter},
};

/// How many times a step's result is tried to be written again: for up to a minute.
const COMPLETE_RETRIES: u32 = 12;

/// The host of one attempt.
pub(crate) struct StoreHost {
    pub(crate) daemon: Arc<Daemon>,
    pub(crate) in_force: Arc<InForce>,
    pub(crate) token: FencingToken,
    pub(crate) policy: Arc<KindPolicy>,
    pub(crate) contents: Arc<Contents>,
    pub(crate) output_max_bytes: usize,
}

#[async_trait::async_trait]
impl AttemptHost for StoreHost {
    async fn begin_step(&self, name: &StepName, fingerprint: &[u8]) -> Result<Begun, BeginError> {
        let begin = BeginStep {
            token: self.token,
            name: name.clone(),
            fingerprint: fingerprint.to_vec(),
            others_running: self.daemon.running.others_of(self.token),
            take_over: self.policy.in_doubt == InDoubtPolicy::BeginAgain,
            now_ms: self.daemon.now_ms(),
        };
        let idempotency_key = self
            .daemon
            .store
            .downstream_key(self.policy.kind.as_str(), &self.contents.key, name)
            .map_err(|error| self.unavailable("begun", name, &error, BeginError::Unavailable))?;
        let found = self.daemon.store.begin_step(begin).await;
        match found.map_err(|error| self.unavailable("begun", name, &error, BeginError::Unavailable))? {
            StepBegun::Fresh => Ok(Begun::Fresh { idempotency_key }),
            StepBegun::InDoubt => Ok(Begun::InDoubt { idempotency_key }),
            StepBegun::Applied { result, other_fingerprint } => {
                metrics::duplicate_prevented("step");
                if other_fingerprint {
                    metrics::other_fingerprint(self.policy.kind.as_str());
                    tracing::warn!(token = %self.token, step = %name, "an applied step was begun again with another fingerprint");
                }
                Ok(Begun::Applied { result })
            }
            StepBegun::InProgress => Err(BeginError::InProgress),
            StepBegun::LeaseLost => Err(BeginError::LeaseLost),
            StepBegun::Conflict => Err(BeginError::Conflict),
        }
    }

    async fn complete_step(&self, name: &StepName, result: Vec<u8>, effects: Vec<Effect>) -> Result<(), CompleteError> {
        if result.len() > self.output_max_bytes {
            return Err(CompleteError::TooLarge);
        }
        let effects = redact_notes(&self.in_force, &self.policy, Some(&self.contents), effects).await;
        let mut failures = 0;
        let ended = loop {
            let now_ms = self.daemon.now_ms();
            let (step, result, effects) = (name.clone(), result.clone(), effects.clone());
            let ended = self.daemon.store.complete_step(self.token, step, result, effects, now_ms).await;
            match ended {
                // The effect stands and its result is in hand: giving up at once would leave it in doubt.
                Err(error) if failures < COMPLETE_RETRIES && !error.is_final() => {
                    failures += 1;
                    tracing::warn!(token = %self.token, step = %name, code = error.code(), failures, "a step's result could not be written; it is tried again");
                    let delay_ms = WRITE_BACKOFF.delay_ms(failures, draw_jitter());
                    tokio::time::sleep(Duration::from_millis(u64::try_from(delay_ms).unwrap_or(0))).await;
                }
                ended => break ended,
            }
        };
        self.ended(name, ended)
    }

    async fn take_back_step(&self, name: &StepName) -> Result<(), CompleteError> {
        let ended = self.daemon.store.take_back_step(self.token, name.clone()).await;
        self.ended(name, ended)
    }

    async fn read_value(&self, store: &str, key: &str) -> Result<Option<Vec<u8>>, StoreUnavailable> {
        self.daemon
            .store
            .read_value(self.token.job, store, key)
            .await
            .map_err(|error| StoreUnavailable(error.code().to_owned()))
    }

    async fn list_keys(
        &self,
        store: &str,
        cursor: Option<u64>,
    ) -> Result<(Vec<String>, Option<u64>), StoreUnavailable> {
        self.daemon
            .store
            .list_value_keys(store, cursor)
            .await
            .map_err(|error| StoreUnavailable(error.code().to_owned()))
    }

    fn check_new_job(&self, job: &NewJob) -> Result<(), EnqueueRefusal> {
        intake::check_new_job(&self.in_force.config, job)
    }
}

impl StoreHost {
    fn ended(&self, name: &StepName, ended: Result<StepEnded, StoreError>) -> Result<(), CompleteError> {
        match ended.map_err(|error| self.unavailable("ended", name, &error, CompleteError::Unavailable))? {
            StepEnded::Recorded => Ok(()),
            StepEnded::AppliedTwice => {
                self.applied_twice(name);
                Ok(())
            }
            StepEnded::Stale { applied_elsewhere } => {
                metrics::stale();
                if applied_elsewhere {
                    self.applied_twice(name);
                }
                Err(CompleteError::Stale)
            }
        }
    }

    fn applied_twice(&self, name: &StepName) {
        metrics::duplicate_applied();
        tracing::error!(token = %self.token, step = %name, "a step's effect was run by two attempts");
    }

    fn unavailable<E>(&self, what: &str, name: &StepName, error: &StoreError, answer: E) -> E {
        tracing::error!(token = %self.token, step = %name, code = error.code(), %error, "a step could not be {what}");
        answer
    }
}
