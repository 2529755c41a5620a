//! Feeds: an application's outbox, relayed into the queue.
//!
//! A test's name begins with its clause of the contract. Every test runs the real binary against a real second SQLite
//! file and sleeps for nothing: it waits for requests, lines of the log and ends of jobs.

#[path = "../../support/mod.rs"]
mod support;

mod outbox;
