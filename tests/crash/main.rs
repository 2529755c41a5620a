//! The real daemon under load, killed, with a real HTTP server outside that does not deduplicate and counts.
//!
//! A test's name begins with its clause of the contract. Nothing here waits by sleeping: the kills come when so many requests
//! have arrived, or at a random moment after that.

#[path = "../support/mod.rs"]
mod support;

mod blame;
mod bulk;
mod points;
mod random;
mod webhooks;
