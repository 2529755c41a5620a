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

/// Which part of the log to list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditFilter {
    /// Acts of this actor.
    pub actor: Option<String>,
    /// This act, or all acts on what stands before the full stop: `dead_letter` finds `dead_letter.replay`.
    pub action: Option<String>,
    /// Acts on this.
    pub subject: Option<String>,
    /// Acts from this time on.
    pub since_ms: Option<TimestampMs>,
    /// Acts before this time.
    pub until_ms: Option<TimestampMs>,
    /// Before this row.
    pub before: Option<i64>,
}

fn list(connection: &Connection, filter: &AuditFilter, max: usize) -> Result<Page<AuditEntry>, StoreError> {
    // What is not asked for stands in no condition, so that an index serves what is.
    let actor = filter.actor.as_ref().map_or("", |_| "AND actor = ?2");
    let subject = filter.subject.as_ref().map_or("", |_| "AND subject = ?4");
    let mut statement = connection.prepare_cached(&format!(
        "SELECT id, at, actor, action, subject, detail FROM audit
         WHERE id < ?1 {actor} {subject}
           AND (?3 IS NULL OR action = ?3 OR substr(action, 1, length(?3) + 1) = ?3 || '.')
           AND at >= ?5 AND at < ?6
         ORDER BY id DESC LIMIT ?7"
    ))?;
    let parameters = params![
        filter.before.unwrap_or(i64::MAX),
        filter.actor,
        filter.action,
        filter.subject,
        filter.since_ms.unwrap_or(i64::MIN),
        filter.until_ms.unwrap_or(i64::MAX),
        i64::try_from(max).unwrap_or(i64::MAX)
    ];
    let rows = statement.query_map(parameters, |row| {
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

    /// The log, the latest first.
    pub async fn audit(&self, filter: AuditFilter, max: usize) -> Result<Page<AuditEntry>, StoreError> {
        self.ask(move |connection| list(connection, &filter, max)).await
    }
}
