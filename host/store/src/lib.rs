//! The queue on SQLite.
//!
//! The only crate that knows SQL. One thread owns the one writing connection and runs what waits as one transaction;
//! a few read-only connections answer questions. Each transition has a file of its own. Nothing here reads a clock,
//! decides what becomes of a job, or runs a guest: times and verdicts are parameters.

mod arrivals;
mod audit;
mod bulk;
mod cancel;
mod claim;
mod crash_points;
mod dead_letter_groups;
mod dead_letters;
mod effects;
mod enqueue;
mod error;
pub mod examine;
#[cfg(test)]
mod fixtures;
mod handlers;
mod health;
mod heartbeat;
mod incidents;
mod job_ids;
mod keys;
mod kinds;
mod lanes;
mod lease_expiry;
mod lock;
mod notes;
mod open;
mod originals;
mod outbox_source;
mod pages;
#[cfg(test)]
mod query_plans;
mod random;
mod read;
mod readers;
mod rehearsal;
mod relay;
mod replay;
mod replay_records;
mod retention;
mod reveal;
mod rows;
mod seal;
mod serving;
mod settle;
mod steps;
mod tokens;
mod transaction;
mod values;
mod wall_clock;
mod writer;

pub use audit::{AuditEntry, AuditFilter};
pub use bulk::{
    BULK_MEMBERS_MAX, BulkMember, BulkMemberFilter, BulkReplayRecord, BulkRun, BulkSettings, PREVIEW_VALID_MS, Preview,
    Previewed, RefusalGroup, Resumed, Selection, StartBulkReplay, Started, Stopped, TokenRefusal, Turn, TurnTaken,
};
pub use cancel::Cancelled;
pub use claim::{Claim, ClaimRequest, Claimed, Contents, KindClaim, ReplayInfo};
pub use crash_points::arm_crash_points;
pub use dead_letter_groups::{DeadLetterGroup, UncoveredArrivals};
pub use dead_letters::{DeadLetter, DeadLetterFilter, DeadLetterSummary, Discarded, not_open};
pub use enqueue::{EnqueueAnswer, EnqueueJob};
pub use error::StoreError;
pub use handlers::{Activated, PutVersion, Retired, StoredVersion, VersionRow};
pub use heartbeat::Beat;
pub use incidents::{Changed, Incident, IncidentChange, IncidentGroup, IncidentRecord, OpenIncident, Opened};
pub use keys::{KeyProblem, KeyStatus};
pub use kinds::{KindDepth, Paused};
pub use lease_expiry::{ExpiredLease, LeasedJob};
pub use notes::NoteRecord;
pub use open::{Durability, OpenError, StoreOptions};
pub use outbox_source::{OutboxError, OutboxMapping, OutboxRow, OutboxSource};
pub use pages::{PageEnd, PageRecord};
pub use read::{AttemptRecord, JobFilter, JobRecord, JobSummary, Page, StepRecord, StepRunRecord};
pub use rehearsal::Rehearsable;
pub use relay::{Relayed, RelayedRow};
pub use replay::{ReplayAnswer, ReplayRequest, Resolution};
pub use replay_records::ReplayRecord;
pub use retention::Retention;
pub use reveal::{Original, Revealed};
pub use serving::RunOn;
pub use settle::{AttemptRecordText, DeadLetterText, Settled, Settlement};
pub use steps::{BeginStep, StepBegun, StepEnded};
pub use tokens::{AddedToken, NewToken, RevokedToken, TokenReference, TokenRow};

use std::sync::{Arc, atomic::AtomicI64};

use crate::{health::Health, job_ids::JobIds, readers::Readers, writer::Writer};

/// The queue. A cheap handle; all of its work happens on threads of its own.
#[derive(Clone)]
pub struct Store {
    shared: Arc<Shared>,
}

struct Shared {
    writer: Writer,
    readers: Readers,
    own_readers: Readers,
    health: Arc<Health>,
    keys: Arc<KeyStatus>,
    job_ids: JobIds,
    /// The latest time on the queue's clock that any call has brought; persisted by the writer.
    latest_ms: Arc<AtomicI64>,
    /// Held for the life of the process: only one daemon can own a database.
    _lock: lock::DatabaseLock,
}
