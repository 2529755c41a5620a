//! Writes a command's answer: JSON for programs, text for people. Errors, notes to a person and progress
//! go to the standard error, so that the standard output holds the answer alone.

use std::io::{self, Write as _};

use leasehold_api::Page;
use serde::Serialize;

use super::{Failure, text};

/// Where answers go and in which form.
#[derive(Debug, Clone, Copy)]
pub struct Output {
    json: bool,
}

impl Output {
    /// Answers for programs, or for people.
    pub const fn new(json: bool) -> Self {
        Self { json }
    }

    /// Whether programs read the answers.
    pub const fn is_json(self) -> bool {
        self.json
    }

    /// Writes an answer: as one JSON document on one line, or as the text that is made of it.
    pub fn show<T: Serialize>(self, answer: &T, as_text: impl FnOnce(&T) -> String) -> Result<(), Failure> {
        if self.json { self.document(answer) } else { self.text(&as_text(answer)) }
    }

    /// Writes a page of a list, and tells a person how to see what comes after it.
    pub fn page<T: Serialize>(self, page: &Page<T>, as_text: impl FnOnce(&Page<T>) -> String) -> Result<(), Failure> {
        self.show(page, as_text)?;
        if let (false, Some(cursor)) = (self.json, &page.next_cursor) {
            self.note(&format!("there are more: go on with --cursor {cursor}"));
        }
        Ok(())
    }

    /// Writes one JSON document on one line.
    pub fn document(self, document: &impl Serialize) -> Result<(), Failure> {
        let line = serde_json::to_string(document).map_err(io::Error::other)?;
        self.text(&line)
    }

    /// Writes text that is fit to be seen, and ends its last line.
    pub fn text(self, text: &str) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        if !text.ends_with('\n') {
            out.write_all(b"\n")?;
        }
        Ok(out.flush()?)
    }

    /// Tells a person something beside the answer. An error stream that is closed can't be told so.
    pub fn note(self, line: &str) {
        let _ = writeln!(io::stderr().lock(), "{}", text::escape(line));
    }

    /// Writes why the command failed. An error stream that is closed can't be told so.
    pub fn failure(self, failure: &Failure) {
        let mut lines = if self.json { failure.to_json().to_string() } else { as_errors(&described(failure)) };
        lines.push('\n');
        let _ = io::stderr().lock().write_all(lines.as_bytes());
    }
}

/// The failure in words with its code behind them; a refusal's words have it already.
fn described(failure: &Failure) -> String {
    let words = failure.to_string();
    let code = format!("[{}]", failure.code());
    if words.ends_with(&code) { words } else { format!("{words} {code}") }
}

fn as_errors(words: &str) -> String {
    let lines: Vec<_> = words.lines().map(|line| format!("error: {}", text::escape(line))).collect();
    lines.join("\n")
}
