//! What the daemon's HTTP API says and hears: wire types, the table of its routes, the `OpenAPI` document and a typed
//! client.
//!
//! Nothing here decides anything about a job: the daemon answers, this crate gives the answers their shape.

pub mod alert;
pub mod audit;
pub mod bulk_replay;
pub mod client;
pub mod dead_letter;
pub mod handler;
pub mod incident;
pub mod job;
pub mod kind;
pub mod openapi;
pub mod page;
pub mod problem;
pub mod rehearsal;
pub mod role;
pub mod route;
pub mod schema;
pub mod timestamp;
pub mod token;

pub use alert::{AlertView, PageFilter, PageView};
pub use audit::{AuditEntry, AuditFilter};
pub use bulk_replay::{
    BulkReplayChange, BulkReplayCounts, BulkReplayFilter, BulkReplayMember, BulkReplayMemberFilter, BulkReplayPreview,
    BulkReplayPreviewRequest, BulkReplayRequest, BulkReplayState, BulkReplayView, RefusedReplays, ReplaySelection,
};
pub use client::{Client, ClientError};
pub use dead_letter::{
    DeadLetterFilter, DeadLetterState, DeadLetterSummary, DeadLetterView, DiscardRequest, ReplayAnswer, ReplayRequest,
    ReplayView, RevealAnswer, RevealRequest, StepResolution,
};
pub use handler::{ActivateQuery, HandlerView, PushAnswer, RetireAnswer};
pub use incident::{
    CloseIncidentRequest, DeadLetterGroup, EditIncidentRequest, IncidentFilter, IncidentGroup, IncidentState,
    IncidentSummary, IncidentView, OpenIncidentRequest,
};
pub use job::{
    AttemptView, BatchAnswer, EnqueueAnswer, EnqueueRequest, JobFilter, JobStateAnswer, JobSummary, JobView, NoteView,
    StepRunView, StepView, WaitQuery,
};
pub use kind::{KindView, ReloadAnswer};
pub use page::Page;
pub use problem::Problem;
pub use rehearsal::{
    AnswerTemplate, RehearsalAnswer, RehearsalEvent, RehearsalReport, RehearsalRequest, RehearsalVerdict,
    RehearsedHeader, RehearsedJob, RehearsedNote, RehearsedValue, RequestFailure,
};
pub use role::{Access, Role};
pub use route::{Operation, Route};
pub use timestamp::Timestamp;
pub use token::{TokenAnswer, TokenRequest, TokenState, TokenView};
