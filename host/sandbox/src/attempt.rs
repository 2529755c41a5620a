//! What everything that serves one attempt shares: its host, grants, limits, log, books and stop switch. It makes sure
//! that a call to the host, once made, runs to its end, whatever happens to the guest.

use std::{
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::AtomicBool},
    time::Instant,
};

use leasehold_domain::{
    InDoubtPolicy, Outcome, Problem,
    grants::{AttemptLimits, Grants},
};
use tokio::{sync::oneshot, task::JoinHandle};

use crate::{
    Answers, AttemptHost,
    job_log::JobLog,
    ledger::Ledger,
    stop::{Ended, StopSwitch},
};

/// The host did not answer, since its task panicked or its runtime is going down.
#[derive(Debug, thiserror::Error)]
#[error("the host did not answer")]
pub(crate) struct HostGone;

/// One attempt.
pub(crate) struct Attempt {
    pub(crate) host: Arc<dyn AttemptHost>,
    pub(crate) grants: Arc<Grants>,
    pub(crate) limits: AttemptLimits,
    pub(crate) in_doubt: InDoubtPolicy,
    pub(crate) deadline: Instant,
    /// Who answers requests in the network's place, if somebody does.
    pub(crate) answers: Option<Answers>,
    pub(crate) stop: Arc<StopSwitch>,
    pub(crate) log: Arc<JobLog>,
    /// Set while the guest gives way to others in the middle of its own code.
    pub(crate) yielding: AtomicBool,
    ledger: Mutex<Ledger>,
    pending: Mutex<Option<JoinHandle<()>>>,
}

impl Attempt {
    pub(crate) fn new(
        host: Arc<dyn AttemptHost>,
        grants: Arc<Grants>,
        limits: &AttemptLimits,
        in_doubt: InDoubtPolicy,
        deadline: Instant,
        answers: Option<Answers>,
        stop: Arc<StopSwitch>,
    ) -> Self {
        Self {
            host,
            grants,
            limits: limits.clone(),
            in_doubt,
            deadline,
            answers,
            stop,
            log: Arc::new(JobLog::new(limits.log_lines_max, limits.log_max_bytes)),
            yielding: AtomicBool::new(false),
            ledger: Mutex::default(),
            pending: Mutex::default(),
        }
    }

    /// The books. They stay sound when a thread panics, since each change is one call.
    pub(crate) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the attempt with an outcome; the error is the trap that stops the guest.
    pub(crate) fn end(&self, outcome: Outcome) -> Ended {
        let ended = Ended::ByGuest(Box::new(outcome));
        self.stop.end(ended.clone());
        self.stop.ended().cloned().unwrap_or(ended)
    }

    /// Nothing further is begun or kept for an attempt that has ended.
    pub(crate) fn check_running(&self) -> Result<(), Ended> {
        self.stop.ended().map_or(Ok(()), |ended| Err(ended.clone()))
    }

    /// Counts a call that keeps or sends something.
    pub(crate) fn count_call(&self) -> Result<(), Ended> {
        self.check_running()?;
        let calls = {
            let mut ledger = self.ledger();
            ledger.host_calls += 1;
            ledger.host_calls
        };
        let most = self.limits.host_calls_max;
        if calls > most {
            return Err(self.over_limit(format!("the guest made more than {most} calls that keep or send something")));
        }
        Ok(())
    }

    /// Counts the bytes that a call keeps.
    pub(crate) fn count_kept(&self, bytes: usize) -> Result<(), Ended> {
        let kept = {
            let mut ledger = self.ledger();
            ledger.kept_bytes = ledger.kept_bytes.saturating_add(bytes);
            ledger.kept_bytes
        };
        let most = self.limits.effects_max_bytes;
        if kept > most {
            return Err(self.over_limit(format!("the guest had the host keep {kept} bytes; {most} are allowed")));
        }
        Ok(())
    }

    fn over_limit(&self, message: String) -> Ended {
        self.end(Outcome::Broke { problem: Problem::new("limit.host_calls", message) })
    }

    /// Ends the attempt of a guest that does little else than log.
    pub(crate) fn end_flooded(&self) {
        let message = format!(
            "the guest logged more than a hundred times the {} lines or {} bytes that its log is limited to",
            self.limits.log_lines_max, self.limits.log_max_bytes
        );
        self.end(Outcome::Broke { problem: Problem::new("limit.log", message) });
    }

    /// Runs a call to the host that goes on to its end when the guest is stopped meanwhile. A guest makes one such call
    /// at a time.
    pub(crate) async fn durably<T: Send + 'static>(
        &self,
        call: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, HostGone> {
        let (sender, receiver) = oneshot::channel();
        let task = tokio::spawn(async move {
            // Nobody listens any more when the guest was stopped.
            let _ = sender.send(call.await);
        });
        *self.pending.lock().unwrap_or_else(PoisonError::into_inner) = Some(task);
        receiver.await.map_err(|_| HostGone)
    }

    /// Closes the books after the guest's end: nothing leaves the host any more, and a step that is still open is taken
    /// back when nothing unsafe was sent under it.
    pub(crate) async fn close(&self) {
        self.ledger().close();
        let pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(pending) = pending {
            // A panic of the host shows as a call without an answer.
            let _ = pending.await;
        }
        let open = self.ledger().let_go_of_open();
        if let Some(name) = open {
            self.take_back(&name).await;
        }
    }

    /// Has the host take a step back that the guest let go of.
    pub(crate) async fn take_back(&self, name: &leasehold_domain::StepName) {
        let taken_back = self.host.take_back_step(name).await;
        let counts = &mut self.ledger().counts;
        match taken_back {
            Ok(()) => counts.taken_back += 1,
            Err(error) => {
                counts.left_in_doubt += 1;
                tracing::warn!(step = %name, ?error, "a step could not be taken back and is in doubt");
            }
        }
    }
}

#[cfg(test)]
impl Attempt {
    /// An attempt with nothing behind it and hardly any limits left.
    pub(crate) fn for_tests(deadline: Instant) -> Self {
        let limits = AttemptLimits {
            memory_max_bytes: 0,
            table_elements_max: 0,
            output_max_bytes: 4,
            log_max_bytes: 100,
            log_lines_max: 10,
            host_calls_max: 0,
            effects_max_bytes: 0,
            response_max_bytes: 0,
        };
        let host = Arc::new(crate::prepare::NoHost);
        Self::new(host, Arc::default(), &limits, InDoubtPolicy::BeginAgain, deadline, None, Arc::default())
    }
}
