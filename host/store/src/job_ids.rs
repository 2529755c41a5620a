//! Job ids, reserved in blocks so that a payload can be sealed to its id before the writer sees it. An id that was
//! reserved and not used is left out; none is ever given twice.

use std::ops::Range;

use rusqlite::{Connection, OptionalExtension};
use tokio::sync::Mutex;

use crate::{
    StoreError,
    writer::{Urgency, Writer},
};

/// How many ids are reserved at a time, at least; few jobs then wait for the commit that reserves them.
const BLOCK: i64 = 1_024;

#[derive(Default)]
pub(crate) struct JobIds {
    free: Mutex<Range<i64>>,
}

impl JobIds {
    /// Takes this many ids, in a row unless a block ends between them.
    pub(crate) async fn take(&self, writer: &Writer, count: usize) -> Result<Vec<i64>, StoreError> {
        let mut free = self.free.lock().await;
        let mut ids: Vec<i64> = free.by_ref().take(count).collect();
        let missing = i64::try_from(count - ids.len()).unwrap_or(i64::MAX);
        if missing > 0 {
            // Who sends many often sends as many again; that call then needs no commit of its own for its ids.
            let size = missing.saturating_add(i64::try_from(count).unwrap_or(i64::MAX)).max(BLOCK);
            *free = writer.call(Urgency::Usual, move |connection| reserve(connection, size)).await?;
            ids.extend(free.by_ref().take(count - ids.len()));
        }
        Ok(ids)
    }
}

/// Durable before any id of the block is used: a crash loses ids but never gives one twice.
pub(crate) fn reserve(connection: &Connection, size: i64) -> Result<Range<i64>, StoreError> {
    let first: i64 = connection
        .prepare_cached("SELECT value FROM meta WHERE name = 'next_job_id'")?
        .query_row([], |row| row.get(0))
        .optional()?
        .unwrap_or(1);
    connection
        .prepare_cached("INSERT OR REPLACE INTO meta (name, value) VALUES ('next_job_id', ?1)")?
        .execute([first + size])?;
    Ok(first..first + size)
}
