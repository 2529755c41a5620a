//! Identities and names, each checked where it is made. Nothing here allots an id: the store does.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What is wrong with a name. The limit stands in the message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The name is empty.
    #[error("{what} is empty")]
    Empty {
        /// What was being named.
        what: &'static str,
    },
    /// The name is too long.
    #[error("{what} is {bytes} bytes long; at most {max_bytes} are allowed")]
    TooLong {
        /// What was being named.
        what: &'static str,
        /// How long it is.
        bytes: usize,
        /// How long it may be.
        max_bytes: usize,
    },
    /// The name has a character that is not allowed.
    #[error("{what} has a character that is not allowed; allowed are {allowed}")]
    Character {
        /// What was being named.
        what: &'static str,
        /// The characters that are allowed.
        allowed: &'static str,
    },
}

macro_rules! number_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub i64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number_id!(
    /// A job. Ids are never given twice.
    JobId
);
number_id!(
    /// One death of a job.
    DeadLetterId
);
number_id!(
    /// An incident: what operators deal with when dead letters arrive.
    IncidentId
);
number_id!(
    /// One replay of a dead letter.
    ReplayId
);
number_id!(
    /// One replay of many dead letters.
    BulkReplayId
);
number_id!(
    /// A stored handler version, by its row.
    VersionId
);

/// The number of an attempt at a job, from 1. It never goes back: it is half of the fencing token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AttemptNumber(pub u32);

impl fmt::Display for AttemptNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What a worker shows to prove that it holds a job's live lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FencingToken {
    /// The leased job.
    pub job: JobId,
    /// The attempt that the lease was taken for.
    pub attempt: AttemptNumber,
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.job, self.attempt)
    }
}

macro_rules! text_name {
    ($(#[$doc:meta])* $name:ident, $what:literal, $max:expr, $allowed:literal, $test:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// Checks the name.
            pub fn new(text: impl Into<String>) -> Result<Self, NameError> {
                let text = text.into();
                $crate::ids::check($what, $max, $allowed, $test, &text)?;
                Ok(Self(text))
            }

            /// The name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = NameError;
            fn try_from(text: String) -> Result<Self, NameError> {
                Self::new(text)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> String {
                name.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

pub(crate) use text_name;

pub(crate) fn check(
    what: &'static str,
    max_bytes: usize,
    allowed: &'static str,
    is_allowed: fn(char) -> bool,
    text: &str,
) -> Result<(), NameError> {
    if text.is_empty() {
        return Err(NameError::Empty { what });
    }
    if text.len() > max_bytes {
        return Err(NameError::TooLong { what, bytes: text.len(), max_bytes });
    }
    if text.chars().all(is_allowed) { Ok(()) } else { Err(NameError::Character { what, allowed }) }
}

pub(crate) fn is_name_character(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '_' | '-')
}

text_name!(
    /// A job type.
    Kind, "a kind", 64, "a-z, 0-9, '.', '_' and '-'", is_name_character
);
text_name!(
    /// The name of a side effect of a job, `[a-z0-9._-]{1,64}`.
    StepName, "a step name", 64, "a-z, 0-9, '.', '_' and '-'", is_name_character
);
text_name!(
    /// What jobs share a rate limit with: a customer, a host. Its length limit is set by the configuration, up to this one.
    Lane, "a lane", 1024, "all but control characters", |c| !c.is_control()
);
text_name!(
    /// A job's stable idempotency key. Its length limit is set by the configuration, up to this one.
    JobKey, "a key", 4096, "all but control characters", |c| !c.is_control()
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked_where_they_are_made() {
        assert!(Kind::new("email.send").is_ok());
        assert_eq!(Kind::new(""), Err(NameError::Empty { what: "a kind" }));
        assert!(matches!(Kind::new("Email"), Err(NameError::Character { .. })));
        assert!(matches!(StepName::new("x".repeat(65)), Err(NameError::TooLong { bytes: 65, max_bytes: 64, .. })));
        assert!(StepName::new("x".repeat(64)).is_ok());
        assert!(JobKey::new("order-1\n").is_err());
        assert!(serde_json::from_str::<Kind>("\"no spaces\"").is_err());
    }

    #[test]
    fn q7_a_lease_is_shown_by_its_job_and_its_attempt() {
        let token = FencingToken { job: JobId(4711), attempt: AttemptNumber(3) };
        assert_eq!(token.to_string(), "4711#3");
        assert_eq!(format!("{:>3}", token.attempt), "  3");
    }
}
