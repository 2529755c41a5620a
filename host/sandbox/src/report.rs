//! What comes back from a run, and the handle on one that is going on.

use leasehold_domain::{Effect, Outcome, StopReason};
use tokio::sync::oneshot;

use crate::{LogLine, StepCounts, Stopper, outcome};

/// How an attempt's guest ended and what it left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunReport {
    /// How it ended.
    pub outcome: Outcome,
    /// What it had the host keep outside any step; of value only when the outcome is done or suppressed.
    pub effects: Vec<Effect>,
    /// What it logged. It is not redacted.
    pub log: Vec<LogLine>,
    /// When it trapped: its panic's text and its frames. It is not redacted.
    pub trap: Option<String>,
    /// How long it ran, in milliseconds.
    pub run_ms: u64,
    /// The most memory that it held.
    pub memory_peak_bytes: usize,
    /// What became of its steps.
    pub steps: StepCounts,
}

impl RunReport {
    /// The report on a run that was lost with the sandbox's threads.
    fn lost() -> Self {
        Self {
            outcome: outcome::lost(),
            effects: Vec::new(),
            log: Vec::new(),
            trap: None,
            run_ms: 0,
            memory_peak_bytes: 0,
            steps: StepCounts::default(),
        }
    }
}

/// A guest that runs. Dropping it, or the future of its report, stops the guest.
#[derive(Debug)]
pub struct RunningGuest {
    stopper: Stopper,
    report: oneshot::Receiver<RunReport>,
}

impl RunningGuest {
    pub(crate) fn new(stopper: Stopper, report: oneshot::Receiver<RunReport>) -> Self {
        Self { stopper, report }
    }

    /// Stops the guest at its next interruption point, also inside a host call. The first reason counts.
    pub fn stop(&self, reason: StopReason) {
        self.stopper.stop(reason);
    }

    /// A handle that stops the guest from elsewhere.
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Waits for the guest's end.
    pub async fn report(mut self) -> RunReport {
        let report = &mut self.report;
        report.await.unwrap_or_else(|_| RunReport::lost())
    }
}

impl Drop for RunningGuest {
    fn drop(&mut self) {
        // A guest that has ended is left alone.
        self.stopper.stop(StopReason::Shutdown);
    }
}
