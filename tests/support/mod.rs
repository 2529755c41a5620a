//! What the suites share: the real binary in a directory of its own, a real HTTP server that counts what reaches it,
//! and looks into the real database. Nothing here sleeps: it waits for lines, requests and ends of jobs.

#![allow(dead_code, unused_imports, reason = "each suite uses its own part")]

pub mod components;
pub mod config;
pub mod daemon;
pub mod database;
pub mod mounts;
pub mod rules;
pub mod server;

pub use components::{guest, plugin};
pub use config::ConfigText;
pub use daemon::{Answer, Daemon};
pub use database::Database;
pub use server::{Received, Reply, Server};
