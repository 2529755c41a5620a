//! Stored handler versions: their identity and the states they go through. The components themselves lie outside the
//! database; nothing here looks at them.

use leasehold_domain::{Digest, HandlerState, HandlerVersion, TimestampMs, VersionId, replay::Candidate};
use rusqlite::{Connection, Row, params};
use serde_json::json;

use crate::{Store, StoreError, audit, writer::Urgency};

/// A stored version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionRow {
    /// Its row.
    pub id: VersionId,
    /// Its name and version.
    pub version: HandlerVersion,
    /// Its component.
    pub digest: Digest,
    /// The component's size.
    pub size_bytes: u64,
    /// Where it stands.
    pub state: HandlerState,
    /// Whether new attempts run on it.
    pub current: bool,
    /// When it was stored.
    pub stored_at_ms: TimestampMs,
    /// By whom.
    pub stored_by: String,
    /// When it last went live.
    pub activated_at_ms: Option<TimestampMs>,
    /// How many attempts run on it now.
    pub running: u64,
}

/// A version that is to be stored. Its component is durable already.
#[derive(Debug, Clone)]
pub struct StoredVersion {
    /// Its name and version.
    pub version: HandlerVersion,
    /// Its component.
    pub digest: Digest,
    /// The component's size.
    pub size_bytes: u64,
}

/// What became of a version that was to be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PutVersion {
    /// It is stored.
    Stored,
    /// The same bytes were stored under this name before.
    Same,
    /// Other bytes are stored under this name; a stored version never changes.
    OtherBytes {
        /// What is stored.
        stored: Digest,
    },
}

/// What became of an activation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Activated {
    /// It is the handler's current version.
    Current {
        /// The versions that take no new attempts from now on.
        drained: Vec<HandlerVersion>,
    },
    /// There is no such version.
    NotStored,
}

/// What became of a retirement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Retired {
    /// It takes no new attempts; this is where it stands.
    Now(HandlerState),
    /// There is no such version.
    NotStored,
}

const COLUMNS: &str = "id, name, version, digest, size_bytes, state, current, stored_at, stored_by, activated_at,
    (SELECT count(*) FROM jobs INDEXED BY jobs_leased WHERE state = 2 AND version_id = handler_versions.id)";

impl Store {
    /// Stores a version, staged.
    pub async fn put_version(
        &self,
        version: StoredVersion,
        actor: &str,
        now_ms: TimestampMs,
    ) -> Result<PutVersion, StoreError> {
        let actor = actor.to_owned();
        self.shared
            .writer
            .call(Urgency::Usual, move |connection| put_version(connection, &version, &actor, now_ms))
            .await
    }

    /// Makes a version current. The others that are live are drained, unless they are to be kept live. The caller has
    /// checked the component before.
    pub async fn activate_version(
        &self,
        version: &HandlerVersion,
        keep_live: bool,
        actor: &str,
        now_ms: TimestampMs,
    ) -> Result<Activated, StoreError> {
        let (version, actor) = (version.clone(), actor.to_owned());
        self.shared
            .writer
            .call(Urgency::Usual, move |connection| activate(connection, &version, keep_live, &actor, now_ms))
            .await
    }

    /// Lets a version take no new attempts; it retires when its last one ends.
    pub async fn retire_version(
        &self,
        version: &HandlerVersion,
        actor: &str,
        now_ms: TimestampMs,
    ) -> Result<Retired, StoreError> {
        let (version, actor) = (version.clone(), actor.to_owned());
        self.shared.writer.call(Urgency::Usual, move |connection| retire(connection, &version, &actor, now_ms)).await
    }

    /// All stored versions, by name, in the order in which they were stored.
    pub async fn versions(&self) -> Result<Vec<VersionRow>, StoreError> {
        self.ask_for_daemon(|connection| select(connection, "ORDER BY name, id", [])).await
    }

    /// One stored version.
    pub async fn version(&self, version: &HandlerVersion) -> Result<Option<VersionRow>, StoreError> {
        let version = version.clone();
        self.ask_for_daemon(move |connection| find(connection, &version)).await
    }
}

fn select(
    connection: &Connection,
    tail: &str,
    parameters: impl rusqlite::Params,
) -> Result<Vec<VersionRow>, StoreError> {
    let mut statement = connection.prepare_cached(&format!("SELECT {COLUMNS} FROM handler_versions {tail}"))?;
    let rows = statement.query_map(parameters, |row| Ok(version_row(row)))?;
    rows.map(|row| row?).collect()
}

fn find(connection: &Connection, version: &HandlerVersion) -> Result<Option<VersionRow>, StoreError> {
    let found =
        select(connection, "WHERE name = ?1 AND version = ?2", [version.name.as_str(), &version.version.to_string()])?;
    Ok(found.into_iter().next())
}

fn version_row(row: &Row<'_>) -> Result<VersionRow, StoreError> {
    let (name, version, state): (String, String, String) = (row.get(1)?, row.get(2)?, row.get(5)?);
    Ok(VersionRow {
        id: VersionId(row.get(0)?),
        version: HandlerVersion::new(&name, &version).map_err(|error| StoreError::Unexpected(error.to_string()))?,
        digest: Digest::from_bytes(row.get(3)?),
        size_bytes: row.get(4)?,
        state: HandlerState::parse(&state).ok_or_else(|| StoreError::Unexpected(format!("handler state {state:?}")))?,
        current: row.get(6)?,
        stored_at_ms: row.get(7)?,
        stored_by: row.get(8)?,
        activated_at_ms: row.get(9)?,
        running: row.get(10)?,
    })
}

fn put_version(
    connection: &Connection,
    stored: &StoredVersion,
    actor: &str,
    now_ms: TimestampMs,
) -> Result<PutVersion, StoreError> {
    if let Some(before) = find(connection, &stored.version)? {
        let same = before.digest == stored.digest;
        return Ok(if same { PutVersion::Same } else { PutVersion::OtherBytes { stored: before.digest } });
    }
    connection
        .prepare_cached(
            "INSERT INTO handler_versions (name, version, digest, size_bytes, state, stored_at, stored_by)
             VALUES (?1, ?2, ?3, ?4, 'staged', ?5, ?6)",
        )?
        .execute(params![
            stored.version.name.as_str(),
            stored.version.version.to_string(),
            stored.digest.as_bytes(),
            stored.size_bytes,
            now_ms,
            actor
        ])?;
    let detail = json!({ "digest": stored.digest, "size_bytes": stored.size_bytes });
    audit::write(connection, now_ms, actor, "handler.push", &stored.version.to_string(), &detail)?;
    Ok(PutVersion::Stored)
}

fn activate(
    connection: &Connection,
    version: &HandlerVersion,
    keep_live: bool,
    actor: &str,
    now_ms: TimestampMs,
) -> Result<Activated, StoreError> {
    let Some(target) = find(connection, version)? else { return Ok(Activated::NotStored) };
    let others = select(connection, "WHERE name = ?1 AND state = 'live' ORDER BY id", [version.name.as_str()])?;
    let others = others.into_iter().filter(|other| other.id != target.id);
    let mut drained = Vec::new();
    for other in others {
        if keep_live {
            connection
                .prepare_cached("UPDATE handler_versions SET current = 0 WHERE id = ?1")?
                .execute([other.id.0])?;
        } else {
            drain(connection, &other)?;
            drained.push(other.version);
        }
    }
    connection
        .prepare_cached("UPDATE handler_versions SET state = 'live', current = 1, activated_at = ?2 WHERE id = ?1")?
        .execute([target.id.0, now_ms])?;
    let detail = json!({ "digest": target.digest, "drained": drained, "keep_live": keep_live });
    audit::write(connection, now_ms, actor, "handler.activate", &version.to_string(), &detail)?;
    Ok(Activated::Current { drained })
}

fn retire(
    connection: &Connection,
    version: &HandlerVersion,
    actor: &str,
    now_ms: TimestampMs,
) -> Result<Retired, StoreError> {
    let Some(target) = find(connection, version)? else { return Ok(Retired::NotStored) };
    let state = drain(connection, &target)?;
    audit::write(connection, now_ms, actor, "handler.retire", &version.to_string(), &json!({ "state": state }))?;
    Ok(Retired::Now(state))
}

fn drain(connection: &Connection, version: &VersionRow) -> Result<HandlerState, StoreError> {
    let state = HandlerState::drained(version.running);
    connection
        .prepare_cached("UPDATE handler_versions SET state = ?2, current = 0 WHERE id = ?1")?
        .execute(params![version.id.0, state.as_str()])?;
    Ok(state)
}

/// Retires a draining version when its last attempt has ended.
pub(crate) fn retire_if_drained(connection: &Connection, version_id: i64) -> Result<(), StoreError> {
    connection
        .prepare_cached(
            "UPDATE handler_versions SET state = 'retired' WHERE id = ?1 AND state = 'draining'
             AND NOT EXISTS (SELECT 1 FROM jobs INDEXED BY jobs_leased WHERE state = 2 AND version_id = ?1)",
        )?
        .execute([version_id])?;
    Ok(())
}

/// The versions of a handler as a replay sees them.
pub(crate) fn candidates(
    connection: &Connection,
    handler: &str,
    damaged: &[Digest],
) -> Result<Vec<Candidate>, StoreError> {
    let versions = select(connection, "WHERE name = ?1 ORDER BY id", [handler])?;
    Ok(versions
        .into_iter()
        .map(|row| Candidate {
            id: row.id,
            version: row.version,
            intact: !damaged.contains(&row.digest),
            digest: row.digest,
            state: row.state,
            current: row.current,
        })
        .collect())
}
