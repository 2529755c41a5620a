//! Tokens of API callers: added, found by their digest, listed and revoked. A token itself never comes here.

use leasehold_domain::{
    Digest, TimestampMs,
    token::{TokenName, TokenState},
};
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde_json::json;

use crate::{Store, StoreError, audit, writer::Urgency};

/// A use of a token is noted to this precision, so that a busy one costs a write an hour.
const USE_PRECISION_MS: i64 = 3_600_000;

/// A token as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenRow {
    /// Its id.
    pub id: i64,
    /// Its name.
    pub name: String,
    /// What its bearer may do: `enqueue`, `view`, `operate` or `admin`.
    pub role: String,
    /// When it was made.
    pub created_at_ms: TimestampMs,
    /// By whom.
    pub created_by: String,
    /// When it ends by itself.
    pub expires_at_ms: Option<TimestampMs>,
    /// When it was revoked.
    pub revoked_at_ms: Option<TimestampMs>,
    /// By whom.
    pub revoked_by: Option<String>,
    /// The hour in which it was used last.
    pub last_used_at_ms: Option<TimestampMs>,
}

impl TokenRow {
    /// Whether it opens anything at this time.
    #[must_use]
    pub const fn state(&self, now_ms: TimestampMs) -> TokenState {
        TokenState::at(now_ms, self.expires_at_ms, self.revoked_at_ms)
    }
}

/// A token that is to be kept.
#[derive(Debug, Clone)]
pub struct NewToken {
    /// Its name.
    pub name: TokenName,
    /// What its bearer may do: `enqueue`, `view`, `operate` or `admin`.
    pub role: &'static str,
    /// The digest of the token.
    pub digest: Digest,
    /// When it ends by itself.
    pub expires_at_ms: Option<TimestampMs>,
}

/// What became of a token that was to be added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AddedToken {
    /// It is in force.
    Added(TokenRow),
    /// Another token has the name.
    NameTaken(TokenRow),
}

/// Which token is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenReference {
    /// The one with this id.
    Id(i64),
    /// The one that has this name, else the last one that had it.
    Name(TokenName),
}

/// What became of a request to revoke a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RevokedToken {
    /// It opens nothing from now on.
    Now(TokenRow),
    /// It was revoked before.
    Before(TokenRow),
    /// There is no such token.
    NotFound,
}

const COLUMNS: &str =
    "id, name, role, created_at, created_by, expires_at, revoked_at, revoked_by, last_used_at FROM tokens";

impl Store {
    /// Adds a token, in one transaction with its audit row.
    pub async fn add_token(&self, token: NewToken, actor: &str, now_ms: TimestampMs) -> Result<AddedToken, StoreError> {
        let actor = actor.to_owned();
        self.shared.writer.call(Urgency::Usual, move |connection| add(connection, &token, &actor, now_ms)).await
    }

    /// Revokes a token, in one transaction with its audit row.
    pub async fn revoke_token(
        &self,
        reference: TokenReference,
        actor: &str,
        now_ms: TimestampMs,
    ) -> Result<RevokedToken, StoreError> {
        let actor = actor.to_owned();
        self.shared.writer.call(Urgency::Usual, move |connection| revoke(connection, &reference, &actor, now_ms)).await
    }

    /// All tokens, the latest first.
    pub async fn tokens(&self) -> Result<Vec<TokenRow>, StoreError> {
        self.ask(|connection| {
            let mut statement = connection.prepare_cached(&format!("SELECT {COLUMNS} ORDER BY id DESC"))?;
            let rows = statement.query_map([], token_row)?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
        .await
    }

    /// The token of this digest. What an index tells by its timing is a digest's, from which no token can be made.
    pub async fn token(&self, digest: Digest) -> Result<Option<TokenRow>, StoreError> {
        self.ask_for_daemon(move |connection| {
            Ok(connection
                .prepare_cached(&format!("SELECT {COLUMNS} WHERE digest = ?1"))?
                .query_row([digest.as_bytes()], token_row)
                .optional()?)
        })
        .await
    }

    /// Notes that a token is used, to the hour; within the same hour that costs nothing.
    pub async fn note_token_use(&self, token: &TokenRow, now_ms: TimestampMs) -> Result<(), StoreError> {
        let (id, hour_ms) = (token.id, now_ms - now_ms.rem_euclid(USE_PRECISION_MS));
        if token.last_used_at_ms.is_some_and(|last_ms| last_ms >= hour_ms) {
            return Ok(());
        }
        self.shared
            .writer
            .call(Urgency::Usual, move |connection| {
                connection
                    .prepare_cached("UPDATE tokens SET last_used_at = ?2 WHERE id = ?1")?
                    .execute([id, hour_ms])?;
                Ok(())
            })
            .await
    }
}

fn token_row(row: &Row<'_>) -> rusqlite::Result<TokenRow> {
    Ok(TokenRow {
        id: row.get(0)?,
        name: row.get(1)?,
        role: row.get(2)?,
        created_at_ms: row.get(3)?,
        created_by: row.get(4)?,
        expires_at_ms: row.get(5)?,
        revoked_at_ms: row.get(6)?,
        revoked_by: row.get(7)?,
        last_used_at_ms: row.get(8)?,
    })
}

fn find(connection: &Connection, reference: &TokenReference) -> Result<Option<TokenRow>, StoreError> {
    let found = match reference {
        TokenReference::Id(id) => connection
            .prepare_cached(&format!("SELECT {COLUMNS} WHERE id = ?1"))?
            .query_row([id], token_row)
            .optional()?,
        TokenReference::Name(name) => connection
            .prepare_cached(&format!("SELECT {COLUMNS} WHERE name = ?1 ORDER BY revoked_at IS NULL DESC, id DESC"))?
            .query_row([name.as_str()], token_row)
            .optional()?,
    };
    Ok(found)
}

fn existing(connection: &Connection, id: i64) -> Result<TokenRow, StoreError> {
    find(connection, &TokenReference::Id(id))?.ok_or_else(|| StoreError::Unexpected(format!("token {id} is gone")))
}

fn add(connection: &Connection, token: &NewToken, actor: &str, now_ms: TimestampMs) -> Result<AddedToken, StoreError> {
    let same_name = find(connection, &TokenReference::Name(token.name.clone()))?;
    if let Some(other) = same_name.filter(|other| other.revoked_at_ms.is_none()) {
        return Ok(AddedToken::NameTaken(other));
    }
    connection
        .prepare_cached(
            "INSERT INTO tokens (name, role, digest, created_at, created_by, expires_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?
        .execute(params![
            token.name.as_str(),
            token.role,
            token.digest.as_bytes(),
            now_ms,
            actor,
            token.expires_at_ms
        ])?;
    let id = connection.last_insert_rowid();
    let detail = json!({ "token": id, "role": token.role, "expires_at_ms": token.expires_at_ms });
    audit::write(connection, now_ms, actor, "token.add", token.name.as_str(), &detail)?;
    Ok(AddedToken::Added(existing(connection, id)?))
}

fn revoke(
    connection: &Connection,
    reference: &TokenReference,
    actor: &str,
    now_ms: TimestampMs,
) -> Result<RevokedToken, StoreError> {
    let Some(token) = find(connection, reference)? else { return Ok(RevokedToken::NotFound) };
    if token.revoked_at_ms.is_some() {
        return Ok(RevokedToken::Before(token));
    }
    connection
        .prepare_cached("UPDATE tokens SET revoked_at = ?2, revoked_by = ?3 WHERE id = ?1")?
        .execute(params![token.id, now_ms, actor])?;
    let detail = json!({ "token": token.id, "role": token.role });
    audit::write(connection, now_ms, actor, "token.revoke", &token.name, &detail)?;
    Ok(RevokedToken::Now(existing(connection, token.id)?))
}
