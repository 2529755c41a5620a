//! The audit log: a row for everything an operator did, written in the transaction that did it. It is never pruned by
//! default.

use leasehold_domain::TimestampMs;
use rusqlite::{Connection, params};

use crate::{Store, StoreError, read::Page, writer::Urgency};

/// One thing that somebody did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditEntry {
    /// The row.
    pub id: i64,
    /// When.
    pub at_ms: TimestampMs,
    /// Who, from the authenticated caller.
    pub actor: String,
    /// What.
    pub action: String,
    /// To what.
    pub subject: String,
    /// How, as JSON.
    pub detail: String,
}

pub(crate) fn write(
    connection: &Connection,
    at_ms: TimestampMs,
    actor: &str,
    action: &str,
    subject: &str,
    detail: &serde_json::Value,
) -> Result<(), StoreError> {
    connection
        .prepare_cached("INSERT INTO audit (at, actor, action, subject, detail) VALUES (?1, ?2, ?3, ?4, ?5)")?
        .execute(params![at_ms, actor, action, subject, detail.to_string()])?;
    Ok(())
}

impl Store {
    /// Records an act that changes nothing in the database itself, such as a reload of the configuration.
    pub async fn record_act(
        &self,
        actor: &str,
        action: &'static str,
        subject: &str,
        detail: serde_json::Value,
        now_ms: TimestampMs,
    ) -> Result<(), StoreError> {
        let (actor, subject) = (actor.to_owned(), subject.to_owned());
        self.shared
            .writer
            .call(Urgency::Usual, move |connection| write(connection, now_ms, &actor, action, &subject, &detail))
            .await
    }

    /// The log, the latest first, from before a row.
    pub async fn audit(&self, before: Option<i64>, max: usize) -> Result<Page<AuditEntry>, StoreError> {
        self.ask(move |connection| {
            let mut statement = connection.prepare_cached(
                "SELECT id, at, actor, action, subject, detail FROM audit WHERE id < ?1 ORDER BY id DESC LIMIT ?2",
            )?;
            let limit = i64::try_from(max).unwrap_or(i64::MAX);
            let rows = statement.query_map([before.unwrap_or(i64::MAX), limit], |row| {
                Ok(AuditEntry {
                    id: row.get(0)?,
                    at_ms: row.get(1)?,
                    actor: row.get(2)?,
                    action: row.get(3)?,
                    subject: row.get(4)?,
                    detail: row.get(5)?,
                })
            })?;
            Ok(Page::new(rows.collect::<Result<_, _>>()?, max, |entry| entry.id))
        })
        .await
    }
}
