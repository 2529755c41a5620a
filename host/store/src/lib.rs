//! The queue on SQLite.
//!
//! The only crate that knows SQL. One thread owns the one writing connection and runs what waits as one transaction;
//! a few read-only connections answer questions. Each transition has a file of its own. Nothing here reads a clock,
//! decides what becomes of a job, or runs a guest: times and verdicts are parameters.

mod audit;
mod cancel;
mod claim;
mod crash_points;
mod dead_letters;
mod effects;
mod enqueue;
mod error;
mod handlers;
mod heartbeat;
mod job_ids;
mod keys;
mod kinds;
mod lanes;
mod lease_expiry;
mod lock;
mod open;
mod originals;
mod outbox_source;
#[cfg(test)]
mod query_plans;
mod read;
mod readers;
mod relay;
mod replay;
mod retention;
mod rows;
mod seal;
mod settle;
mod steps;
mod values;
mod writer;

pub use audit::AuditEntry;
pub use cancel::Cancelled;
pub use claim::{Claim, ClaimRequest, Claimed, Contents, KindClaim, ReplayInfo, RunOn};
pub use crash_points::arm_crash_points;
pub use dead_letters::{DeadLetter, DeadLetterFilter, DeadLetterSummary, Discarded};
pub use enqueue::{EnqueueAnswer, EnqueueJob};
pub use error::StoreError;
pub use handlers::{Activated, PutVersion, Retired, StoredVersion, VersionRow};
pub use heartbeat::Beat;
pub use keys::{KeyProblem, KeyStatus};
pub use kinds::{KindDepth, Paused};
pub use lease_expiry::{ExpiredLease, LeasedJob};
pub use open::{Durability, OpenError, StoreOptions};
pub use outbox_source::{OutboxError, OutboxMapping, OutboxRow, OutboxSource};
pub use read::{AttemptRecord, JobFilter, JobRecord, JobSummary, Page, StepRecord, StepRunRecord};
pub use relay::{Relayed, RelayedRow};
pub use replay::{ReplayAnswer, ReplayRecord, ReplayRequest, Resolution};
pub use retention::Retention;
pub use settle::{AttemptRecordText, DeadLetterText, Settled, Settlement};
pub use steps::{BeginStep, StepBegun, StepEnded};

use std::sync::{Arc, atomic::AtomicI64};

use crate::{job_ids::JobIds, readers::Readers, writer::Writer};

/// The queue. A cheap handle; all of its work happens on threads of its own.
#[derive(Clone)]
pub struct Store {
    shared: Arc<Shared>,
}

struct Shared {
    writer: Writer,
    readers: Readers,
    own_readers: Readers,
    keys: Arc<KeyStatus>,
    job_ids: JobIds,
    /// The latest time on the queue's clock that any call has brought; persisted by the writer.
    latest_ms: Arc<AtomicI64>,
    /// Held for the life of the process: only one daemon can own a database.
    _lock: lock::DatabaseLock,
}
