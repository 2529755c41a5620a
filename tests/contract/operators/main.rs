//! What operators see and do.
//!
//! A test's name begins with its clause of the contract. Every test runs the real binary through its socket and sleeps
//! for nothing: it waits for requests, lines of the log and ends of jobs.

#[path = "../../support/mod.rs"]
mod support;

mod access;
mod alerts;
mod bad_components;
mod bad_databases;
mod bad_jobs;
mod bulk;
mod bulk_progress;
mod bulk_replay;
mod canary;
mod causes;
mod comfort;
mod configuration;
mod dead_letters;
mod email;
mod email_bounces;
mod forms;
mod hostile;
mod incidents;
mod letters;
mod metrics;
mod originals;
mod pages;
mod profile;
mod raw_http;
mod redaction;
mod rehearsal;
mod replay;
mod replay_targets;
mod resolve;
mod reveal;
mod roles;
mod sealing;
mod tokens;
mod vanished;
mod web_pages;
mod webhooks;
