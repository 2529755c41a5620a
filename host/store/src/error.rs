//! What can go wrong with the store as such. What a caller asked for and can't have is an answer, not an error.

use std::{sync::Arc, time::Duration};

use rusqlite::ErrorCode;

/// A failed call. Nothing of it was kept; only when the process ends before its next commit can a commit whose sync
/// failed still be found by the next start.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// SQLite refused or failed.
    #[error("the database: {0}")]
    Sqlite(Arc<rusqlite::Error>),
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
            Some(ErrorCode::SystemIoFailure | ErrorCode::CannotOpen)
        ))
    }
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(Arc::new(error))
    }
}
