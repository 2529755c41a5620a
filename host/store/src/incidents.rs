//! Incidents: opened, edited and closed, each in one transaction with its audit row. While one is open, what it covers
//! is counted on it and pages nobody; what it says of a fix holds for replays for good.

use leasehold_domain::{ErrorClass, HandlerVersion, IncidentId, Kind, TimestampMs, incident::Fix};
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde_json::json;

use crate::{
    Store, StoreError, arrivals, audit,
    pages::{self, PageRecord},
    read::Page,
    writer::Urgency,
};

/// How many pages are shown of one incident; they double, so there are few.
const PAGES_MAX: i64 = 100;

/// An incident that is to be opened.
#[derive(Debug, Clone)]
pub struct OpenIncident {
    /// For this kind.
    pub kind: Kind,
    /// For this class of it alone.
    pub error_class: Option<ErrorClass>,
    /// What is known.
    pub note: String,
    /// The first version that is fixed.
    pub fixed_in: Option<HandlerVersion>,
    /// Who opens it, from the authenticated caller.
    pub actor: String,
    /// The queue's time.
    pub now_ms: TimestampMs,
}

/// What became of an incident that was to be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opened {
    /// It is open.
    Now(IncidentId),
    /// One is open for the same already.
    Already(IncidentId),
}

/// What is changed of an incident.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IncidentChange {
    /// The version that is fixed, or that none is.
    FixedIn(Option<HandlerVersion>),
    /// It is closed, perhaps with the version that is fixed.
    Close {
        /// What came of it.
        note: String,
        /// The first version that is fixed; what was said before holds when it is absent.
        fixed_in: Option<HandlerVersion>,
    },
}

/// What became of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Changed {
    /// It is durable.
    Now,
    /// It was closed before.
    AlreadyClosed,
    /// There is no such incident.
    NotFound,
}

/// An incident as it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IncidentRecord {
    /// Its id.
    pub id: IncidentId,
    /// The kind.
    pub kind: String,
    /// The class, when it is for one alone.
    pub error_class: Option<String>,
    /// Whether it is open.
    pub is_open: bool,
    /// What was known when it was opened.
    pub note: String,
    /// The first version that is fixed.
    pub fixed_in: Option<String>,
    /// When it was opened.
    pub opened_at_ms: TimestampMs,
    /// By whom.
    pub opened_by: String,
    /// When it was closed.
    pub closed_at_ms: Option<TimestampMs>,
    /// By whom.
    pub closed_by: Option<String>,
    /// What came of it.
    pub closing_note: Option<String>,
    /// How many dead letters arrived while it was open.
    pub arrivals: u64,
    /// How many dead letters of what it covers are open, whenever they arrived.
    pub letters: u64,
}

/// What an incident has to do with one class and version.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IncidentGroup {
    /// The error class.
    pub error_class: String,
    /// The version; none of jobs that ran on none.
    pub version: Option<String>,
    /// How many arrived while it was open.
    pub arrivals: u64,
    /// How many dead letters are open, whenever they arrived.
    pub letters: u64,
}

/// An incident with its counts and pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Incident {
    /// What a list shows of it.
    pub record: IncidentRecord,
    /// Its counts by class and version.
    pub groups: Vec<IncidentGroup>,
    /// The pages that it was opened upon, the latest first.
    pub pages: Vec<PageRecord>,
}

const COLUMNS: &str =
    "id, kind, error_class, state, note, fixed_in, opened_at, opened_by, closed_at, closed_by, closing_note,
    (SELECT coalesce(sum(a.arrivals), 0) FROM incident_arrivals a WHERE a.incident_id = incidents.id),
    (SELECT coalesce(sum(g.letters), 0) FROM open_dead_letters g
     WHERE g.kind = incidents.kind AND (incidents.error_class = '' OR g.error_class = incidents.error_class))";

impl Store {
    /// Opens an incident, unless one is open for the same kind and class.
    pub async fn open_incident(&self, incident: OpenIncident) -> Result<Opened, StoreError> {
        self.note_time(incident.now_ms);
        self.shared.writer.call(Urgency::Usual, move |connection| open(connection, &incident)).await
    }

    /// Changes an incident.
    pub async fn change_incident(
        &self,
        id: IncidentId,
        change: IncidentChange,
        actor: &str,
        now_ms: TimestampMs,
    ) -> Result<Changed, StoreError> {
        self.note_time(now_ms);
        let actor = actor.to_owned();
        self.shared
            .writer
            .call(Urgency::Usual, move |connection| {
                let Some(incident) = find(connection, id)? else { return Ok(Changed::NotFound) };
                match &change {
                    IncidentChange::FixedIn(fixed_in) => edit(connection, id, fixed_in.as_ref(), &actor, now_ms),
                    IncidentChange::Close { note, fixed_in } => {
                        close(connection, &incident, note, fixed_in.as_ref(), &actor, now_ms)
                    }
                }
            })
            .await
    }

    /// Incidents, the latest first.
    pub async fn incidents(
        &self,
        is_open: Option<bool>,
        before: Option<i64>,
        max: usize,
    ) -> Result<Page<IncidentRecord>, StoreError> {
        self.ask(move |connection| {
            let state = is_open.map(|is_open| if is_open { "open" } else { "closed" });
            let limit = i64::try_from(max).unwrap_or(i64::MAX);
            let incidents = select(
                connection,
                "WHERE id < ?1 AND (?2 IS NULL OR state = ?2) ORDER BY id DESC LIMIT ?3",
                params![before.unwrap_or(i64::MAX), state, limit],
            )?;
            Ok(Page::new(incidents, max, |incident| incident.id.0))
        })
        .await
    }

    /// One incident.
    pub async fn incident(&self, id: IncidentId) -> Result<Option<Incident>, StoreError> {
        self.ask(move |connection| {
            let Some(record) = find(connection, id)? else { return Ok(None) };
            let pages = pages::of_incident(connection, id.0, PAGES_MAX)?;
            Ok(Some(Incident { groups: groups(connection, &record)?, record, pages }))
        })
        .await
    }
}

fn open(connection: &Connection, incident: &OpenIncident) -> Result<Opened, StoreError> {
    let (kind, class) = (incident.kind.as_str(), incident.error_class.as_ref().map_or("", ErrorClass::as_str));
    let before: Option<i64> = connection
        .prepare_cached("SELECT id FROM incidents WHERE kind = ?1 AND error_class = ?2 AND state = 'open'")?
        .query_row([kind, class], |row| row.get(0))
        .optional()?;
    if let Some(before) = before {
        return Ok(Opened::Already(IncidentId(before)));
    }
    let fixed_in = incident.fixed_in.as_ref().map(ToString::to_string);
    connection
        .prepare_cached(
            "INSERT INTO incidents (kind, error_class, note, fixed_in, opened_at, opened_by) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?
        .execute(params![kind, class, incident.note, fixed_in, incident.now_ms, incident.actor])?;
    let id = connection.last_insert_rowid();
    let answered = pages::answer(connection, id, kind, class)?;
    let detail = json!({
        "kind": kind, "error_class": incident.error_class, "note": incident.note, "fixed_in": fixed_in, "pages": answered,
    });
    audit::write(connection, incident.now_ms, &incident.actor, "incident.open", &id.to_string(), &detail)?;
    fail::fail_point!("incident.opened");
    Ok(Opened::Now(IncidentId(id)))
}

fn edit(
    connection: &Connection,
    id: IncidentId,
    fixed_in: Option<&HandlerVersion>,
    actor: &str,
    now_ms: TimestampMs,
) -> Result<Changed, StoreError> {
    let fixed_in = fixed_in.map(ToString::to_string);
    connection.prepare_cached("UPDATE incidents SET fixed_in = ?2 WHERE id = ?1")?.execute(params![id.0, fixed_in])?;
    audit::write(connection, now_ms, actor, "incident.edit", &id.to_string(), &json!({ "fixed_in": fixed_in }))?;
    Ok(Changed::Now)
}

fn close(
    connection: &Connection,
    incident: &IncidentRecord,
    note: &str,
    fixed_in: Option<&HandlerVersion>,
    actor: &str,
    now_ms: TimestampMs,
) -> Result<Changed, StoreError> {
    if !incident.is_open {
        return Ok(Changed::AlreadyClosed);
    }
    let fixed_in = fixed_in.map(ToString::to_string).or_else(|| incident.fixed_in.clone());
    connection
        .prepare_cached(
            "UPDATE incidents SET state = 'closed', closed_at = ?2, closed_by = ?3, closing_note = ?4, fixed_in = ?5
             WHERE id = ?1",
        )?
        .execute(params![incident.id.0, now_ms, actor, note, fixed_in])?;
    arrivals::start_anew(connection, &incident.kind, incident.error_class.as_deref().unwrap_or(""))?;
    let detail = json!({ "note": note, "fixed_in": fixed_in, "arrivals": incident.arrivals });
    audit::write(connection, now_ms, actor, "incident.close", &incident.id.to_string(), &detail)?;
    fail::fail_point!("incident.closed");
    Ok(Changed::Now)
}

/// What incidents, open or closed, say of the version that mends a dead letter of a kind and class that died on a
/// version.
pub(crate) fn fixes(
    connection: &Connection,
    kind: &str,
    class: &str,
    died_on: Option<&str>,
) -> Result<Vec<Fix>, StoreError> {
    let died_on = died_on.map(version).transpose()?;
    let mut statement = connection.prepare_cached(
        "SELECT id, fixed_in FROM incidents
         WHERE kind = ?1 AND error_class IN (?2, '') AND fixed_in IS NOT NULL ORDER BY id",
    )?;
    let rows = statement.query_map([kind, class], |row| Ok((IncidentId(row.get(0)?), row.get::<_, String>(1)?)))?;
    let mut fixes = Vec::new();
    for row in rows {
        let (incident, fixed_in) = row?;
        fixes.push(Fix { incident, fixed_in: version(&fixed_in)? });
    }
    fixes.retain(|fix| fix.concerns(died_on.as_ref()));
    Ok(fixes)
}

fn version(text: &str) -> Result<HandlerVersion, StoreError> {
    text.parse().map_err(|_| StoreError::Unexpected(format!("handler version {text:?}")))
}

fn find(connection: &Connection, id: IncidentId) -> Result<Option<IncidentRecord>, StoreError> {
    Ok(select(connection, "WHERE id = ?1", [id.0])?.into_iter().next())
}

fn select(
    connection: &Connection,
    tail: &str,
    parameters: impl rusqlite::Params,
) -> Result<Vec<IncidentRecord>, StoreError> {
    let mut statement = connection.prepare_cached(&format!("SELECT {COLUMNS} FROM incidents {tail}"))?;
    let rows = statement.query_map(parameters, record)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn record(row: &Row<'_>) -> rusqlite::Result<IncidentRecord> {
    Ok(IncidentRecord {
        id: IncidentId(row.get(0)?),
        kind: row.get(1)?,
        error_class: row.get::<_, Option<String>>(2)?.filter(|class| !class.is_empty()),
        is_open: row.get::<_, String>(3)? == "open",
        note: row.get(4)?,
        fixed_in: row.get(5)?,
        opened_at_ms: row.get(6)?,
        opened_by: row.get(7)?,
        closed_at_ms: row.get(8)?,
        closed_by: row.get(9)?,
        closing_note: row.get(10)?,
        arrivals: row.get(11)?,
        letters: row.get(12)?,
    })
}

/// What arrived while it was open and what is open, by class and version: each group has one or both.
fn groups(connection: &Connection, incident: &IncidentRecord) -> Result<Vec<IncidentGroup>, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT error_class, version, sum(arrivals), sum(letters) FROM (
             SELECT error_class, version, arrivals, 0 AS letters FROM incident_arrivals WHERE incident_id = ?1
             UNION ALL
             SELECT error_class, version, 0, letters FROM open_dead_letters
             WHERE kind = ?2 AND (?3 IS NULL OR error_class = ?3)
         ) GROUP BY error_class, version ORDER BY error_class, version",
    )?;
    let rows = statement.query_map(params![incident.id.0, incident.kind, incident.error_class], |row| {
        Ok(IncidentGroup {
            error_class: row.get(0)?,
            version: row.get::<_, Option<String>>(1)?.filter(|version| !version.is_empty()),
            arrivals: row.get(2)?,
            letters: row.get(3)?,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}
