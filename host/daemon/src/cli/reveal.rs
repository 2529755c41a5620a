//! `leasehold dlq reveal`: the original of a dead letter, for those who may see it. It goes where it was asked for: a file
//! of the caller alone, or the standard output. What a terminal is shown can't drive it.

use std::{
    io::{self, IsTerminal as _, Write as _},
    path::{Path, PathBuf},
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use clap::Args;
use leasehold_api::{RevealAnswer, RevealRequest};
use serde_json::json;
use tempfile::NamedTempFile;

use super::{Failure, Session, text};

/// Show the original payload of a dead letter, unmasked; who saw it and why is kept in the audit log
///
/// The payload is written byte for byte to the standard output or a new file; with --json it comes in base64, with the
/// job's key and metadata. On a terminal, control characters are shown as escapes.
#[derive(Debug, Args)]
pub struct RevealArguments {
    /// The dead letter's id
    id: i64,
    /// Why; it is kept in the audit log
    #[arg(long)]
    reason: String,
    /// Write it to a new file that only its owner can read
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Runs the command.
pub async fn run(arguments: RevealArguments, session: &Session) -> Result<(), Failure> {
    // Made first: nobody is to be on record for an original that could not be written.
    let file = arguments.output.as_deref().map(File::prepare).transpose()?;
    let request = RevealRequest { reason: arguments.reason };
    let answer = session.client.reveal(arguments.id, &request).await?;
    let contents = contents(&answer, session)?;
    match file {
        Some(file) => {
            let path = file.path.display().to_string();
            file.write(&contents)?;
            session.output.show(&json!({ "id": answer.id, "file": path }), |_| {
                format!("the original of dead letter {} is in {}; remove it when done", answer.id, text::escape(&path))
            })
        }
        None => write_out(&contents, &answer, session),
    }
}

/// What is to be written: the payload's bytes, or for programs all that was sealed.
fn contents(answer: &RevealAnswer, session: &Session) -> Result<Vec<u8>, Failure> {
    if session.output.is_json() {
        let mut line = serde_json::to_vec(answer).map_err(io::Error::other)?;
        line.push(b'\n');
        return Ok(line);
    }
    BASE64_STANDARD.decode(&answer.payload_base64).map_err(|_| Failure::Failed {
        code: "unexpected_answer",
        message: "the daemon sent a payload that is no base64".to_owned(),
    })
}

fn write_out(contents: &[u8], answer: &RevealAnswer, session: &Session) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    if out.is_terminal() && !session.output.is_json() {
        drop(out);
        let warning = "the original of dead letter";
        session
            .output
            .note(&format!("{warning} {}, unmasked: it may hold personal data, and stays on this terminal", answer.id));
        return session.output.text(&for_terminal(contents));
    }
    out.write_all(contents)?;
    Ok(out.flush()?)
}

/// Text as lines without control characters; other bytes as base64, which says so.
fn for_terminal(contents: &[u8]) -> String {
    match std::str::from_utf8(contents) {
        Ok(text) => text.lines().map(text::escape).collect::<Vec<_>>().join("\n"),
        Err(_) => format!("base64: {}", BASE64_STANDARD.encode(contents)),
    }
}

/// A file that appears whole, is its owner's alone, and takes no other's place.
struct File<'a> {
    path: &'a Path,
    temporary: NamedTempFile,
}

impl<'a> File<'a> {
    fn prepare(path: &'a Path) -> Result<Self, Failure> {
        if path.symlink_metadata().is_ok() {
            return Err(exists(path));
        }
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let temporary = NamedTempFile::new_in(directory).map_err(|error| unwritable(path, &error))?;
        Ok(Self { path, temporary })
    }

    fn write(mut self, contents: &[u8]) -> Result<(), Failure> {
        self.temporary.write_all(contents).map_err(|error| unwritable(self.path, &error))?;
        match self.temporary.persist_noclobber(self.path) {
            Ok(_) => Ok(()),
            Err(failed) if failed.error.kind() == io::ErrorKind::AlreadyExists => Err(exists(self.path)),
            Err(failed) => Err(unwritable(self.path, &failed.error)),
        }
    }
}

fn exists(path: &Path) -> Failure {
    let message = format!("{} exists; the original is written to a new file only", path.display());
    Failure::Failed { code: "file_exists", message }
}

fn unwritable(path: &Path, error: &io::Error) -> Failure {
    Failure::Failed { code: "file_unwritable", message: format!("{} can't be written: {error}", path.display()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d4_reveal_shows_a_terminal_nothing_that_drives_it() {
        assert_eq!(for_terminal(b"{\"a\":\n\"\x1b[2J\"}"), "{\"a\":\n\"\\u{1b}[2J\"}");
        assert_eq!(for_terminal(b"\xff\x1b"), "base64: /xs=");
    }
}
