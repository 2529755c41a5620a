//! Tokens: made, recognised and revoked. A token is shown to whoever has it made, once, and kept nowhere: the database has
//! its digest.

use leasehold_domain::{
    Digest, DurationMs,
    token::{self, TokenName, TokenState},
};
use leasehold_store::{AddedToken, NewToken, RevokedToken, StoreError, TokenReference, TokenRow};
use zeroize::Zeroizing;

use crate::{
    config::{Actor, Role},
    daemon::Daemon,
};

/// Why a token could not be made.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// Another token that is not revoked has the name.
    #[error("token {name} exists ({state}); revoke it first with `leasehold tokens revoke {name}`, or choose another name", state = state_text(*.state))]
    NameTaken {
        /// The name.
        name: TokenName,
        /// Where the other token stands.
        state: TokenState,
    },
    /// The system gives no random bytes.
    #[error("no token could be made: the system gives no random bytes: {0}")]
    NoRandomness(String),
    /// The database refused.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl TokenError {
    /// The stable code of the error.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NameTaken { .. } => "token_exists",
            Self::NoRandomness(_) => "no_randomness",
            Self::Store(error) => error.code(),
        }
    }
}

/// What a token that was sent says of its bearer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Bearer {
    /// Somebody whom the daemon knows.
    Known(Actor),
    /// The bearer of a token that was revoked or has expired.
    Former(Actor, TokenState),
    /// Nobody: there is no such token, or it is none.
    Nobody,
}

/// A word for where a token stands.
pub(crate) const fn state_text(state: TokenState) -> &'static str {
    match state {
        TokenState::Active => "active",
        TokenState::Expired => "expired",
        TokenState::Revoked => "revoked",
    }
}

impl Daemon {
    /// Makes a token; answers it with its row. It is in no other place.
    pub(crate) async fn add_token(
        &self,
        name: TokenName,
        role: Role,
        expires_in_ms: Option<DurationMs>,
        actor: &str,
    ) -> Result<(TokenRow, Zeroizing<String>), TokenError> {
        let token = fresh()?;
        let now_ms = self.now_ms();
        let new = NewToken {
            name: name.clone(),
            role: role.as_str(),
            digest: Digest::of(token.as_bytes()),
            expires_at_ms: expires_in_ms.map(|span_ms| now_ms.saturating_add(span_ms)),
        };
        match self.store.add_token(new, actor, now_ms).await? {
            AddedToken::Added(row) => Ok((row, token)),
            AddedToken::NameTaken(row) => Err(TokenError::NameTaken { name, state: row.state(now_ms) }),
        }
    }

    /// Takes a token back. Calls that come after it are refused.
    pub(crate) async fn revoke_token(
        &self,
        reference: TokenReference,
        actor: &str,
    ) -> Result<RevokedToken, StoreError> {
        self.store.revoke_token(reference, actor, self.now_ms()).await
    }

    /// Whose token this is. What has no token's form is not looked up.
    pub(crate) async fn bearer(&self, token: &str) -> Result<Bearer, StoreError> {
        if !token::is_well_formed(token) {
            return Ok(Bearer::Nobody);
        }
        let Some(row) = self.store.token(Digest::of(token.as_bytes())).await? else { return Ok(Bearer::Nobody) };
        let now_ms = self.now_ms();
        let actor = self.actor_of(&row)?;
        match row.state(now_ms) {
            TokenState::Active => {
                if let Err(error) = self.store.note_token_use(&row, now_ms).await {
                    // A full disk does not lock those out who would make room on it.
                    tracing::warn!(code = error.code(), %error, "the use of a token could not be noted");
                }
                Ok(Bearer::Known(actor))
            }
            state => Ok(Bearer::Former(actor, state)),
        }
    }

    /// Who a token's bearer is: whom the configuration names, else the token itself with its own role.
    pub(crate) fn actor_of(&self, row: &TokenRow) -> Result<Actor, StoreError> {
        let unexpected = |what: &str| StoreError::Unexpected(format!("{what} of token {}", row.id));
        let name = TokenName::new(&row.name).map_err(|_| unexpected("the name"))?;
        if let Some(actor) = self.config().actor_for_token(&name) {
            return Ok(actor);
        }
        let role = Role::parse(&row.role).ok_or_else(|| unexpected("the role"))?;
        Ok(Actor { name: name.actor(), role })
    }
}

fn fresh() -> Result<Zeroizing<String>, TokenError> {
    // Of 128 random bytes hardly any draw leaves fewer than 43 that can be used; then another is made.
    let mut random = Zeroizing::new([0; 128]);
    loop {
        getrandom::fill(random.as_mut_slice()).map_err(|error| TokenError::NoRandomness(error.to_string()))?;
        if let Some(token) = token::from_random(random.as_slice()) {
            return Ok(Zeroizing::new(token));
        }
    }
}
