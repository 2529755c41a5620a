//! Handler versions and the states they go through. It never touches a stored component.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::ids::{self, NameError};

ids::text_name!(
    /// The name of a handler, a program that serves one or more kinds.
    HandlerName, "a handler's name", 64, "a-z, 0-9, '.', '_' and '-'", ids::is_name_character
);

impl HandlerName {
    /// The handler of a kind's own name; kinds and handlers are named by the same rule.
    #[must_use]
    pub fn of_kind(kind: &crate::Kind) -> Self {
        Self(kind.as_str().to_owned())
    }
}

/// One stored component's name and semantic version, written `name@1.2.3`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HandlerVersion {
    /// The handler.
    pub name: HandlerName,
    /// Its version.
    pub version: semver::Version,
}

/// The text is no `name@1.2.3`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HandlerVersionError {
    /// There is no `@`.
    #[error("a handler version is written name@1.2.3")]
    NoVersion,
    /// The name is not allowed.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The version is no semantic version.
    #[error("{text:?} is no semantic version such as 1.2.3")]
    Version {
        /// What stood behind the `@`.
        text: String,
    },
}

impl HandlerVersion {
    /// Joins a name and a version from text.
    pub fn new(name: &str, version: &str) -> Result<Self, HandlerVersionError> {
        let parsed =
            version.parse().map_err(|_| HandlerVersionError::Version { text: version.chars().take(64).collect() })?;
        Ok(Self { name: HandlerName::new(name)?, version: parsed })
    }
}

impl FromStr for HandlerVersion {
    type Err = HandlerVersionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, version) = text.split_once('@').ok_or(HandlerVersionError::NoVersion)?;
        Self::new(name, version)
    }
}

impl TryFrom<String> for HandlerVersion {
    type Error = HandlerVersionError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<HandlerVersion> for String {
    fn from(version: HandlerVersion) -> Self {
        version.to_string()
    }
}

impl fmt::Display for HandlerVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.name, self.version)
    }
}

/// Where a stored version stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HandlerState {
    /// Stored, never live or not yet.
    Staged,
    /// Takes attempts: new ones if it is the handler's current version, else those that are bound to it.
    Live,
    /// Finishes its running attempts and takes no new ones.
    Draining,
    /// Runs nothing.
    Retired,
}

impl HandlerState {
    /// All states.
    pub const ALL: [Self; 4] = [Self::Staged, Self::Live, Self::Draining, Self::Retired];

    /// The state as it is stored and shown.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Staged => "staged",
            Self::Live => "live",
            Self::Draining => "draining",
            Self::Retired => "retired",
        }
    }

    /// The state of that name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }

    /// The state of a version that takes no new attempts from now on.
    #[must_use]
    pub const fn drained(running_attempts: u64) -> Self {
        if running_attempts == 0 { Self::Retired } else { Self::Draining }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_reads_as_it_is_written() {
        let version: HandlerVersion = "email-send@1.2.3-rc.1".parse().unwrap();
        assert_eq!(version.to_string(), "email-send@1.2.3-rc.1");
        assert_eq!("email-send".parse::<HandlerVersion>(), Err(HandlerVersionError::NoVersion));
        assert!(matches!("email-send@1".parse::<HandlerVersion>(), Err(HandlerVersionError::Version { .. })));
        assert!(matches!("../x@1.0.0".parse::<HandlerVersion>(), Err(HandlerVersionError::Name(_))));
        assert_eq!(serde_json::to_string(&version).unwrap(), "\"email-send@1.2.3-rc.1\"");
        assert_eq!(serde_json::from_str::<HandlerVersion>("\"email-send@1.2.3-rc.1\"").unwrap(), version);
        assert!(serde_json::from_str::<HandlerVersion>("\"email-send\"").is_err());
    }

    #[test]
    fn h1_a_state_is_stored_under_a_name_and_read_back_from_it() {
        let named = [
            (HandlerState::Staged, "staged"),
            (HandlerState::Live, "live"),
            (HandlerState::Draining, "draining"),
            (HandlerState::Retired, "retired"),
        ];
        assert_eq!(named.map(|(state, _)| state), HandlerState::ALL);
        for (state, name) in named {
            assert_eq!((state.as_str(), HandlerState::parse(name)), (name, Some(state)));
        }
        assert_eq!(HandlerState::parse("Live"), None);
    }

    #[test]
    fn h3_a_version_that_takes_no_more_attempts_drains_until_none_runs() {
        assert_eq!(HandlerState::drained(2), HandlerState::Draining);
        assert_eq!(HandlerState::drained(1), HandlerState::Draining);
        assert_eq!(HandlerState::drained(0), HandlerState::Retired);
    }
}
