//! The words and decisions of the queue.
//!
//! Everything here is pure: it takes time and jitter as parameters and never does I/O, reads a clock, draws a random
//! number, speaks SQL or runs a guest.

pub mod backoff;
pub mod bulk_replay;
pub mod clock;
pub mod digest;
pub mod error_class;
pub mod grants;
pub mod handler;
pub mod ids;
pub mod incident;
pub mod job;
pub mod memory;
pub mod outcome;
pub mod place;
pub mod policy;
pub mod redaction;
pub mod refusals;
pub mod replay;
pub mod retention;
pub mod token;
pub mod verdict;

pub use digest::Digest;
pub use error_class::{ErrorClass, Treatment, Vocabulary};
pub use handler::{HandlerName, HandlerState, HandlerVersion};
pub use ids::{
    AttemptNumber, BulkReplayId, DeadLetterId, FencingToken, IncidentId, JobId, JobKey, Kind, Lane, NameError,
    ReplayId, StepName, VersionId,
};
pub use job::{Cause, JobState};
pub use memory::{Fit, MemoryRoom};
pub use outcome::{Effect, NewJob, Note, Outcome, Problem, Said, StopReason};
pub use policy::{InDoubtPolicy, KindPolicy};
pub use verdict::{JobFacts, Verdict, decide};

/// A point on the queue's clock or the wall's, in milliseconds since 1970-01-01T00:00:00Z.
pub type TimestampMs = i64;
/// A span of time in milliseconds.
pub type DurationMs = i64;
