//! Runs handlers as WebAssembly components: the only crate that knows wasmtime.
//!
//! A component is prepared once (checked, compiled, linked with exactly what its handler was granted, instantiated on
//! trial) and then runs any number of attempts, each in a fresh store under one deadline. What a guest may reach beyond
//! its job passes through `imports`; what it has the host keep passes through [`AttemptHost`]. The sandbox itself never
//! keeps anything between attempts and never decides what becomes of a job.

mod attempt;
mod bindings;
mod compiled;
mod engine;
mod error;
mod host;
mod imports;
mod inspect;
mod invoke;
mod job_log;
mod ledger;
mod limits;
mod outbound;
mod outcome;
mod prepare;
mod report;
mod sandbox;
mod state;
mod stop;
mod threads;

pub use engine::REHEARSALS_MAX;
pub use error::{ComponentError, SandboxError};
pub use host::{
    AttemptHost, AttemptRequest, BeginError, Begun, CompleteError, EnqueueRefusal, JobView, ReplayView,
    StoreUnavailable,
};
pub use inspect::{Inspection, Need, inspect};
pub use job_log::{LogLevel, LogLine};
pub use ledger::StepCounts;
pub use outbound::{
    answers::{Answered, Answers, OutboundRequest},
    tls::client_config as tls_client_config,
};
pub use prepare::Prepared;
pub use report::{RunReport, RunningGuest};
pub use sandbox::{Sandbox, SandboxConfig};
pub use stop::Stopper;
