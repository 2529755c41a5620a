//! What the sandbox asks of whoever runs it: the seam behind which steps, effects and stored values are made durable.
//! Nothing here knows how they are stored.

use std::time::Instant;

use leasehold_domain::{
    AttemptNumber, Effect, InDoubtPolicy, JobId, JobKey, Kind, Lane, NewJob, StepName, TimestampMs,
};

use crate::Answers;

/// The host of one attempt.
///
/// A call about a step, once made, runs to its end, also when its guest is stopped meanwhile; a report waits for it. A
/// read is given up with its guest. The sandbox lays this attempt's own writes over what `read_value` and `list_keys`
/// answer; writes that earlier attempts left with an applied step are the host's to lay over them.
#[async_trait::async_trait]
pub trait AttemptHost: Send + Sync + 'static {
    /// Begins a step, durably before it answers *fresh* or *in doubt*.
    async fn begin_step(&self, name: &StepName, fingerprint: &[u8]) -> Result<Begun, BeginError>;

    /// Stores a step's result and the effects that were made under it, in one transaction.
    async fn complete_step(&self, name: &StepName, result: Vec<u8>, effects: Vec<Effect>) -> Result<(), CompleteError>;

    /// Takes a step back that this attempt began afresh and whose effect was certainly not applied. It is never called
    /// for a step that was in doubt when it was begun: what an earlier attempt did stays unknown.
    async fn take_back_step(&self, name: &StepName) -> Result<(), CompleteError>;

    /// The stored value under a key.
    async fn read_value(&self, store: &str, key: &str) -> Result<Option<Vec<u8>>, StoreUnavailable>;

    /// A page of a store's keys and where the next one starts.
    async fn list_keys(&self, store: &str, cursor: Option<u64>)
    -> Result<(Vec<String>, Option<u64>), StoreUnavailable>;

    /// Whether a job that the guest enqueues could be enqueued as things are.
    fn check_new_job(&self, job: &NewJob) -> Result<(), EnqueueRefusal>;
}

/// How a step was begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Begun {
    /// For the first time, or after it had been taken back.
    Fresh {
        /// The downstream key of every run of this step.
        idempotency_key: String,
    },
    /// An earlier run may or may not have reached its end.
    InDoubt {
        /// The downstream key of every run of this step.
        idempotency_key: String,
    },
    /// It was applied before.
    Applied {
        /// What it stored.
        result: Vec<u8>,
    },
}

/// Why a step was not begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BeginError {
    /// Another attempt's guest still runs it.
    InProgress,
    /// The attempt's lease is lost.
    LeaseLost,
    /// The step is in doubt and was begun with another fingerprint.
    Conflict,
    /// The record could not be written.
    Unavailable,
}

/// Why a step was not completed or taken back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompleteError {
    /// A later attempt has taken it over.
    Stale,
    /// The result is over the limit; the step stays open.
    TooLarge,
    /// The result could not be written.
    Unavailable,
}

/// Stored values can't be had at the moment.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("stored values can't be reached: {0}")]
pub struct StoreUnavailable(pub String);

/// Why a job can't be enqueued.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EnqueueRefusal {
    /// No such kind.
    UnknownKind,
    /// Over a limit, which is named.
    TooLarge(String),
    /// Not acceptable, and why.
    Invalid(String),
}

/// A job as its guest sees it.
#[derive(Clone)]
pub struct JobView {
    /// The job.
    pub id: JobId,
    /// Its kind.
    pub kind: Kind,
    /// Its stable idempotency key.
    pub key: JobKey,
    /// What it shares a rate limit with.
    pub lane: Option<Lane>,
    /// The number of this attempt.
    pub attempt: AttemptNumber,
    /// How many attempts have counted, this one included.
    pub attempts_used: u32,
    /// How many may count.
    pub attempts_max: u32,
    /// When it was enqueued.
    pub enqueued_at_ms: TimestampMs,
    /// When the host stops this attempt, by the wall clock.
    pub deadline_ms: TimestampMs,
    /// The payload's media type.
    pub content_type: String,
    /// The payload as sent.
    pub payload: Vec<u8>,
    /// Names and values that travel with the job.
    pub metadata: Vec<(String, String)>,
    /// Present when the attempt belongs to a replay.
    pub replay: Option<ReplayView>,
}

/// Who replayed a job's dead letter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayView {
    /// 1 for the first replay of the job.
    pub number: u32,
    /// The authenticated caller that asked for it.
    pub actor: String,
    /// When.
    pub at_ms: TimestampMs,
}

/// One attempt at a job.
#[derive(Clone)]
pub struct AttemptRequest {
    /// The job.
    pub job: JobView,
    /// When the attempt is stopped: one deadline over instantiation, call and the reading of the result.
    pub deadline: Instant,
    /// What is done about a step in doubt.
    pub in_doubt: InDoubtPolicy,
    /// Who answers requests in the network's place; the network itself when absent.
    pub answers: Option<Answers>,
}
