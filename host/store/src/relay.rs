//! Rows of an outbox become jobs: each once, whatever happens between the job's commit and the row's mark. Which rows
//! wait for their mark stands here, in the transaction that made their jobs, for as long as the mark is not confirmed.

use leasehold_domain::{JobId, TimestampMs};
use rusqlite::{OptionalExtension, params};

use crate::{
    Store, StoreError,
    enqueue::{self, EnqueueAnswer, EnqueueContext, EnqueueJob, SealedJob},
    transaction::Transaction,
    writer::Urgency,
};

/// A row as a checked job.
#[derive(Debug, Clone)]
pub struct RelayedRow {
    /// The row's id in its outbox.
    pub id: String,
    /// The job.
    pub job: EnqueueJob,
}

/// What became of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Relayed {
    /// Its job is durable, now or from before; the row can be marked.
    Durable(JobId),
    /// A job with its key and another payload was there first.
    KeyConflict(JobId),
    /// The queue is as deep as the configuration allows; the row has to wait.
    QueueFull,
}

impl Store {
    /// Makes rows jobs, in one transaction. Answers stand in the order of the rows.
    pub async fn relay(
        &self,
        source: &str,
        rows: Vec<RelayedRow>,
        now_ms: TimestampMs,
        priority_step_ms: i64,
        depth_max: u64,
    ) -> Result<Vec<Relayed>, StoreError> {
        self.note_time(now_ms);
        let keys = self.shared.keys.get()?;
        let ids = self.shared.job_ids.take(&self.shared.writer, rows.len()).await?;
        let (row_ids, jobs): (Vec<_>, Vec<_>) = rows.into_iter().map(|row| (row.id, row.job)).unzip();
        let sealed = row_ids.into_iter().zip(SealedJob::all(keys, ids, jobs)?).collect::<Vec<_>>();
        let context = EnqueueContext { now_ms, priority_step_ms };
        let source = source.to_owned();
        self.shared
            .writer
            .call(Urgency::Usual, move |transaction| {
                let mut room = depth_max.saturating_sub(transaction.depth()?);
                sealed.iter().map(|(id, job)| relay(transaction, &source, id, job, context, &mut room)).collect()
            })
            .await
    }

    /// Rows whose jobs are durable and whose marks are not confirmed.
    pub async fn unconfirmed_rows(&self, source: &str) -> Result<Vec<String>, StoreError> {
        let source = source.to_owned();
        self.ask_for_daemon(move |connection| {
            let mut statement = connection.prepare_cached("SELECT row_id FROM relayed_rows WHERE source = ?1")?;
            let rows = statement.query_map([source], |row| row.get(0))?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
        .await
    }

    /// The marks of these rows are durable in their outbox; nothing else is to be remembered of them.
    pub async fn confirm_rows(&self, source: &str, ids: Vec<String>) -> Result<(), StoreError> {
        let source = source.to_owned();
        self.shared
            .writer
            .call(Urgency::Usual, move |connection| {
                for id in &ids {
                    connection
                        .prepare_cached("DELETE FROM relayed_rows WHERE source = ?1 AND row_id = ?2")?
                        .execute([&source, id])?;
                }
                Ok(())
            })
            .await
    }
}

fn relay(
    transaction: &Transaction<'_>,
    source: &str,
    row: &str,
    job: &SealedJob,
    context: EnqueueContext,
    room: &mut u64,
) -> Result<Relayed, StoreError> {
    let before: Option<i64> = transaction
        .prepare_cached("SELECT job_id FROM relayed_rows WHERE source = ?1 AND row_id = ?2")?
        .query_row([source, row], |row| row.get(0))
        .optional()?;
    if let Some(job) = before {
        return Ok(Relayed::Durable(JobId(job)));
    }
    match enqueue::insert(transaction, job, &format!("outbox:{source}"), context, room)? {
        EnqueueAnswer::Enqueued { id, .. } | EnqueueAnswer::Duplicate { id, .. } => {
            transaction
                .prepare_cached("INSERT INTO relayed_rows (source, row_id, job_id) VALUES (?1, ?2, ?3)")?
                .execute(params![source, row, id.0])?;
            Ok(Relayed::Durable(id))
        }
        EnqueueAnswer::KeyConflict { id } => Ok(Relayed::KeyConflict(id)),
        EnqueueAnswer::QueueFull => Ok(Relayed::QueueFull),
    }
}
