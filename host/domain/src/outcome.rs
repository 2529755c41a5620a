//! How one run of a guest ended, in the sandbox's words. What the queue does about it is `verdict`'s.

use serde::{Deserialize, Serialize};

use crate::{DurationMs, ErrorClass, JobId, Kind, Lane, StepName, ids::JobKey};

/// What went wrong: a class, and words for a person that are not redacted yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The class, as the guest or the host named it.
    pub class: ErrorClass,
    /// For a person. It may hold personal data until it has been redacted.
    pub message: String,
}

impl Problem {
    /// A problem of this class.
    #[must_use]
    pub fn new(class: &str, message: impl Into<String>) -> Self {
        Self { class: ErrorClass::new(class), message: message.into() }
    }
}

/// What a guest that failed said should happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said {
    /// It may go well another time.
    Retry,
    /// Downstream asked to slow down, for this long if it said so.
    RateLimited {
        /// The delay that downstream named.
        retry_after_ms: Option<DurationMs>,
    },
    /// Downstream refuses for good.
    Rejected,
    /// The payload can't be handled, or the handler is wrong.
    Poison,
}

/// Why the host stopped a guest before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// The job was cancelled.
    Cancelled,
    /// The lease was lost or could not be extended before it ran out.
    LeaseLost,
    /// The daemon is shutting down.
    Shutdown,
}

/// How an attempt ended, before anything is decided about the job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The guest said done.
    Done {
        /// The result for whoever enqueued the job.
        output: Option<Vec<u8>>,
    },
    /// The guest said that nothing was to be done.
    Suppressed {
        /// Why.
        reason: String,
    },
    /// The guest said that it failed.
    Failed {
        /// What it said should happen.
        said: Said,
        /// What went wrong.
        problem: Problem,
    },
    /// The guest trapped, exited or broke a limit (`handler.*`, `limit.*`).
    Broke {
        /// What happened, in the host's words.
        problem: Problem,
    },
    /// The deadline came while the guest waited for an outbound call (`downstream.timeout`): not a defect.
    DownstreamTimeout {
        /// What it waited for.
        problem: Problem,
    },
    /// Another attempt's guest still runs a step that this one wanted to begin.
    StepInProgress {
        /// The step.
        step: StepName,
    },
    /// A step is in doubt and the kind's policy is to ask an operator.
    StepInDoubt {
        /// The step.
        step: StepName,
    },
    /// The host stopped the guest.
    Stopped(StopReason),
    /// The lease ran out without a word from its worker.
    LeaseExpired,
    /// The daemon stopped under the attempt; the next start found it.
    DaemonStopped {
        /// Whether a suspect ran beside it, which is blamed in its place.
        beside_suspect: bool,
    },
    /// An operator stopped the daemon at once under the attempt. It says nothing about the job.
    DaemonStoppedAtOnce,
    /// The version that the attempt was to run on could not be had; no guest ran.
    HandlerUnavailable {
        /// Why.
        message: String,
    },
    /// The version that the replay is bound to is not live; no guest ran.
    ReplayTargetNotLive {
        /// What was asked for and what is live.
        message: String,
    },
}

/// A job that a guest enqueues.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewJob {
    /// Its kind.
    pub kind: Kind,
    /// Its key; a fresh one is made when there is none.
    pub key: Option<JobKey>,
    /// Its lane.
    pub lane: Option<Lane>,
    /// The payload's media type.
    pub content_type: String,
    /// The payload as sent.
    pub payload: Vec<u8>,
    /// How long after its enqueue it becomes visible.
    pub delay_ms: DurationMs,
    /// Priority: each step moves its place in line forward by one priority step.
    pub priority: i32,
    /// Names and values that travel with the job.
    pub metadata: Vec<(String, String)>,
}

/// A note on the record of another job. It changes nothing of that job itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// The other job's kind; on a job of another kind no note is made.
    pub kind: Kind,
    /// The other job.
    pub job: JobId,
    /// What tells notes of one class apart: of the same key, one is made.
    pub key: String,
    /// What it is about.
    pub class: ErrorClass,
    /// For a person. It may hold personal data until it has been redacted.
    pub text: String,
}

/// Something a guest had the host keep, made real with the job's success.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// A job to enqueue.
    Enqueue(NewJob),
    /// A value to store.
    Set {
        /// The store's name.
        store: String,
        /// The value's key.
        key: String,
        /// The value.
        value: Vec<u8>,
    },
    /// A value to remove.
    Delete {
        /// The store's name.
        store: String,
        /// The value's key.
        key: String,
    },
    /// A note on the record of another job.
    Annotate(Note),
}
