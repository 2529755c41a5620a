//! The job's log. Operators read it, redacted; personal data and secrets do not belong into it all the same.

use crate::host;

/// How much a message matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// For following a handler's inner course.
    Debug,
    /// What happened.
    Info,
    /// Something odd that was coped with.
    Warn,
    /// Something that went wrong.
    Error,
    /// The handler's own defect, such as a panic.
    Critical,
}

/// Writes a message of no particular context.
fn write(level: Level, message: &str) {
    host::log(level, "handler", message);
}

/// For following a handler's inner course.
pub fn debug(message: impl AsRef<str>) {
    write(Level::Debug, message.as_ref());
}

/// What happened.
pub fn info(message: impl AsRef<str>) {
    write(Level::Info, message.as_ref());
}

/// Something odd that was coped with.
pub fn warn(message: impl AsRef<str>) {
    write(Level::Warn, message.as_ref());
}

/// Something that went wrong.
pub fn error(message: impl AsRef<str>) {
    write(Level::Error, message.as_ref());
}
