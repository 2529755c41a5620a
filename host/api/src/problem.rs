//! How the API says that something was refused or went wrong: RFC 9457, with a stable code.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The media type of an error's body.
pub const CONTENT_TYPE: &str = "application/problem+json";

/// Why a request was refused or failed. Programs go by `code`, people by `detail`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// The class of the problem in the words of HTTP.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// A stable code for programs.
    pub code: String,
    /// What, where, what is allowed and what to do.
    pub detail: String,
    /// Further facts, such as the limit that was exceeded.
    #[serde(flatten)]
    #[schema(additional_properties)]
    pub extra: BTreeMap<String, serde_json::Value>,
}

impl Problem {
    /// A problem with this status, code and explanation.
    #[must_use]
    pub fn new(status: http::StatusCode, code: &str, detail: impl Into<String>) -> Self {
        Self {
            title: status.canonical_reason().unwrap_or("Error").to_owned(),
            status: status.as_u16(),
            code: code.to_owned(),
            detail: detail.into(),
            extra: BTreeMap::new(),
        }
    }

    /// Adds a fact for programs.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<serde_json::Value>) -> Self {
        self.extra.insert(name.to_owned(), value.into());
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} [{}]", self.detail, self.code)
    }
}

impl std::error::Error for Problem {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q17_a_limit_travels_beside_the_words() {
        let problem =
            Problem::new(http::StatusCode::PAYLOAD_TOO_LARGE, "payload_too_large", "too large").with("limit_bytes", 10);
        let json = serde_json::to_value(&problem).unwrap();
        assert_eq!(json["limit_bytes"], 10);
        assert_eq!(json["title"], "Payload Too Large");
        assert_eq!(serde_json::from_value::<Problem>(json).unwrap(), problem);
    }
}
