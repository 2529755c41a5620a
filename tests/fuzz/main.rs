//! Bytes that nobody meant to send: to the API, to the loader of components, to the configuration. Whatever they are, the
//! answer is a result or an error that says what is wrong: never a panic, a hang or a failure of the daemon's own.
//!
//! An input that fails is kept in `tests/corpus`, and everything there is tried again by each run. A longer run is
//! `PROPTEST_CASES=100000 cargo test -p leasehold --test fuzz`.

#[path = "../support/mod.rs"]
mod support;

mod api;
mod components;
mod configuration;
mod corpus;
mod mutation;
