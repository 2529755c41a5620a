//! The daemon's own health, as conditions that are raised and cleared where they are met. They are kept in memory alone,
//! so that they can be told when the database can't be written; a restart meets them again.

pub(crate) mod command;
pub(crate) mod document;
pub(crate) mod send;
pub(crate) mod webhook;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

use leasehold_domain::{DurationMs, TimestampMs};
use tokio::sync::Notify;

use crate::metrics;

/// How long after a page the same alert pages nobody: one that comes and goes is told once.
const QUIET_MS: DurationMs = 600_000;

/// What can be wrong with the daemon itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Alert {
    /// Verdicts, dead letters among them, can't be written.
    VerdictsHeld,
    /// Leases can't be extended.
    LeasesNotExtended,
    /// A stored component is missing or does not have its digest.
    ComponentDamaged,
    /// Less disk is free than the reserve.
    DiskLow,
    /// The sealing key is missing or wrong.
    KeyUnavailable,
    /// An outbox can't be relayed.
    OutboxStuck,
    /// Pages can't be delivered.
    PagesUndelivered,
}

/// The name under which dead letters without an incident are shown beside the daemon's own alerts.
pub(crate) const DEAD_LETTERS: &str = "dead_letters";

impl Alert {
    const ALL: [Self; 7] = [
        Self::VerdictsHeld,
        Self::LeasesNotExtended,
        Self::ComponentDamaged,
        Self::DiskLow,
        Self::KeyUnavailable,
        Self::OutboxStuck,
        Self::PagesUndelivered,
    ];

    /// Its stable name.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::VerdictsHeld => "verdicts_held",
            Self::LeasesNotExtended => "leases_not_extended",
            Self::ComponentDamaged => "component_damaged",
            Self::DiskLow => "disk_low",
            Self::KeyUnavailable => "key_unavailable",
            Self::OutboxStuck => "outbox_stuck",
            Self::PagesUndelivered => "pages_undelivered",
        }
    }

    /// What it means.
    pub(crate) const fn meaning(self) -> &'static str {
        match self {
            Self::VerdictsHeld => {
                "ends of attempts, dead letters among them, can't be written; they are held in memory and tried again, \
                 and no handler runs again for it"
            }
            Self::LeasesNotExtended => {
                "heartbeats can't be written; attempts whose leases run out are stopped and tried again"
            }
            Self::ComponentDamaged => {
                "the stored component of a handler version is missing or does not have its digest; the version can't \
                 go live"
            }
            Self::DiskLow => "less disk is free than disk_reserve; nothing is enqueued, running jobs go on",
            Self::KeyUnavailable => {
                "the sealing key is missing or wrong; what is there is shown, nothing is enqueued or run"
            }
            Self::OutboxStuck => "an outbox can't be relayed; its rows wait where they are",
            Self::PagesUndelivered => "pages can't be delivered; they are tried again",
        }
    }

    /// What to do about it.
    pub(crate) const fn to_do(self) -> &'static str {
        match self {
            Self::VerdictsHeld | Self::LeasesNotExtended => {
                "make room on the disk of data_dir, or mend it, and let the daemon run: stopping it loses what it holds, \
                 and those attempts are then counted as stopped"
            }
            Self::ComponentDamaged => "push the same component again: leasehold handlers push FILE",
            Self::DiskLow => "make room on the disk of data_dir, or lower disk_reserve under [queue] and reload",
            Self::KeyUnavailable => "put the key file back, or name it as key_file under [daemon], and start again",
            Self::OutboxStuck => "mend the outbox's file, its columns under [outbox] or the queue's depth",
            Self::PagesUndelivered => {
                "mend the receiver or [alerts], then leasehold reload; see leasehold alerts pages"
            }
        }
    }

    /// Whether it pages somebody. That pages can't be delivered can't be told by a page.
    const fn pages(self) -> bool {
        !matches!(self, Self::PagesUndelivered)
    }
}

/// What was met, and by whom.
#[derive(Debug, Clone)]
pub(crate) struct Met {
    pub(crate) alert: Alert,
    /// What it is about where there can be several; else empty.
    pub(crate) subject: String,
    /// Who clears it. An alert holds as long as one of those who met it has not.
    pub(crate) holder: String,
    /// The stable code of what went wrong.
    pub(crate) code: &'static str,
    /// What was found, for those on this machine.
    pub(crate) detail: String,
}

impl Met {
    /// What concerns the daemon as a whole.
    pub(crate) fn new(alert: Alert, code: &'static str, detail: impl Into<String>) -> Self {
        Self { alert, subject: String::new(), holder: String::new(), code, detail: detail.into() }
    }
}

/// An alert that holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Active {
    pub(crate) alert: Alert,
    pub(crate) subject: String,
    pub(crate) code: &'static str,
    pub(crate) detail: String,
    pub(crate) since_ms: TimestampMs,
    /// What receivers tell repetitions of its page by.
    pub(crate) token: String,
    /// How many tries to page have failed.
    pub(crate) failures: u32,
    holders: BTreeSet<String>,
    /// When its page is due; none once it has been sent.
    page_due_at_ms: Option<TimestampMs>,
}

type Key = (Alert, String);

#[derive(Debug, Default)]
struct State {
    active: BTreeMap<Key, Active>,
    paged_at_ms: BTreeMap<Key, TimestampMs>,
}

/// All alerts of this process.
#[derive(Debug)]
pub(crate) struct Alerts {
    state: Mutex<State>,
    /// Rung when a page may be due.
    pub(crate) due: Notify,
}

impl Alerts {
    pub(crate) fn new() -> Self {
        for name in Alert::ALL.map(Alert::name).into_iter().chain([DEAD_LETTERS]) {
            metrics::alert(name, false);
        }
        Self { state: Mutex::default(), due: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something is wrong, now or still.
    pub(crate) fn raise(&self, met: Met, now_ms: TimestampMs) {
        if self.lock().raise(met, now_ms) {
            self.due.notify_one();
        }
    }

    /// A holder no longer meets it; an alert that nobody holds is over.
    pub(crate) fn clear(&self, alert: Alert, holder: &str) {
        let mut state = self.lock();
        for active in state.active.values_mut().filter(|active| active.alert == alert) {
            active.holders.remove(holder);
        }
        let before = state.active.len();
        state.active.retain(|_, active| !active.holders.is_empty());
        if state.active.len() != before {
            metrics::alert(alert.name(), state.active.keys().any(|(other, _)| *other == alert));
            tracing::info!(alert = alert.name(), "an alert is over");
        }
    }

    /// What holds now.
    pub(crate) fn active(&self) -> Vec<Active> {
        self.lock().active.values().cloned().collect()
    }

    /// The alert whose page is due first, and when it is.
    pub(crate) fn next_page(&self) -> Option<(TimestampMs, Active)> {
        let state = self.lock();
        let waiting = state.active.values().filter_map(|active| Some((active.page_due_at_ms?, active)));
        waiting.min_by_key(|(due_at_ms, _)| *due_at_ms).map(|(due_at_ms, active)| (due_at_ms, active.clone()))
    }

    /// An alert's page was sent, also when the alert is over by now.
    pub(crate) fn paged(&self, active: &Active, now_ms: TimestampMs) {
        let key = (active.alert, active.subject.clone());
        let mut state = self.lock();
        if let Some(still) = state.active.get_mut(&key).filter(|still| still.token == active.token) {
            still.page_due_at_ms = None;
        }
        state.paged_at_ms.insert(key, now_ms);
    }

    /// An alert's page could not be sent; it is due again if the alert still holds then.
    pub(crate) fn page_failed(&self, active: &Active, due_at_ms: TimestampMs) {
        let mut state = self.lock();
        let still = state.active.get_mut(&(active.alert, active.subject.clone()));
        if let Some(still) = still.filter(|still| still.token == active.token) {
            still.failures = still.failures.saturating_add(1);
            still.page_due_at_ms = Some(due_at_ms);
        }
    }
}

impl State {
    /// Answers whether the alert is new.
    fn raise(&mut self, met: Met, now_ms: TimestampMs) -> bool {
        let key = (met.alert, met.subject.clone());
        if let Some(active) = self.active.get_mut(&key) {
            active.holders.insert(met.holder);
            (active.code, active.detail) = (met.code, met.detail);
            return false;
        }
        let quiet_until_ms = self.paged_at_ms.get(&key).map_or(now_ms, |paged_at_ms| paged_at_ms + QUIET_MS);
        let active = Active {
            alert: met.alert,
            subject: met.subject,
            code: met.code,
            detail: met.detail,
            since_ms: now_ms,
            token: draw_token(),
            failures: 0,
            holders: BTreeSet::from([met.holder]),
            page_due_at_ms: met.alert.pages().then(|| quiet_until_ms.max(now_ms)),
        };
        metrics::alert(met.alert.name(), true);
        self.active.insert(key, active);
        true
    }
}

/// A token that no other page has. Without random bytes of the system receivers may take two pages for one.
fn draw_token() -> String {
    let mut bytes = [0; 16];
    let _ = getrandom::fill(&mut bytes);
    hex::encode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn met(subject: &str, holder: &str) -> Met {
        Met { subject: subject.into(), holder: holder.into(), ..Met::new(Alert::VerdictsHeld, "disk_full", "") }
    }

    #[test]
    fn q11_an_alert_holds_until_all_who_met_it_have_cleared_it() {
        let alerts = Alerts::new();
        alerts.raise(met("", "1#1"), 10);
        alerts.raise(met("", "2#1"), 20);
        alerts.clear(Alert::VerdictsHeld, "1#1");
        assert_eq!(alerts.active().iter().map(|active| active.since_ms).collect::<Vec<_>>(), [10]);
        alerts.clear(Alert::VerdictsHeld, "2#1");
        assert_eq!(alerts.active(), []);
    }

    #[test]
    fn o2_an_alert_pages_once_and_not_again_within_the_quiet_time() {
        let alerts = Alerts::new();
        alerts.raise(met("", "a"), 10);
        let (due_at_ms, active) = alerts.next_page().unwrap();
        assert_eq!(due_at_ms, 10);
        alerts.page_failed(&active, 500);
        assert_eq!(alerts.next_page().unwrap().0, 500);
        alerts.paged(&active, 600);
        assert!(alerts.next_page().is_none());
        alerts.clear(Alert::VerdictsHeld, "a");
        alerts.raise(met("", "a"), 700);
        assert_eq!(alerts.next_page().unwrap().0, 600 + QUIET_MS);
        // A page of the time before says nothing of this one.
        alerts.paged(&active, 800);
        assert!(alerts.next_page().is_some());
    }

    #[test]
    fn o2_that_pages_can_not_be_delivered_is_not_paged() {
        let alerts = Alerts::new();
        alerts.raise(Met { alert: Alert::PagesUndelivered, ..met("", "") }, 10);
        assert!(alerts.next_page().is_none());
    }
}
