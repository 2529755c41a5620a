//! Kinds as operators see them: how deep each is, and which are paused. It never holds a kind's rules.

use leasehold_domain::{Kind, TimestampMs};
use rusqlite::{Connection, params};

use crate::{Store, StoreError, audit, writer::Urgency};

/// How deep a kind is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KindDepth {
    /// The kind, as stored.
    pub kind: String,
    /// How many jobs are not visible yet.
    pub waiting: u64,
    /// How many are visible and not leased, held ones included.
    pub ready: u64,
    /// How many are leased.
    pub leased: u64,
    /// When the one that has been ready the longest became visible.
    pub oldest_ready_at_ms: Option<TimestampMs>,
}

impl KindDepth {
    /// How many jobs have not ended.
    #[must_use]
    pub const fn jobs(&self) -> u64 {
        self.waiting + self.ready + self.leased
    }
}

/// A paused kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paused {
    /// The kind.
    pub kind: String,
    /// Who paused it.
    pub by: String,
    /// When.
    pub at_ms: TimestampMs,
}

impl Store {
    /// How many jobs of each kind wait, are ready and are leased. It reads a row for each kind, however deep they are.
    pub async fn depths(&self) -> Result<Vec<KindDepth>, StoreError> {
        self.ask(|connection| {
            let mut statement = connection.prepare_cached(
                "SELECT kind, waiting, ready, leased,
                        (SELECT min(visible_at) FROM jobs WHERE jobs.kind = depths.kind AND (state = 1 OR held = 1))
                 FROM depths WHERE depth > 0",
            )?;
            let rows = statement.query_map([], |row| {
                Ok(KindDepth {
                    kind: row.get(0)?,
                    waiting: row.get(1)?,
                    ready: row.get(2)?,
                    leased: row.get(3)?,
                    oldest_ready_at_ms: row.get(4)?,
                })
            })?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
        .await
    }

    /// The paused kinds.
    pub async fn paused_kinds(&self) -> Result<Vec<Paused>, StoreError> {
        self.ask(paused).await
    }

    /// Pauses a kind or lets it go on, in one transaction with its audit row. False when it was so already.
    pub async fn pause_kind(
        &self,
        kind: &Kind,
        pause: bool,
        actor: &str,
        now_ms: TimestampMs,
    ) -> Result<bool, StoreError> {
        let (kind, actor) = (kind.clone(), actor.to_owned());
        self.shared
            .writer
            .call(Urgency::Usual, move |connection| {
                let changed = if pause {
                    connection
                        .prepare_cached(
                            "INSERT OR IGNORE INTO paused_kinds (kind, paused_at, paused_by) VALUES (?1, ?2, ?3)",
                        )?
                        .execute(params![kind.as_str(), now_ms, actor])?
                } else {
                    connection.prepare_cached("DELETE FROM paused_kinds WHERE kind = ?1")?.execute([kind.as_str()])?
                };
                if changed > 0 {
                    let action = if pause { "kind.pause" } else { "kind.resume" };
                    audit::write(connection, now_ms, &actor, action, kind.as_str(), &serde_json::json!({}))?;
                }
                Ok(changed > 0)
            })
            .await
    }
}

fn paused(connection: &Connection) -> Result<Vec<Paused>, StoreError> {
    let mut statement =
        connection.prepare_cached("SELECT kind, paused_by, paused_at FROM paused_kinds ORDER BY kind")?;
    let rows = statement.query_map([], |row| Ok(Paused { kind: row.get(0)?, by: row.get(1)?, at_ms: row.get(2)? }))?;
    Ok(rows.collect::<Result<_, _>>()?)
}
