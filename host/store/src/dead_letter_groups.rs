//! Open dead letters by kind, error class and version. Their numbers are kept by triggers, so a look at them reads one
//! row for each group, however many dead letters there are.

use leasehold_domain::{IncidentId, TimestampMs};
use rusqlite::{Connection, OptionalExtension};

use crate::{Store, StoreError, arrivals};

/// How many groups are shown at the most; classes are the configuration's, so there are few.
const GROUPS_MAX: i64 = 10_000;

/// The open dead letters of one kind, class and version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetterGroup {
    /// The kind.
    pub kind: String,
    /// The error class.
    pub error_class: String,
    /// The version that they died on; none when they ran on none.
    pub version: Option<String>,
    /// How many.
    pub letters: u64,
    /// When the first of them died.
    pub first_at_ms: TimestampMs,
    /// When the last did.
    pub last_at_ms: TimestampMs,
    /// The last one.
    pub latest: i64,
    /// The open incident that covers them.
    pub incident: Option<IncidentId>,
}

/// Dead letters that paged somebody, of which some are open, and for which no incident is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UncoveredArrivals {
    /// The kind.
    pub kind: String,
    /// The error class.
    pub error_class: String,
    /// How many have arrived.
    pub arrivals: u64,
    /// When the first of them did.
    pub first_at_ms: TimestampMs,
    /// How many are open.
    pub letters: u64,
}

impl Store {
    /// The groups of open dead letters.
    pub async fn dead_letter_groups(&self) -> Result<Vec<DeadLetterGroup>, StoreError> {
        self.ask(groups).await
    }

    /// What paged somebody and still waits for an incident.
    pub async fn uncovered_arrivals(&self) -> Result<Vec<UncoveredArrivals>, StoreError> {
        self.ask(uncovered).await
    }

    /// Whether a dead letter of a kind, and of a class of it if one is named, has ever been kept and not been forgotten.
    pub async fn has_dead_letters(&self, kind: &str, class: Option<&str>) -> Result<bool, StoreError> {
        let (kind, class) = (kind.to_owned(), class.map(str::to_owned));
        self.ask(move |connection| {
            let found = connection
                .prepare_cached(
                    "SELECT 1 FROM dead_letters WHERE kind = ?1 AND (?2 IS NULL OR error_class = ?2) LIMIT 1",
                )?
                .query_row((kind, class), |_| Ok(()))
                .optional()?;
            Ok(found.is_some())
        })
        .await
    }
}

fn groups(connection: &Connection) -> Result<Vec<DeadLetterGroup>, StoreError> {
    // Ids go up as times do, and an index finds the least and the greatest of a group at once.
    let mut statement = connection.prepare_cached(
        "SELECT g.kind, g.error_class, g.version, g.letters, first.died_at, last.died_at, last.id
         FROM open_dead_letters g
         JOIN dead_letters first ON first.id = (
             SELECT min(d.id) FROM dead_letters d WHERE d.kind = g.kind AND d.error_class = g.error_class
                 AND coalesce(d.version, '') = g.version AND d.state = 'open')
         JOIN dead_letters last ON last.id = (
             SELECT max(d.id) FROM dead_letters d WHERE d.kind = g.kind AND d.error_class = g.error_class
                 AND coalesce(d.version, '') = g.version AND d.state = 'open')
         ORDER BY g.kind, g.error_class, g.version LIMIT ?1",
    )?;
    let rows = statement.query_map([GROUPS_MAX], |row| {
        Ok(DeadLetterGroup {
            kind: row.get(0)?,
            error_class: row.get(1)?,
            version: row.get::<_, Option<String>>(2)?.filter(|version| !version.is_empty()),
            letters: row.get(3)?,
            first_at_ms: row.get(4)?,
            last_at_ms: row.get(5)?,
            latest: row.get(6)?,
            incident: None,
        })
    })?;
    let mut groups = rows.collect::<Result<Vec<_>, _>>()?;
    for group in &mut groups {
        group.incident = arrivals::covering(connection, &group.kind, &group.error_class)?;
    }
    Ok(groups)
}

fn uncovered(connection: &Connection) -> Result<Vec<UncoveredArrivals>, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT u.kind, u.error_class, u.arrivals, u.first_at,
                (SELECT coalesce(sum(g.letters), 0) FROM open_dead_letters g
                 WHERE g.kind = u.kind AND g.error_class = u.error_class) AS letters
         FROM uncovered_arrivals u
         WHERE u.paged_at > 0 AND NOT EXISTS (
             SELECT 1 FROM incidents i WHERE i.kind = u.kind AND i.error_class IN (u.error_class, '') AND i.state = 'open')
         ORDER BY u.kind, u.error_class LIMIT ?1",
    )?;
    let rows = statement.query_map([GROUPS_MAX], |row| {
        Ok(UncoveredArrivals {
            kind: row.get(0)?,
            error_class: row.get(1)?,
            arrivals: row.get(2)?,
            first_at_ms: row.get(3)?,
            letters: row.get(4)?,
        })
    })?;
    let all = rows.collect::<Result<Vec<_>, _>>()?;
    Ok(all.into_iter().filter(|arrivals| arrivals.letters > 0).collect())
}
