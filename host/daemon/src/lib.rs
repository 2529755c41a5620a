//! The daemon: configuration, dispatcher, attempts, maintenance, HTTP and command line, on the queue and the sandbox.
//!
//! Data flows one way: a request becomes a row (`http`, `intake`, the store), a row becomes a lease (`dispatcher`), a
//! lease becomes an attempt (`attempt`), an attempt becomes a verdict and a settlement (`settlement`). The crate holds no
//! SQL and knows no wasmtime.

mod alerts;
mod artefacts;
mod attempt;
mod attempt_host;
mod blocking;
mod bulk_replays;
pub mod cli;
mod clock;
pub mod config;
pub mod daemon;
pub mod demo;
mod dispatcher;
mod handlers;
pub mod http;
pub mod intake;
mod machine;
mod maintenance;
mod metrics;
mod open_files;
mod operations;
mod panics;
mod redact;
mod refused;
mod rehearsal;
mod running;
mod serve;
mod settlement;
mod stop_marker;
mod tokens;
mod trouble;

pub use bulk_replays::{BulkStart, BulkWish};
pub use handlers::{HandlerError, Pushed, ReloadError};
pub use operations::{ReplayError, ReplayWish};
pub use rehearsal::{RehearsalError, RehearsalWish};
pub use serve::{ServeError, serve};
