//! Error classes and the configuration's vocabulary of them. It never looks at messages.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

use crate::outcome::Said;

/// The class of a class that is not in the vocabulary.
pub const UNCLASSIFIED: &str = "unclassified";

/// A short name for a kind of failure, `[a-z0-9._-]{1,64}`. Anything else becomes [`UNCLASSIFIED`], since a class
/// always stays readable and so must not be able to carry data.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct ErrorClass(String);

impl ErrorClass {
    /// The class of that name, or [`UNCLASSIFIED`].
    #[must_use]
    pub fn new(name: &str) -> Self {
        let well_formed = !name.is_empty() && name.len() <= 64 && name.chars().all(crate::ids::is_name_character);
        Self(if well_formed { name } else { UNCLASSIFIED }.to_owned())
    }

    /// The class as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<String> for ErrorClass {
    fn from(name: String) -> Self {
        Self::new(&name)
    }
}

impl From<ErrorClass> for String {
    fn from(class: ErrorClass) -> Self {
        class.0
    }
}

impl fmt::Display for ErrorClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What the vocabulary says is done about a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Treatment {
    /// Tried again, to the cap.
    Retry,
    /// Tried again after the delay that downstream asked for, to the cap.
    RateLimited,
    /// Ended at once: downstream refused for good.
    Rejected,
    /// Ended at once: a defect.
    Poison,
}

impl Treatment {
    /// Whether the guest said the same.
    #[must_use]
    pub const fn agrees_with(self, said: Said) -> bool {
        matches!(
            (self, said),
            (Self::Retry, Said::Retry)
                | (Self::RateLimited, Said::RateLimited { .. })
                | (Self::Rejected, Said::Rejected)
                | (Self::Poison, Said::Poison)
        )
    }
}

/// The host's own classes, which are always known, and so are never counted as unclassified.
pub const HOST_CLASSES: [&str; 19] = [
    "handler.trap",
    "handler.panic",
    "handler.exit",
    "handler.unavailable",
    "limit.time",
    "limit.memory",
    "limit.stack",
    "limit.output",
    "limit.log",
    "limit.host_calls",
    "payload.invalid",
    "step.in_doubt",
    "step.conflict",
    "effect.outside_step",
    "lease.expired",
    "daemon.stopped",
    "downstream.timeout",
    "replay.version_not_live",
    UNCLASSIFIED,
];

/// The configured map from class to treatment. It wins over what the guest said.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Vocabulary(BTreeMap<ErrorClass, Treatment>);

/// A class read against the vocabulary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Classified {
    /// The class to record: the guest's, or [`UNCLASSIFIED`].
    pub class: ErrorClass,
    /// What the vocabulary says, if it says anything.
    pub treatment: Option<Treatment>,
    /// Whether the class was not known.
    pub unknown: bool,
}

impl Vocabulary {
    /// The vocabulary of these entries.
    #[must_use]
    pub fn new(entries: impl IntoIterator<Item = (ErrorClass, Treatment)>) -> Self {
        Self(entries.into_iter().collect())
    }

    /// What the vocabulary says of a class.
    #[must_use]
    pub fn classify(&self, class: &ErrorClass) -> Classified {
        let treatment = self.0.get(class).copied();
        let known = treatment.is_some() || HOST_CLASSES.contains(&class.as_str());
        let class = if known { class.clone() } else { ErrorClass::new(UNCLASSIFIED) };
        Classified { unknown: class.as_str() == UNCLASSIFIED, class, treatment }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_that_could_carry_data_becomes_unclassified() {
        assert_eq!(ErrorClass::new("jo@example.org").as_str(), UNCLASSIFIED);
        assert_eq!(ErrorClass::new("downstream.timeout").as_str(), "downstream.timeout");
        assert_eq!(ErrorClass::new(&"x".repeat(64)).as_str(), "x".repeat(64));
        for name in ["", "Down", &"x".repeat(65)] {
            assert_eq!(ErrorClass::new(name).as_str(), UNCLASSIFIED, "{name:?}");
        }
    }

    #[test]
    fn a_class_is_shown_and_stored_as_it_is_named_and_checked_when_it_is_read() {
        let class = ErrorClass::new("email.greylisted");
        assert_eq!(class.to_string(), "email.greylisted");
        assert_eq!(serde_json::to_string(&class).unwrap(), "\"email.greylisted\"");
        assert_eq!(serde_json::from_str::<ErrorClass>("\"email.greylisted\"").unwrap(), class);
        assert_eq!(serde_json::from_str::<ErrorClass>("\"jo@example.org\"").unwrap().as_str(), UNCLASSIFIED);
    }

    #[test]
    fn d1_a_class_outside_the_vocabulary_is_unclassified_and_counted() {
        let vocabulary = Vocabulary::new([(ErrorClass::new("email.greylisted"), Treatment::Retry)]);
        let known = vocabulary.classify(&ErrorClass::new("email.greylisted"));
        assert_eq!((known.treatment, known.unknown), (Some(Treatment::Retry), false));
        let unknown = vocabulary.classify(&ErrorClass::new("surprise"));
        assert_eq!((unknown.class.as_str(), unknown.unknown), (UNCLASSIFIED, true));
        assert!(!vocabulary.classify(&ErrorClass::new("limit.time")).unknown);
        // What could not be a class when the guest named it counts like one that is not listed.
        let malformed = vocabulary.classify(&ErrorClass::new("jo@example.org"));
        assert_eq!((malformed.class.as_str(), malformed.unknown), (UNCLASSIFIED, true));
    }
}
