//! What the author of a handler uses. A handler is a function:
//!
//! ```
//! use leasehold_guest::{Failure, Job, Success, http, once};
//!
//! #[derive(serde::Deserialize)]
//! struct Greeting {
//!     url: String,
//!     text: String,
//! }
//!
//! #[leasehold_guest::handler]
//! fn handle(job: Job<Greeting>) -> Result<Success, Failure> {
//!     let greeting = job.payload;
//!     let status = once("greet", &greeting.text, |_key| {
//!         let answer = http::Request::post(&greeting.url).body(greeting.text.as_bytes()).send()?;
//!         Ok(answer.status)
//!     })?;
//!     Success::done_json(&status)
//! }
//! ```
//!
//! Compiled for a `wasm32` target it is a component of the world `leasehold:job/handler`, which imports only what it uses.
//! Natively nothing is exported and `mock::MockHost` stands in for the host, so that a handler is tested with
//! `cargo test`. The feature `arena`, on by default, installs a global allocator that serves a small job without growing the
//! component's memory; a handler with an allocator of its own goes without it. This crate never retries, caches or keeps
//! anything by itself: that is the host's part.

#[cfg(target_arch = "wasm32")]
pub mod bindings;
pub mod clock;
#[cfg(target_arch = "wasm32")]
pub mod component;
mod host;
pub mod http;
mod job;
pub mod keyvalue;
pub mod log;
#[cfg(not(target_arch = "wasm32"))]
pub mod mock;
mod once;
pub mod outbox;
mod outcome;
pub mod random;
pub mod records;
pub mod settings;

pub use job::{Job, Payload, Raw, Replay};
pub use leasehold_guest_macros::handler;
pub use once::{BeginError, CompleteError, StepError, StepKey, once};
pub use outcome::{Failure, Problem, Success};
