//! Relays an application's outbox into the queue: in order, each row once. A row is marked only after its job is durable;
//! between the two, the queue remembers it. Nothing that is wrong with an outbox, or with one of its rows, stops the
//! others.

use std::{collections::HashSet, sync::Arc, time::Duration};

use leasehold_store::{OutboxError, OutboxRow, OutboxSource, Relayed, RelayedRow, StoreError};

use crate::{
    alerts::{Alert, Met},
    clock::wall_ms,
    config::OutboxConfig,
    daemon::Daemon,
    intake::{self, SentJob},
    metrics,
};

/// How many rows become jobs in one transaction.
const BATCH: usize = 200;
/// The longest rest while an outbox can't be read.
const REST_MAX: Duration = Duration::from_secs(10);

/// Why a pass over an outbox ended early. The next one goes on from what is durable.
#[derive(Debug, thiserror::Error)]
enum RelayError {
    #[error(transparent)]
    Outbox(#[from] OutboxError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the queue is full; the rows wait in their outbox")]
    QueueFull,
    #[error("the thread that reads the outbox is gone")]
    Stopped,
}

impl RelayError {
    fn code(&self) -> &'static str {
        match self {
            Self::Outbox(error) => error.code(),
            Self::Store(error) => error.code(),
            Self::QueueFull => "queue_full",
            Self::Stopped => "closed",
        }
    }
}

/// One outbox and what is known of it.
struct Relay {
    daemon: Arc<Daemon>,
    name: String,
    config: OutboxConfig,
    /// Open while nothing has failed.
    source: Option<OutboxSource>,
    /// Rows that can't be jobs and were reported, where no column takes the reason.
    refused: HashSet<String>,
    /// What was reported last, so that it is said once.
    reported: Option<String>,
}

/// Relays one outbox until the daemon's end.
pub(crate) async fn run(daemon: Arc<Daemon>, name: String, config: OutboxConfig) {
    let poll = Duration::from_millis(u64::try_from(config.poll_ms).unwrap_or(0));
    let mut relay = Relay { daemon, name, config, source: None, refused: HashSet::new(), reported: None };
    let mut rest = poll;
    loop {
        match relay.pass().await {
            Ok(()) => {
                relay.report_recovery();
                rest = poll;
            }
            Err(error) => {
                relay.source = None;
                relay.report(&error);
                rest = (rest * 2).clamp(poll, REST_MAX.max(poll));
            }
        }
        tokio::time::sleep(rest).await;
    }
}

impl Relay {
    /// One pass over all rows that are not relayed.
    async fn pass(&mut self) -> Result<(), RelayError> {
        if self.source.is_none() {
            let mapping = self.config.mapping.clone();
            let source = blocking(move || OutboxSource::open(&mapping)).await??;
            self.source = Some(source);
            let unconfirmed = self.daemon.store.unconfirmed_rows(&self.name).await?;
            self.mark(unconfirmed).await?;
        }
        let mut position = i64::MIN;
        loop {
            let rows = self.with_source(move |source| source.rows_after(position, BATCH)).await?;
            let Some(last) = rows.last() else { return Ok(()) };
            position = last.position;
            self.relay(rows).await?;
        }
    }

    async fn relay(&mut self, rows: Vec<OutboxRow>) -> Result<(), RelayError> {
        let mut relayed = Vec::new();
        for row in rows {
            if self.refused.contains(&row.id) {
                continue;
            }
            match self.check(&row) {
                Ok(row) => relayed.push(row),
                Err((code, why)) => self.refuse(row.id, code, why).await?,
            }
        }
        if relayed.is_empty() {
            return Ok(());
        }
        self.daemon.check_disk()?;
        let queue = self.daemon.config().queue.clone();
        let ids: Vec<_> = relayed.iter().map(|row| row.id.clone()).collect();
        let kinds: Vec<_> = relayed.iter().map(|row| row.job.kind.clone()).collect();
        let now_ms = self.daemon.now_ms();
        let answers =
            self.daemon.store.relay(&self.name, relayed, now_ms, queue.priority_step_ms, queue.queue_depth_max).await?;
        fail::fail_point!("relay.enqueued");
        self.daemon.claimable.notify_one();
        let mut durable = Vec::new();
        let mut is_full = false;
        for ((id, kind), answer) in ids.into_iter().zip(kinds).zip(answers) {
            match answer {
                Relayed::Durable(_) => {
                    metrics::job_enqueued(kind.as_str());
                    durable.push(id);
                }
                Relayed::KeyConflict(first) => {
                    let why = format!("job {first} has its key and another payload");
                    self.refuse(id, "key_conflict", why).await?;
                }
                Relayed::QueueFull => is_full = true,
            }
        }
        self.mark(durable).await?;
        if is_full { Err(RelayError::QueueFull) } else { Ok(()) }
    }

    /// The mark is durable in the outbox before the queue forgets the row: a crash in between only marks it again.
    async fn mark(&mut self, ids: Vec<String>) -> Result<(), RelayError> {
        if ids.is_empty() {
            return Ok(());
        }
        let marked = ids.clone();
        self.with_source(move |source| source.mark(&marked, wall_ms())).await?;
        fail::fail_point!("relay.marked", |_| Ok(()));
        Ok(self.daemon.store.confirm_rows(&self.name, ids).await?)
    }

    fn check(&self, row: &OutboxRow) -> Result<RelayedRow, (&'static str, String)> {
        let config = self.daemon.config();
        let sent = SentJob {
            kind: row.kind.clone(),
            key: Some(format!("outbox:{}:{}", self.name, row.id)),
            lane: row.lane.clone(),
            payload: row.payload.clone(),
            priority: row.priority,
            ..SentJob::default()
        };
        let job =
            intake::check(&config, sent, self.daemon.now_ms()).map_err(|error| (error.code(), error.to_string()))?;
        Ok(RelayedRow { id: row.id.clone(), job })
    }

    /// A row that can't be a job is reported once, and the rows behind it go on.
    async fn refuse(&mut self, id: String, code: &'static str, why: String) -> Result<(), RelayError> {
        tracing::error!(outbox = %self.name, row = %id, code, %why, "a row of an outbox can't be a job; it is left where it is");
        let row = id.clone();
        let noted = self.with_source(move |source| source.note_refusal(&row, &why)).await?;
        if !noted {
            self.refused.insert(id);
        }
        Ok(())
    }

    /// Asks the open outbox something on a thread that may block.
    async fn with_source<T: Send + 'static>(
        &mut self,
        ask: impl FnOnce(&OutboxSource) -> Result<T, OutboxError> + Send + 'static,
    ) -> Result<T, RelayError> {
        let source = self.source.take().ok_or(RelayError::Stopped)?;
        let (source, answer) = blocking(move || {
            let answer = ask(&source);
            (source, answer)
        })
        .await?;
        self.source = Some(source);
        Ok(answer?)
    }

    fn report(&mut self, error: &RelayError) {
        let text = error.to_string();
        let met = Met::new(Alert::OutboxStuck, error.code(), &*text);
        let met = Met { subject: self.name.clone(), holder: self.name.clone(), ..met };
        self.daemon.alerts.raise(met, self.daemon.now_ms());
        if self.reported.as_ref() != Some(&text) {
            tracing::error!(outbox = %self.name, code = error.code(), %error, "an outbox can't be relayed now; its rows wait");
            self.reported = Some(text);
        }
    }

    fn report_recovery(&mut self) {
        if self.reported.take().is_some() {
            self.daemon.alerts.clear(Alert::OutboxStuck, &self.name);
            tracing::info!(outbox = %self.name, "the outbox is relayed again");
        }
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, RelayError> {
    tokio::task::spawn_blocking(work).await.map_err(|_| RelayError::Stopped)
}
