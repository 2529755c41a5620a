//! `leasehold:job/steps`: named side effects, each begun durably before its effect. What is open, sent and kept is the
//! ledger's; what is durable is the host's.

use std::sync::Arc;

use leasehold_domain::{InDoubtPolicy, Outcome, StepName, StopReason};
use wasmtime::component::Resource;

use crate::{
    BeginError, Begun, CompleteError,
    attempt::{Attempt, HostGone},
    bindings::leasehold::job::steps::{
        BeginError as WitBeginError, Begun as WitBegun, CompleteError as WitCompleteError, Host, HostStep,
    },
    ledger::TakenBack,
    state::GuestState,
    stop::Ended,
};

/// What stands behind a guest's `step`.
#[derive(Debug)]
pub struct StepHandle {
    id: u64,
    idempotency_key: String,
}

/// A begin's answer once the ledger knows of it.
enum Opened {
    Step { handle: StepHandle, name: StepName, was_in_doubt: bool },
    Applied(Vec<u8>),
}

impl Host for GuestState {
    async fn begin(&mut self, name: String, fingerprint: Vec<u8>) -> wasmtime::Result<Result<WitBegun, WitBeginError>> {
        self.attempt.count_call()?;
        self.attempt.count_kept(fingerprint.len())?;
        let Ok(name) = StepName::new(name) else { return Ok(Err(WitBeginError::InvalidName)) };
        if !self.attempt.ledger().reserve(&name) {
            return Ok(Err(WitBeginError::Conflict));
        }
        match begin_durably(self.attempt.clone(), name.clone(), fingerprint).await? {
            Ok(Opened::Applied(result)) => Ok(Ok(WitBegun::Applied(result))),
            Ok(Opened::Step { handle, name, was_in_doubt }) => Ok(Ok(self.hand_out(handle, name, was_in_doubt)?)),
            Err(error) => self.begin_refused(name, error),
        }
    }
}

/// The ledger learns of the step in the same task that began it, so that a step whose guest was stopped meanwhile is
/// known and can be taken back.
async fn begin_durably(
    attempt: Arc<Attempt>,
    name: StepName,
    fingerprint: Vec<u8>,
) -> Result<Result<Opened, BeginError>, HostGone> {
    let beginning = attempt.clone();
    let begin = async move {
        let begun = beginning.host.begin_step(&name, &fingerprint).await;
        let mut ledger = beginning.ledger();
        let (idempotency_key, was_in_doubt) = match begun {
            Ok(Begun::Fresh { idempotency_key }) => (idempotency_key, false),
            Ok(Begun::InDoubt { idempotency_key }) => (idempotency_key, true),
            Ok(Begun::Applied { result }) => {
                ledger.counts.answered_from_store += 1;
                return Ok(Opened::Applied(result));
            }
            Err(error) => {
                ledger.release(&name);
                return Err(error);
            }
        };
        let id = ledger.opened(name.clone(), idempotency_key.clone(), was_in_doubt);
        Ok(Opened::Step { handle: StepHandle { id, idempotency_key }, name, was_in_doubt })
    };
    attempt.durably(begin).await
}

impl GuestState {
    fn hand_out(&mut self, handle: StepHandle, name: StepName, was_in_doubt: bool) -> wasmtime::Result<WitBegun> {
        // The attempt may have been stopped while the record was written; its effect must not be begun any more.
        self.attempt.check_running()?;
        if was_in_doubt && self.attempt.in_doubt == InDoubtPolicy::DeadLetter {
            return Err(self.attempt.end(Outcome::StepInDoubt { step: name }).into());
        }
        let resource = self.table.push(handle)?;
        Ok(if was_in_doubt { WitBegun::InDoubt(resource) } else { WitBegun::Fresh(resource) })
    }

    fn begin_refused(&self, name: StepName, error: BeginError) -> wasmtime::Result<Result<WitBegun, WitBeginError>> {
        match error {
            BeginError::InProgress => {
                self.attempt.ledger().in_progress = Some(name);
                Ok(Err(WitBeginError::InProgress))
            }
            BeginError::LeaseLost => {
                let ended = Ended::Stopped(StopReason::LeaseLost);
                self.attempt.stop.end(ended.clone());
                Err(ended.into())
            }
            BeginError::Conflict => Ok(Err(WitBeginError::Conflict)),
            BeginError::Unavailable => Ok(Err(WitBeginError::Unavailable)),
        }
    }
}

impl HostStep for GuestState {
    async fn idempotency_key(&mut self, step: Resource<StepHandle>) -> wasmtime::Result<String> {
        Ok(self.table.get(&step)?.idempotency_key.clone())
    }

    /// It is allowed to a guest that is being stopped: the effect has been applied, and that should be known.
    async fn complete(
        &mut self,
        step: Resource<StepHandle>,
        result: Vec<u8>,
    ) -> wasmtime::Result<Result<(), WitCompleteError>> {
        let id = self.table.get(&step)?.id;
        let Some((name, effects)) = self.attempt.ledger().start_completing(id) else {
            return Ok(Err(WitCompleteError::Stale));
        };
        let attempt = self.attempt.clone();
        let done = self.attempt.durably(async move {
            let done = attempt.host.complete_step(&name, result, effects).await;
            attempt.ledger().completed(id, done);
            done
        });
        Ok(done.await?.map_err(error_of))
    }

    async fn take_back(&mut self, step: Resource<StepHandle>) -> wasmtime::Result<Result<(), WitCompleteError>> {
        let id = self.table.get(&step)?.id;
        let taken_back = self.attempt.ledger().take_back(id);
        let name = match taken_back {
            TakenBack::NotOpen => return Ok(Err(WitCompleteError::Stale)),
            TakenBack::StillInDoubt => return Ok(Ok(())),
            TakenBack::ByHost(name) => name,
        };
        let attempt = self.attempt.clone();
        let done = self.attempt.durably(async move {
            let done = attempt.host.take_back_step(&name).await;
            let counts = &mut attempt.ledger().counts;
            match done {
                Ok(()) => counts.taken_back += 1,
                Err(CompleteError::Stale) => counts.stale += 1,
                Err(_) => counts.left_in_doubt += 1,
            }
            done
        });
        Ok(done.await?.map_err(error_of))
    }

    async fn drop(&mut self, step: Resource<StepHandle>) -> wasmtime::Result<()> {
        let handle = self.table.delete(step)?;
        let Some(name) = self.attempt.ledger().let_go(handle.id) else { return Ok(()) };
        let attempt = self.attempt.clone();
        self.attempt.durably(async move { attempt.take_back(&name).await }).await?;
        Ok(())
    }
}

fn error_of(error: CompleteError) -> WitCompleteError {
    match error {
        CompleteError::Stale => WitCompleteError::Stale,
        CompleteError::TooLarge => WitCompleteError::TooLarge,
        CompleteError::Unavailable => WitCompleteError::Unavailable,
    }
}
