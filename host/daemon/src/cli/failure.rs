//! How a command ends other than well: one line for a person, a code for programs, and the exit code. It prints
//! nothing itself.

use std::{fmt::Display, io};

use leasehold_api::ClientError;
use leasehold_domain::JobState;
use serde_json::{Value, json};

use crate::config::{ConfigError, ConfigErrors};

/// The exit codes, as `--help` explains them.
pub const EXIT_CODES: &str = "\
Exit codes:
  0  it went well
  1  the operation was refused or failed
  2  the command line or the configuration is wrong
  3  no daemon could be reached
  4  some lines of a batch were refused; the others are in the queue
  5  the job that was waited for ended other than done, or not all of a bulk replay ended well
  6  what was waited for had not ended in time";

/// Why a command did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The daemon refused, failed or could not be reached.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The command line or a configuration is wrong.
    #[error("{message}")]
    Usage {
        /// A stable code for programs.
        code: &'static str,
        /// What is wrong, and what is allowed.
        message: String,
    },
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigErrors),
    /// Something on this side went wrong.
    #[error("{message}")]
    Failed {
        /// A stable code for programs.
        code: &'static str,
        /// What went wrong, and what to do.
        message: String,
    },
    /// Some lines of a batch were refused.
    #[error("{refused} of {total} lines were refused; the others are in the queue")]
    LinesRefused {
        /// How many were refused.
        refused: u64,
        /// How many were sent.
        total: u64,
    },
    /// The job that was waited for did not end well.
    #[error("job {id} ended as {}: see `leasehold jobs show {id}`", state.as_str())]
    EndedOtherwise {
        /// The job.
        id: i64,
        /// How it ended.
        state: JobState,
    },
    /// The job that was waited for is still in the queue.
    #[error("job {id} is still {} after {waited_seconds} s", state.as_str())]
    TimedOut {
        /// The job.
        id: i64,
        /// Where it stands.
        state: JobState,
        /// How long it was waited for.
        waited_seconds: u64,
    },
    /// The bulk replay that was waited for did not end well.
    #[error("bulk replay {id} {why}: see `leasehold replays show {id}`")]
    BulkEndedOtherwise {
        /// The bulk replay.
        id: i64,
        /// How it ended.
        why: String,
    },
    /// Something of the bulk replay that was waited for is under way still.
    #[error("bulk replay {id} is {state} and not all of it has ended after {waited_seconds} s")]
    BulkTimedOut {
        /// The bulk replay.
        id: i64,
        /// Where it stands.
        state: &'static str,
        /// How long it was waited for.
        waited_seconds: u64,
    },
    /// Whoever read the output has stopped reading, which is theirs to do.
    #[error("the output was closed")]
    OutputClosed,
}

impl Failure {
    /// The command line is wrong.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::Usage { code: "usage", message: message.into() }
    }

    /// A file could not be read.
    pub fn unreadable(name: impl Display, error: &io::Error) -> Self {
        Self::Failed { code: "file_unreadable", message: format!("{name} can't be read: {error}") }
    }

    /// The process's exit code.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::OutputClosed => 0,
            Self::Client(error) if error.is_unreachable() => 3,
            Self::Client(ClientError::Address { .. } | ClientError::Token) | Self::Usage { .. } | Self::Config(_) => 2,
            Self::Client(_) | Self::Failed { .. } => 1,
            Self::LinesRefused { .. } => 4,
            Self::EndedOtherwise { .. } | Self::BulkEndedOtherwise { .. } => 5,
            Self::TimedOut { .. } | Self::BulkTimedOut { .. } => 6,
        }
    }

    /// The stable code for programs.
    pub fn code(&self) -> &str {
        match self {
            Self::Client(error) => error.code(),
            Self::Usage { code, .. } | Self::Failed { code, .. } => code,
            Self::Config(_) => "config_invalid",
            Self::LinesRefused { .. } => "lines_refused",
            Self::EndedOtherwise { .. } | Self::BulkEndedOtherwise { .. } => "ended_otherwise",
            Self::TimedOut { .. } | Self::BulkTimedOut { .. } => "timed_out",
            Self::OutputClosed => "output_closed",
        }
    }

    /// The failure for programs: the daemon's own problem where there is one.
    pub fn to_json(&self) -> Value {
        match self {
            Self::Client(ClientError::Refused(problem)) => json!(problem),
            Self::Config(errors) => json!({
                "code": self.code(),
                "detail": self.to_string(),
                "errors": errors.errors().iter().map(to_json).collect::<Vec<_>>(),
            }),
            _ => json!({ "code": self.code(), "detail": self.to_string() }),
        }
    }
}

fn to_json(error: &ConfigError) -> Value {
    json!({ "line": error.line, "key": error.key, "message": error.message })
}

impl From<io::Error> for Failure {
    /// What goes wrong with the standard streams.
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::OutputClosed,
            _ => Self::Failed { code: "output_failed", message: format!("the output could not be written: {error}") },
        }
    }
}

#[cfg(test)]
mod tests {
    use leasehold_api::Problem;

    use super::*;

    #[test]
    fn o5_a_refusal_reaches_programs_whole() {
        let problem = Problem::new(http::StatusCode::CONFLICT, "key_conflict", "taken").with("id", 7);
        let failure = Failure::from(ClientError::Refused(Box::new(problem)));
        assert_eq!((failure.exit_code(), failure.code()), (1, "key_conflict"));
        assert_eq!(failure.to_json()["id"], 7);
        assert_eq!(failure.to_string(), "taken [key_conflict]");
    }

    #[test]
    fn o6_a_daemon_that_is_not_there_has_an_exit_code_of_its_own() {
        let source = io::Error::from(io::ErrorKind::NotFound);
        let failure = Failure::from(ClientError::NoDaemon { path: "/x".into(), source });
        assert_eq!(failure.exit_code(), 3);
    }

    #[test]
    fn a_closed_output_is_no_failure() {
        assert_eq!(Failure::from(io::Error::from(io::ErrorKind::BrokenPipe)).exit_code(), 0);
    }
}
