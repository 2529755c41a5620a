//! What operators see and do.
//!
//! A test's name begins with its clause of the contract. Every test runs the real binary through its socket and sleeps
//! for nothing: it waits for requests, lines of the log and ends of jobs.

#[path = "../../support/mod.rs"]
mod support;

mod access;
mod bad_components;
mod bad_databases;
mod bad_jobs;
mod canary;
mod causes;
mod configuration;
mod dead_letters;
mod email;
mod forms;
mod hostile;
mod letters;
mod metrics;
mod originals;
mod profile;
mod raw_http;
mod redaction;
mod replay;
mod replay_targets;
mod resolve;
mod sealing;
mod webhooks;
