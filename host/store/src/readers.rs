//! A few read-only connections for questions. They never write and never hold a transaction longer than one question.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rusqlite::{Connection, OpenFlags};
use tokio::sync::Semaphore;

use crate::{Store, StoreError, health::Health};

pub(crate) struct Readers {
    path: PathBuf,
    health: Arc<Health>,
    permits: Arc<Semaphore>,
    idle: Arc<Mutex<Vec<Connection>>>,
}

impl Readers {
    pub(crate) fn new(path: PathBuf, count: usize, health: Arc<Health>) -> Self {
        Self { path, health, permits: Arc::new(Semaphore::new(count)), idle: Arc::default() }
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
        let path = readers.path.clone();
        tokio::task::spawn_blocking(move || {
            let pooled = idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let connection = pooled.map_or_else(|| open(&path), Ok)?;
            let answer = in_snapshot(&connection, question);
            idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
            drop(permit);
            answer
        })
        .await
        .map_err(|_| StoreError::Closed)?
        .map_err(|error| readers.health.noted(error))
    }
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
