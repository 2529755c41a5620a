//! Which stored version serves a job, looked up in the transaction that leases it: so an activation and a claim are
//! ordered. It never says whether the component can run; the daemon knows that.

use leasehold_domain::{Digest, HandlerName, HandlerVersion, VersionId};
use rusqlite::{Connection, OptionalExtension, Row};

use crate::StoreError;

/// The version that an attempt runs on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunOn {
    /// Its row.
    pub id: VersionId,
    /// Its name and version.
    pub version: HandlerVersion,
    /// Its component.
    pub digest: Digest,
    /// Whether a replay is bound to it.
    pub bound: bool,
    /// Whether it was live when the job was leased.
    pub live: bool,
}

/// What serves a kind's jobs.
pub(crate) enum Serving {
    /// The handler's current version, and whatever versions replays are bound to.
    Current(RunOn),
    /// Versions that are live and not current: nothing but replays runs on them.
    BoundOnly,
    Nothing,
}

/// What serves the kinds of a handler. With `bound_only`, its current version can't run.
pub(crate) fn serving(connection: &Connection, handler: &HandlerName, bound_only: bool) -> Result<Serving, StoreError> {
    if let Some(current) = current_version(connection, handler)?.filter(|_| !bound_only) {
        return Ok(Serving::Current(current));
    }
    let is_live = connection
        .prepare_cached("SELECT 1 FROM handler_versions WHERE name = ?1 AND state = 'live'")?
        .exists([handler.as_str()])?;
    Ok(if is_live { Serving::BoundOnly } else { Serving::Nothing })
}

fn current_version(connection: &Connection, handler: &HandlerName) -> Result<Option<RunOn>, StoreError> {
    let row = connection
        .prepare_cached(
            "SELECT id, name, version, digest, 0, state FROM handler_versions WHERE name = ?1 AND current = 1",
        )?
        .query_row([handler.as_str()], |row| Ok(version_of_row(row)))
        .optional()?;
    row.transpose()
}

/// The version that a replay is bound to.
pub(crate) fn bound_version(connection: &Connection, id: i64) -> Result<Option<RunOn>, StoreError> {
    let row = connection
        .prepare_cached("SELECT id, name, version, digest, 1, state FROM handler_versions WHERE id = ?1")?
        .query_row([id], |row| Ok(version_of_row(row)))
        .optional()?;
    row.transpose()
}

fn version_of_row(row: &Row<'_>) -> Result<RunOn, StoreError> {
    let (name, version): (String, String) = (row.get(1)?, row.get(2)?);
    Ok(RunOn {
        id: VersionId(row.get(0)?),
        version: HandlerVersion::new(&name, &version).map_err(|error| StoreError::Unexpected(error.to_string()))?,
        digest: Digest::from_bytes(row.get(3)?),
        bound: row.get(4)?,
        live: row.get::<_, String>(5)? == "live",
    })
}
