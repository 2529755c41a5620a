//! Kinds as operators see them: how deep each is, and which are paused. It never holds a kind's rules.

use leasehold_domain::{JobState, Kind, TimestampMs};
use rusqlite::{Connection, params};

use crate::{Store, StoreError, audit, rows, writer::Urgency};

/// How many jobs of a kind stand in a state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KindDepth {
    /// The kind, as stored.
    pub kind: String,
    /// The state.
    pub state: JobState,
    /// How many.
    pub jobs: u64,
    /// When the first of them became visible.
    pub oldest_visible_at_ms: TimestampMs,
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
    /// How many jobs of each kind wait, are ready and are leased.
    pub async fn depths(&self) -> Result<Vec<KindDepth>, StoreError> {
        self.ask(|connection| {
            let mut statement = connection.prepare_cached(
                "SELECT kind, state, held, count(*), min(visible_at) FROM jobs GROUP BY kind, state, held",
            )?;
            let rows = statement.query_map([], |row| {
                Ok(KindDepth {
                    kind: row.get(0)?,
                    state: rows::live_state(row.get(1)?, row.get(2)?),
                    jobs: row.get(3)?,
                    oldest_visible_at_ms: row.get(4)?,
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
