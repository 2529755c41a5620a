//! Handlers and steps.
//!
//! A test's name begins with its clause of the contract. Every test runs the real binary through its socket and sleeps
//! for nothing: it waits for requests, lines of the log and ends of jobs.

#![allow(clippy::float_cmp, reason = "counters are whole numbers, which a float holds exactly")]

#[path = "../../support/mod.rs"]
mod support;

mod blocked;
mod checks;
mod doubt;
mod folder;
mod helpers;
mod hot_swap;
mod identity;
mod limits;
mod memory;
mod notes;
mod outbox;
mod overlap;
mod reach;
mod reload;
mod states;
mod steps;
