//! The queue and its leases.
//!
//! A test's name begins with its clause of the contract. Every test runs the real binary through its socket and sleeps
//! for nothing: it waits for requests, lines of the log and ends of jobs.

#[path = "../../support/mod.rs"]
mod support;

mod bounds;
mod cancel;
mod deaths;
mod enqueue;
mod leases;
mod limits;
mod lost_leases;
mod order;
mod restarts;
mod retries;
mod shutdown;
mod told;
mod wall;
