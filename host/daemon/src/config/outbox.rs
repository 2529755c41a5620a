//! The sections `[outbox.NAME]`: tables of applications whose rows are relayed into the queue. It never opens one.

use std::{collections::BTreeMap, path::Path};

use leasehold_domain::DurationMs;
use leasehold_store::OutboxMapping;

use super::reader::{Entry, Section};

/// One outbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboxConfig {
    /// Where it is and what its columns are called.
    pub mapping: OutboxMapping,
    /// How often it is looked at.
    pub poll_ms: DurationMs,
}

/// Reads all outboxes.
pub(super) fn read(section: &Section<'_>, base: &Path) -> BTreeMap<String, OutboxConfig> {
    section.entries().into_iter().map(|entry| read_one(&entry, base)).collect()
}

fn read_one(entry: &Entry<'_>, base: &Path) -> (String, OutboxConfig) {
    if entry.name.len() > 64 || !entry.name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte)) {
        entry.error("is no name of an outbox; a name is 1 to 64 of a-z, A-Z, 0-9, '.', '_' and '-'");
    }
    let section = entry.section();
    let column = |name: &str| section.text(name).unwrap_or_else(|| name.to_owned());
    let database = section.text("database");
    if database.is_none() {
        section.error("database", "is missing; it names the application's SQLite file");
    }
    let config = OutboxConfig {
        mapping: OutboxMapping {
            database: base.join(database.unwrap_or_default()),
            table: section.text("table").unwrap_or_else(|| "outbox".to_owned()),
            id: column("id"),
            relayed_at: column("relayed_at"),
            kind: column("kind"),
            payload: column("payload"),
            lane: section.text("lane"),
            priority: section.text("priority"),
            error: section.text("error"),
        },
        poll_ms: section.duration_ms("poll", 200, &(10..=3_600_000)),
    };
    section.refuse_unknown();
    (entry.name.clone(), config)
}
