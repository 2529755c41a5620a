//! Puts refused calls and refused acts into the audit log, a bounded number of rows whatever is sent. A refusal that can't
//! be written is logged and stays a refusal.

use std::{
    sync::{Arc, PoisonError},
    time::Duration,
};

use leasehold_domain::refusals::{Refused, RefusedRow};
use serde_json::json;

use crate::{daemon::Daemon, metrics};

/// How often counts are looked for that are still to be written.
const PERIOD: Duration = Duration::from_secs(20);

impl Daemon {
    /// Notes a refusal: the first of its kind in a minute is in the log when this returns.
    pub(crate) async fn note_refusal(&self, refused: Refused) {
        metrics::call_refused(&refused.code);
        let now_ms = self.now_ms();
        let rows = self.refusals.lock().unwrap_or_else(PoisonError::into_inner).note(refused, now_ms);
        self.record_refusals(rows).await;
    }

    /// Writes what is counted and not written yet. To be called when the daemon stops.
    pub(crate) async fn record_last_refusals(&self) {
        let rows = self.refusals.lock().unwrap_or_else(PoisonError::into_inner).end();
        self.record_refusals(rows).await;
    }

    async fn record_refusals(&self, rows: Vec<RefusedRow>) {
        for RefusedRow { refused, count } in rows {
            let mut detail = json!({ "code": refused.code, "count": count });
            if let Some(role) = &refused.needed_role {
                detail["needed_role"] = json!(role);
            }
            if let Some(peer) = &refused.peer {
                detail["peer"] = json!(peer);
            }
            // An act stands beside those that went through: under what it was of.
            let (action, subject) = match &refused.subject {
                Some(subject) => ("act.refused", subject),
                None => ("access.refused", &refused.operation),
            };
            if refused.subject.is_some() {
                detail["operation"] = json!(refused.operation);
            }
            let recorded = self.store.record_act(&refused.actor, action, subject, detail, self.now_ms()).await;
            if let Err(error) = recorded {
                tracing::error!(code = error.code(), %error, actor = refused.actor, operation = refused.operation, "a refused call could not be recorded");
            }
        }
    }
}

/// Writes the counts of minutes that are over, for as long as the daemon runs.
pub(crate) async fn run(daemon: Arc<Daemon>) {
    let mut ticks = tokio::time::interval(PERIOD);
    loop {
        ticks.tick().await;
        let rows = daemon.refusals.lock().unwrap_or_else(PoisonError::into_inner).end_minute(daemon.now_ms());
        daemon.record_refusals(rows).await;
    }
}
