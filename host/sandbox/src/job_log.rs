//! The log of one attempt: what the guest wrote to `wasi:logging`, stdout and stderr, and what the host notes for whoever
//! reads it. It is bounded in lines and bytes: what is over is counted and dropped, since a guest that talks too much is
//! no reason to stop its work; only one that goes on to a hundred times as much is ended. Nothing here is redacted yet.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// How many times its limit a log may grow, dropped, before its attempt is ended.
const FLOOD_FACTOR: usize = 100;
/// A line that is longer is cut into several.
const LINE_MAX_BYTES: usize = 8 << 10;
/// How much of a panic's text is kept.
const PANIC_MAX_BYTES: usize = 4 << 10;

/// How much a line matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// The finest detail.
    Trace,
    /// For following a handler's inner course.
    Debug,
    /// What happened.
    Info,
    /// Something odd that was coped with.
    Warn,
    /// Something that went wrong.
    Error,
    /// The handler's own defect.
    Critical,
}

impl LogLevel {
    /// The level as it is stored and shown.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Trace => "trace",
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
            Self::Critical => "critical",
        }
    }
}

/// One line of an attempt's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// How much it matters.
    pub level: LogLevel,
    /// What it says.
    pub text: String,
}

#[derive(Debug, Default)]
struct Kept {
    lines: Vec<LogLine>,
    bytes: usize,
    dropped_lines: usize,
    dropped_bytes: usize,
    panic: Option<String>,
}

/// Collects the lines.
#[derive(Debug)]
pub(crate) struct JobLog {
    lines_max: usize,
    bytes_max: usize,
    kept: Mutex<Kept>,
}

impl JobLog {
    pub(crate) fn new(lines_max: usize, bytes_max: usize) -> Self {
        Self { lines_max, bytes_max, kept: Mutex::default() }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a message, a line for each of its lines.
    pub(crate) fn write(&self, level: LogLevel, text: &str) {
        let mut kept = self.kept();
        for line in text.lines() {
            for piece in pieces(line) {
                kept.push(level, piece, self.lines_max, self.bytes_max);
            }
        }
    }

    /// Whether so much was dropped that the guest does little else than log.
    pub(crate) fn is_flooded(&self) -> bool {
        let kept = self.kept();
        kept.dropped_lines > self.lines_max.saturating_mul(FLOOD_FACTOR)
            || kept.dropped_bytes > self.bytes_max.saturating_mul(FLOOD_FACTOR)
    }

    /// Remembers the text of a panic, which is kept beside the limits.
    pub(crate) fn note_panic(&self, text: &str) {
        let mut kept = self.kept();
        let panic = kept.panic.get_or_insert_default();
        let room = PANIC_MAX_BYTES.saturating_sub(panic.len());
        let separator = if panic.is_empty() { "" } else { "\n" };
        panic.push_str(separator);
        panic.push_str(cut(text, room));
    }

    /// The text of a panic, if there was one.
    pub(crate) fn panic(&self) -> Option<String> {
        self.kept().panic.clone()
    }

    /// Whether stderr is in the middle of a panic's text.
    pub(crate) fn is_panicking(&self) -> bool {
        self.kept().panic.is_some()
    }

    /// All lines, with one at the end that says how many were dropped.
    pub(crate) fn take(&self) -> Vec<LogLine> {
        let mut kept = self.kept();
        let mut lines = std::mem::take(&mut kept.lines);
        if kept.dropped_lines > 0 {
            let text = format!(
                "{} further lines ({} bytes) were dropped; the log is limited to {} lines and {} bytes",
                kept.dropped_lines, kept.dropped_bytes, self.lines_max, self.bytes_max
            );
            lines.push(LogLine { level: LogLevel::Warn, text });
        }
        lines
    }
}

impl Kept {
    fn push(&mut self, level: LogLevel, text: &str, lines_max: usize, bytes_max: usize) {
        if self.lines.len() >= lines_max || self.bytes + text.len() > bytes_max {
            self.dropped_lines += 1;
            self.dropped_bytes += text.len();
            return;
        }
        self.bytes += text.len();
        self.lines.push(LogLine { level, text: text.to_owned() });
    }
}

fn pieces(mut line: &str) -> impl Iterator<Item = &str> {
    let mut is_first = true;
    std::iter::from_fn(move || {
        if line.is_empty() && !is_first {
            return None;
        }
        is_first = false;
        let piece = cut(line, LINE_MAX_BYTES);
        line = &line[piece.len()..];
        Some(piece)
    })
}

/// The text's beginning, at most so many bytes and never half a character.
pub(crate) fn cut(text: &str, max_bytes: usize) -> &str {
    &text[..text.floor_char_boundary(max_bytes)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h5_a_flood_is_counted_and_dropped() {
        let log = JobLog::new(2, 1000);
        for number in 0..5 {
            log.write(LogLevel::Info, &format!("line {number}"));
        }
        let lines = log.take();
        assert_eq!(lines.len(), 3);
        assert_eq!(
            lines[2].text,
            "3 further lines (18 bytes) were dropped; the log is limited to 2 lines and 1000 bytes"
        );
    }

    #[test]
    fn h5_a_long_line_is_cut_between_characters() {
        let log = JobLog::new(10, 100_000);
        log.write(LogLevel::Info, &"ä".repeat(LINE_MAX_BYTES / 2 + 1));
        let lines = log.take();
        assert_eq!(lines.iter().map(|line| line.text.len()).collect::<Vec<_>>(), vec![LINE_MAX_BYTES, 2]);
    }

    #[test]
    fn an_empty_message_is_no_line_and_a_message_of_two_lines_is_two() {
        let log = JobLog::new(10, 100);
        log.write(LogLevel::Info, "");
        log.write(LogLevel::Warn, "a\nb");
        assert_eq!(log.take().len(), 2);
    }
}
