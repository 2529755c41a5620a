//! `wasi:logging/logging`: into the job's log.

use crate::{
    bindings::wasi::logging::logging::{Host, Level},
    job_log::LogLevel,
    state::GuestState,
};

/// The context of an ordinary message, which says nothing.
const PLAIN_CONTEXT: &str = "handler";
/// The context in which a guest reports that it panics.
const PANIC_CONTEXT: &str = "panic";

impl Host for GuestState {
    async fn log(&mut self, level: Level, context: String, message: String) -> wasmtime::Result<()> {
        let log = &self.attempt.log;
        if context == PANIC_CONTEXT {
            log.note_panic(&message);
        }
        let level = level_of(level);
        if context.is_empty() || context == PLAIN_CONTEXT {
            log.write(level, &message);
        } else {
            log.write(level, &format!("{context}: {message}"));
        }
        Ok(())
    }
}

fn level_of(level: Level) -> LogLevel {
    match level {
        Level::Trace => LogLevel::Trace,
        Level::Debug => LogLevel::Debug,
        Level::Info => LogLevel::Info,
        Level::Warn => LogLevel::Warn,
        Level::Error => LogLevel::Error,
        Level::Critical => LogLevel::Critical,
    }
}
