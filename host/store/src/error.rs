//! What can go wrong with the store as such. What a caller asked for and can't have is an answer, not an error.

use std::{sync::Arc, time::Duration};

use rusqlite::ErrorCode;

/// A failed call. Nothing of it was kept; only when the process ends before its next commit can a commit whose sync
/// failed still be found by the next start.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// SQLite refused or failed.
    #[error("the database: {0}{hint}", hint = hint(.0))]
    Sqlite(Arc<rusqlite::Error>),
    /// The database is damaged. Nothing is written to it any more.
    #[error(
        "the database does not pass as intact ({what}), so nothing more is written to it and no job is leased. Stop the \
         daemon, keep its files aside, see with SQLite's `PRAGMA integrity_check` what is wrong with them, restore the \
         backup and start again"
    )]
    Damaged {
        /// What was found.
        what: String,
    },
    /// The sealing key is missing or wrong.
    #[error("the sealing key is not available: {0}")]
    KeyUnavailable(String),
    /// Something sealed does not open: it was damaged, moved, or sealed with another key.
    #[error("a sealed {purpose} of job {id} does not open: it is damaged or was sealed with another key")]
    DoesNotOpen {
        /// What it is.
        purpose: &'static str,
        /// What it belongs to.
        id: i64,
    },
    /// A row says something that no version of Leasehold writes.
    #[error("the database holds an unexpected value: {0}")]
    Unexpected(String),
    /// Too little free disk is left for an enqueue.
    #[error(
        "only {free_bytes} bytes of disk are free; below {reserve_bytes} nothing is enqueued (disk_reserve under [queue])"
    )]
    DiskLow {
        /// How much is free.
        free_bytes: u64,
        /// How much has to stay free.
        reserve_bytes: u64,
    },
    /// A question took so long that it was stopped.
    #[error(
        "the question took longer than {} ms and was stopped; ask for less, for example by a kind, a state or a cursor",
        time_box.as_millis()
    )]
    TooSlow {
        /// How long a question may take.
        time_box: Duration,
    },
    /// The store has been closed.
    #[error("the store is closed")]
    Closed,
}

impl StoreError {
    /// The stable code of the error.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Sqlite(error) => match error.sqlite_error_code() {
                Some(ErrorCode::DiskFull) => "disk_full",
                Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => "database_busy",
                Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => "database_corrupt",
                Some(ErrorCode::ReadOnly) => "database_read_only",
                Some(ErrorCode::SystemIoFailure | ErrorCode::CannotOpen) => "database_io",
                _ => "database_error",
            },
            Self::Damaged { .. } => "database_corrupt",
            Self::KeyUnavailable(_) => "key_unavailable",
            Self::DoesNotOpen { .. } => "seal_broken",
            Self::Unexpected(_) => "database_unexpected",
            Self::DiskLow { .. } => "disk_low",
            Self::TooSlow { .. } => "query_too_slow",
            Self::Closed => "closed",
        }
    }

    /// Whether a progress handler stopped the statement.
    pub(crate) fn is_interrupt(&self) -> bool {
        matches!(self, Self::Sqlite(error) if error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted))
    }

    /// Whether the connection should be closed and the state read anew.
    pub(crate) fn is_io(&self) -> bool {
        matches!(self, Self::Sqlite(error) if matches!(
            error.sqlite_error_code(),
            // SQLite opens a file on a read-only disk for reading alone, and such a connection never writes again.
            Some(ErrorCode::SystemIoFailure | ErrorCode::CannotOpen | ErrorCode::ReadOnly)
        ))
    }
}

impl StoreError {
    /// Whether the error says that the database itself is damaged.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        self.code() == "database_corrupt"
    }

    /// Whether no further write will go well while this process runs.
    #[must_use]
    pub fn is_final(&self) -> bool {
        matches!(self, Self::Closed) || self.is_damage()
    }

    /// What is damaged, in few words.
    pub(crate) fn what_is_damaged(&self) -> String {
        match self {
            Self::Damaged { what } => what.clone(),
            Self::Sqlite(error) => error.to_string(),
            other => other.to_string(),
        }
    }
}

/// What to do about an error of SQLite's, where its own words leave that open.
fn hint(error: &rusqlite::Error) -> &'static str {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => "; make room: nothing that was answered is lost",
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => "; another program holds its lock: try again",
        Some(ErrorCode::ReadOnly) => "; it lies on a file system that can't be written to",
        Some(ErrorCode::SystemIoFailure | ErrorCode::CannotOpen) => {
            "; the file system fails or takes no writes: see the system's log. What waits goes on once it does again"
        }
        _ => "",
    }
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(Arc::new(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sqlite(code: ErrorCode) -> StoreError {
        rusqlite::Error::SqliteFailure(rusqlite::ffi::Error { code, extended_code: 0 }, Some("it failed".into())).into()
    }

    #[test]
    fn o6_each_way_in_which_sqlite_fails_has_a_code_and_says_what_to_do() {
        let another_program = "the database: it failed; another program holds its lock: try again";
        let file_system = "the database: it failed; the file system fails or takes no writes: see the system's log. What \
                           waits goes on once it does again";
        for (code, stable, words) in [
            (ErrorCode::DiskFull, "disk_full", "the database: it failed; make room: nothing that was answered is lost"),
            (ErrorCode::DatabaseBusy, "database_busy", another_program),
            (ErrorCode::DatabaseLocked, "database_busy", another_program),
            (ErrorCode::DatabaseCorrupt, "database_corrupt", "the database: it failed"),
            (ErrorCode::NotADatabase, "database_corrupt", "the database: it failed"),
            (
                ErrorCode::ReadOnly,
                "database_read_only",
                "the database: it failed; it lies on a file system that can't be written to",
            ),
            (ErrorCode::SystemIoFailure, "database_io", file_system),
            (ErrorCode::CannotOpen, "database_io", file_system),
            (ErrorCode::ConstraintViolation, "database_error", "the database: it failed"),
        ] {
            let error = sqlite(code);
            assert_eq!((error.code(), error.to_string().as_str()), (stable, words));
        }
    }

    #[test]
    fn o6_what_a_failure_calls_for_is_told_by_what_failed() {
        let damaged = StoreError::Damaged { what: "a page".into() };
        let unexpected = StoreError::Unexpected("a row".into());
        // Whether the connection is opened anew, a question took too long, and nothing more can be written.
        for (error, expected) in [
            (sqlite(ErrorCode::SystemIoFailure), [true, false, false]),
            (sqlite(ErrorCode::CannotOpen), [true, false, false]),
            (sqlite(ErrorCode::ReadOnly), [true, false, false]),
            (sqlite(ErrorCode::OperationInterrupted), [false, true, false]),
            (sqlite(ErrorCode::DiskFull), [false, false, false]),
            (sqlite(ErrorCode::DatabaseCorrupt), [false, false, true]),
            (damaged, [false, false, true]),
            (StoreError::Closed, [false, false, true]),
            (unexpected, [false, false, false]),
        ] {
            assert_eq!([error.is_io(), error.is_interrupt(), error.is_final()], expected, "{error}");
        }
    }

    #[test]
    fn o6_damage_is_told_in_few_words() {
        assert_eq!(StoreError::Damaged { what: "a page".into() }.what_is_damaged(), "a page");
        assert_eq!(sqlite(ErrorCode::DatabaseCorrupt).what_is_damaged(), "it failed");
        assert_eq!(StoreError::Closed.what_is_damaged(), "the store is closed");
    }
}
