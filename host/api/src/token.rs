//! Tokens on the wire. A token itself is in one answer only: the one that made it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Role, Timestamp};

/// A token that is to be made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenRequest {
    /// Its name: a letter from a to z, then up to 63 of a to z, 0 to 9, `.`, `_` and `-`.
    pub name: String,
    /// What its bearer may do.
    pub role: Role,
    /// After how many milliseconds it ends; it does not end by itself when this is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in_ms: Option<u64>,
}

/// Where a token stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum TokenState {
    /// It opens what its role opens.
    Active,
    /// Its time is over.
    Expired,
    /// It was taken back.
    Revoked,
}

impl TokenState {
    /// The state as it is written.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Expired => "expired",
            Self::Revoked => "revoked",
        }
    }
}

/// A token, without the token itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenView {
    /// Its id.
    pub id: i64,
    /// Its name.
    pub name: String,
    /// Who its bearer is in the audit log.
    pub actor: String,
    /// What its bearer may do.
    pub role: Role,
    /// Where it stands.
    pub state: TokenState,
    /// When it was made.
    pub created_at: Timestamp,
    /// By whom.
    pub created_by: String,
    /// When it ends by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// The hour in which it was used last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_used_at: Option<Timestamp>,
    /// When it was revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<Timestamp>,
    /// By whom.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_by: Option<String>,
}

/// A token that was made.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenAnswer {
    /// What is kept of it.
    #[serde(flatten)]
    pub view: TokenView,
    /// The token. It is shown this once.
    pub token: String,
}
