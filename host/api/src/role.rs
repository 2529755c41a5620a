//! What callers may do. Who has which role is the configuration's.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A caller's role. Which role includes which is the daemon's to say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// May enqueue jobs, and see what became of its own.
    Enqueue,
    /// May see jobs, dead letters, handlers and kinds, all redacted.
    View,
    /// May also cancel, replay and discard jobs, pause kinds, activate and retire handler versions,
    /// open and close incidents.
    Operate,
    /// May also store handlers, reload the configuration, make and revoke tokens, and see originals of dead letters.
    Admin,
}

impl Role {
    /// All roles.
    pub const ALL: [Self; 4] = [Self::Enqueue, Self::View, Self::Operate, Self::Admin];

    /// The role of that name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == text)
    }

    /// The role as it is written in the configuration.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Enqueue => "enqueue",
            Self::View => "view",
            Self::Operate => "operate",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Who may ask for an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Access {
    /// Whoever the configuration knows.
    Known,
    /// Whoever enqueued the job that is asked about, and those who may view.
    Own,
    /// Those of this role.
    Role(Role),
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known => f.write_str("Open to everybody whom the configuration knows."),
            Self::Own => f.write_str("Open to whoever enqueued the job, and to the role `view`."),
            Self::Role(role) => write!(f, "Needs the role `{role}`."),
        }
    }
}
