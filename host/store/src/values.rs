//! Values that handlers keep in named stores, sealed. It never shows a value that a job has written but not yet
//! succeeded with, except to that job.

use leasehold_domain::{Effect, JobId};
use rusqlite::{Connection, OptionalExtension, params};

use crate::{Store, StoreError, effects, keys::Keys, seal::Purpose};

/// How many keys a page of a listing has.
const PAGE: i64 = 100;

impl Store {
    /// The value under a key as a job sees it: its own steps' writes first.
    pub async fn read_value(&self, job: JobId, store: &str, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let keys = std::sync::Arc::clone(&self.shared.keys);
        let (store, key) = (store.to_owned(), key.to_owned());
        self.ask_for_daemon(move |connection| {
            let keys = keys.get()?;
            match own_write(connection, keys, job.0, &store, &key)? {
                Some(Written::Set(value)) => Ok(Some(value)),
                Some(Written::Deleted) => Ok(None),
                None => get(connection, keys, &store, &key),
            }
        })
        .await
    }

    /// One page of a store's keys, and where the next one starts. A job's own writes are not in it before it succeeds.
    pub async fn list_value_keys(
        &self,
        store: &str,
        cursor: Option<u64>,
    ) -> Result<(Vec<String>, Option<u64>), StoreError> {
        let keys = std::sync::Arc::clone(&self.shared.keys);
        let store = store.to_owned();
        self.ask_for_daemon(move |connection| list(connection, keys.get()?, &store, cursor)).await
    }
}

/// What was last written under a key.
enum Written {
    Set(Vec<u8>),
    Deleted,
}

/// What the job's completed steps have last written under a key: a value, or its removal.
fn own_write(
    connection: &Connection,
    keys: &Keys,
    job: i64,
    in_store: &str,
    under: &str,
) -> Result<Option<Written>, StoreError> {
    let written = effects::kept(connection, keys, job)?.into_iter().rev().find_map(|effect| match effect {
        Effect::Set { store, key, value } if store == in_store && key == under => Some(Written::Set(value)),
        Effect::Delete { store, key } if store == in_store && key == under => Some(Written::Deleted),
        _ => None,
    });
    Ok(written)
}

fn key_digest(keys: &Keys, store: &str, key: &str) -> [u8; 32] {
    keys.digest("value key", &[store.as_bytes(), key.as_bytes()])
}

fn get(connection: &Connection, keys: &Keys, store: &str, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
    let row: Option<(i64, Vec<u8>)> = connection
        .prepare_cached("SELECT id, value_sealed FROM stored_values WHERE store = ?1 AND key_digest = ?2")?
        .query_row(params![store, key_digest(keys, store, key)], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    row.map(|(id, sealed)| Ok(keys.sealer.open(Purpose::Value, id, &sealed)?.to_vec())).transpose()
}

fn list(
    connection: &Connection,
    keys: &Keys,
    store: &str,
    cursor: Option<u64>,
) -> Result<(Vec<String>, Option<u64>), StoreError> {
    let after = cursor.and_then(|cursor| i64::try_from(cursor).ok()).unwrap_or(0);
    let mut statement = connection
        .prepare_cached("SELECT id, key_sealed FROM stored_values WHERE store = ?1 AND id > ?2 ORDER BY id LIMIT ?3")?;
    let rows = statement.query_map(params![store, after, PAGE], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let rows: Vec<(i64, Vec<u8>)> = rows.collect::<Result<_, _>>()?;
    let next =
        rows.last().filter(|_| i64::try_from(rows.len()) == Ok(PAGE)).and_then(|(id, _)| u64::try_from(*id).ok());
    let names = rows.into_iter().map(|(id, sealed)| {
        let name = keys.sealer.open(Purpose::ValueKey, id, &sealed)?;
        Ok(String::from_utf8_lossy(&name).into_owned())
    });
    Ok((names.collect::<Result<_, StoreError>>()?, next))
}

pub(crate) fn set(
    connection: &Connection,
    keys: &Keys,
    store: &str,
    key: &str,
    value: &[u8],
    now_ms: i64,
) -> Result<(), StoreError> {
    let digest = key_digest(keys, store, key);
    // The row comes first, since what is sealed is bound to its id.
    let id: i64 = connection
        .prepare_cached(
            "INSERT INTO stored_values (store, key_digest, key_sealed, value_sealed, stored_at)
             VALUES (?1, ?2, x'', x'', ?3)
             ON CONFLICT (store, key_digest) DO UPDATE SET stored_at = excluded.stored_at RETURNING id",
        )?
        .query_row(params![store, digest, now_ms], |row| row.get(0))?;
    connection.prepare_cached("UPDATE stored_values SET key_sealed = ?2, value_sealed = ?3 WHERE id = ?1")?.execute(
        params![
            id,
            keys.sealer.seal(Purpose::ValueKey, id, key.as_bytes())?,
            keys.sealer.seal(Purpose::Value, id, value)?
        ],
    )?;
    Ok(())
}

pub(crate) fn delete(connection: &Connection, keys: &Keys, store: &str, key: &str) -> Result<(), StoreError> {
    connection
        .prepare_cached("DELETE FROM stored_values WHERE store = ?1 AND key_digest = ?2")?
        .execute(params![store, key_digest(keys, store, key)])?;
    Ok(())
}
