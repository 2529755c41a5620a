//! The sandbox against real guests: those of `tests/guests`, built with the SDK, one of the standard library (beside this
//! folder), and a real HTTP server on this machine.
//! One engine serves the whole process.

mod limits;
mod outbound;
mod preparing;
mod reach;
mod standard;
mod steps;
mod stopping;
mod support;
