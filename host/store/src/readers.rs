//! A few read-only connections for questions. They never write and never hold a transaction longer than one question.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use rusqlite::{Connection, OpenFlags};
use tokio::sync::Semaphore;

use crate::{Store, StoreError, health::Health};

/// How many of SQLite's steps lie between two looks at the clock.
const STEPS_BETWEEN_LOOKS: std::ffi::c_int = 10_000;

pub(crate) struct Readers {
    path: PathBuf,
    /// How long one question may take.
    time_box: Option<Duration>,
    health: Arc<Health>,
    permits: Arc<Semaphore>,
    idle: Arc<Mutex<Vec<Connection>>>,
}

impl Readers {
    pub(crate) fn new(path: PathBuf, count: usize, time_box: Option<Duration>, health: Arc<Health>) -> Self {
        Self { path, time_box, health, permits: Arc::new(Semaphore::new(count)), idle: Arc::default() }
    }

    /// Closes the idle connections; later questions are refused.
    pub(crate) fn close(&self) {
        self.permits.close();
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

impl Store {
    /// Asks a caller's question on a thread that may block.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.shared.readers.ask(question).await
    }

    /// Asks one of the daemon's own questions, which depends on no caller's.
    pub(crate) async fn ask_for_daemon<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.shared.own_readers.ask(question).await
    }
}

impl Readers {
    async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let readers = self;
        let permit = Arc::clone(&readers.permits).acquire_owned().await.map_err(|_| StoreError::Closed)?;
        let idle = Arc::clone(&readers.idle);
        let (path, time_box) = (readers.path.clone(), readers.time_box);
        tokio::task::spawn_blocking(move || {
            let pooled = idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let connection = pooled.map_or_else(|| open(&path), Ok)?;
            let answer = in_time(&connection, time_box, question);
            idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
            drop(permit);
            answer
        })
        .await
        .map_err(|_| StoreError::Closed)?
        .map_err(|error| readers.health.noted(error))
    }
}

/// A question that takes too long is stopped: it would keep the log from being moved into the database, and other
/// questions waiting.
fn in_time<T>(
    connection: &Connection,
    time_box: Option<Duration>,
    question: impl FnOnce(&Connection) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let Some(time_box) = time_box else { return in_snapshot(connection, question) };
    let until = Instant::now() + time_box;
    connection.progress_handler(STEPS_BETWEEN_LOOKS, Some(move || Instant::now() > until))?;
    let answer = in_snapshot(connection, question);
    connection.progress_handler(0, None::<fn() -> bool>)?;
    answer.map_err(|error| if error.is_interrupt() { StoreError::TooSlow { time_box } } else { error })
}

/// All statements of one question see the same state.
fn in_snapshot<T>(
    connection: &Connection,
    question: impl FnOnce(&Connection) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let transaction = connection.unchecked_transaction()?;
    let answer = question(&transaction);
    transaction.rollback()?;
    answer
}

fn open(path: &PathBuf) -> Result<Connection, StoreError> {
    let connection =
        Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(Duration::from_secs(5))?;
    connection.set_prepared_statement_cache_capacity(64);
    connection.execute_batch("PRAGMA query_only = ON; PRAGMA temp_store = MEMORY; PRAGMA cache_size = -4096;")?;
    Ok(connection)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn o6_a_question_that_takes_too_long_is_stopped_and_says_so_and_the_next_is_answered() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("some.db");
        Connection::open(&path).unwrap().execute_batch("CREATE TABLE numbers (number)").unwrap();
        let readers = Readers::new(path, 1, Some(Duration::from_millis(50)), Arc::default());
        let endless =
            "WITH RECURSIVE number (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number) SELECT max(n) FROM number";
        for _ in 0..2 {
            let asked =
                readers.ask(|connection| Ok(connection.query_row(endless, [], |row| row.get::<_, i64>(0))?)).await;
            let error = asked.unwrap_err();
            assert_eq!(error.code(), "query_too_slow");
            assert!(error.to_string().contains("50 ms"), "{error}");
            let next = readers.ask(|connection| Ok(connection.query_row("SELECT 7", [], |row| row.get::<_, i64>(0))?));
            assert_eq!(next.await.unwrap(), 7);
        }
    }
}
