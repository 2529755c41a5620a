//! Sends pages, at least once each: what is due goes out, what was not taken waits with backoff, and how it went is
//! recorded afterwards, so that a kill in between sends it again under the same id. Nothing that ends an attempt waits
//! for it. The daemon's own alerts go first, and need no database.

use std::sync::Arc;

use leasehold_domain::{TimestampMs, backoff::Backoff};
use leasehold_store::{PageEnd, StoreError};

use crate::{
    alerts::{Alert, Met, document, send::send},
    daemon::Daemon,
    metrics,
    settlement::draw_jitter,
    trouble::Trouble,
};

/// The delay between tries to send a page.
const BACKOFF: Backoff = Backoff { min_ms: 1_000, max_ms: 300_000 };
/// How long the database is left alone after it failed.
const REST_MS: i64 = 1_000;
/// The longest sleep; only a safeguard, since whatever makes a page due rings.
const SLEEP_MAX_MS: i64 = 60_000;

struct Pager {
    daemon: Arc<Daemon>,
    /// How the last page went, until that is recorded. No other page of dead letters is sent before.
    unrecorded: Option<(i64, PageEnd)>,
}

/// Sends pages until the daemon's end.
pub(crate) async fn run(daemon: Arc<Daemon>) {
    let mut pager = Pager { daemon: Arc::clone(&daemon), unrecorded: None };
    let mut trouble = Trouble::default();
    loop {
        let alert_at_ms = pager.send_alerts().await;
        let sent = pager.send_page().await;
        trouble.note("reading and recording pages", &sent);
        let page_at_ms = match sent {
            Ok(due_at_ms) => due_at_ms,
            Err(StoreError::Closed) => return,
            Err(_) => daemon.now_ms() + REST_MS,
        };
        let now_ms = daemon.now_ms();
        let until = daemon.clock.instant_at(alert_at_ms.min(page_at_ms).clamp(now_ms, now_ms + SLEEP_MAX_MS));
        tokio::select! {
            () = daemon.alerts.due.notified() => {}
            () = tokio::time::sleep_until(until.into()) => {}
        }
    }
}

impl Pager {
    /// Sends the alerts that are due. Answers when the next one is.
    async fn send_alerts(&self) -> TimestampMs {
        let alerts = &self.daemon.alerts;
        while let Some((due_at_ms, active)) = alerts.next_page() {
            if due_at_ms > self.daemon.now_ms() {
                return due_at_ms;
            }
            match self.deliver(&document::of_alert(&active), active.failures).await {
                PageEnd::Sent { by } => {
                    alerts.paged(&active, self.daemon.now_ms());
                    tracing::info!(alert = active.alert.name(), by, "an alert was sent");
                }
                PageEnd::Failed { due_at_ms, .. } => alerts.page_failed(&active, due_at_ms),
            }
        }
        TimestampMs::MAX
    }

    /// Sends the first page of dead letters if it is due. Answers when to look again.
    async fn send_page(&mut self) -> Result<TimestampMs, StoreError> {
        self.record().await?;
        let Some(page) = self.daemon.store.unsent_pages(1).await?.pop() else { return Ok(TimestampMs::MAX) };
        if page.due_at_ms > self.daemon.now_ms() {
            return Ok(page.due_at_ms);
        }
        fail::fail_point!("page.send");
        let end = self.deliver(&document::of_dead_letters(&page), page.failures).await;
        fail::fail_point!("page.sent");
        self.unrecorded = Some((page.id, end));
        self.record().await?;
        Ok(self.daemon.now_ms())
    }

    /// Records how the last page went. Until that is durable, no further page is sent.
    async fn record(&mut self) -> Result<(), StoreError> {
        if let Some((page, end)) = &self.unrecorded {
            self.daemon.store.end_page(*page, end.clone(), self.daemon.now_ms()).await?;
            if let PageEnd::Sent { by } = end {
                tracing::info!(page, by, "a page was sent");
            }
            self.unrecorded = None;
        }
        Ok(())
    }

    /// Sends one page, which has failed so many times before.
    async fn deliver(&self, page: &document::Document, failures: u32) -> PageEnd {
        let now_ms = self.daemon.now_ms();
        match send(&self.daemon.config().alerts, page, now_ms).await {
            Ok(by) => {
                metrics::page_sent(by);
                self.daemon.alerts.clear(Alert::PagesUndelivered, "");
                PageEnd::Sent { by }
            }
            Err(error) => {
                metrics::page_failed();
                let delay_ms = BACKOFF.delay_ms(failures.saturating_add(1), draw_jitter());
                tracing::warn!(page = %page.id, %error, delay_ms, "a page could not be sent; it is tried again");
                self.undelivered(&error);
                PageEnd::Failed { error, due_at_ms: self.daemon.now_ms() + delay_ms }
            }
        }
    }

    fn undelivered(&self, error: &str) {
        let met = Met::new(Alert::PagesUndelivered, "page_not_taken", error);
        self.daemon.alerts.raise(met, self.daemon.now_ms());
    }
}
