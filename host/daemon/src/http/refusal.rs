//! How a handler says no: a problem of the API as an HTTP response. Every code that this module makes is stable.

use axum::response::{IntoResponse, Response};
use http::{HeaderName, HeaderValue, StatusCode, header};
use leasehold_api::{Problem, problem};
use leasehold_store::StoreError;

use super::new_job;
use crate::{HandlerError, ReloadError, ReplayError};

/// What an answer carries that nobody on its way may keep.
pub(super) const NO_STORE: [(HeaderName, &str); 1] = [(header::CACHE_CONTROL, "no-store")];

/// A problem that ends a request.
#[derive(Debug, Clone)]
pub(super) struct Refusal(pub(super) Problem);

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Self {
        Self(problem)
    }
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        Self(problem_of_store(&error))
    }
}

impl From<HandlerError> for Refusal {
    fn from(error: HandlerError) -> Self {
        Self(problem_of_handler(&error))
    }
}

impl From<ReplayError> for Refusal {
    fn from(error: ReplayError) -> Self {
        Self(match &error {
            ReplayError::Store(error) => problem_of_store(error),
            ReplayError::Payload(error) => new_job::problem(error),
            ReplayError::UnknownKind(_) => conflict(error.code(), error.to_string()),
        })
    }
}

impl From<ReloadError> for Refusal {
    fn from(error: ReloadError) -> Self {
        let problem = match &error {
            ReloadError::Store(error) => problem_of_store(error),
            _ => invalid(error.code(), error.to_string()),
        };
        Self(problem)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.0.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        // A problem holds nothing that JSON can't; should it ever, its code still tells.
        let body = serde_json::to_vec(&self.0).unwrap_or_else(|_| self.0.code.clone().into_bytes());
        let mut response = (status, [(header::CONTENT_TYPE, problem::CONTENT_TYPE)], body).into_response();
        if status == StatusCode::UNAUTHORIZED {
            // Which scheme is expected (RFC 9110, 11.6.1). Browsers ask nobody for a token on this.
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        // For whoever puts refusals on record.
        response.extensions_mut().insert(self.0);
        response
    }
}

/// A store that failed, for the API. What may pass by itself is unavailable; the rest is an internal error.
pub(super) fn problem_of_store(error: &StoreError) -> Problem {
    let status = match error.code() {
        "key_unavailable" | "disk_low" | "disk_full" | "database_busy" | "database_read_only" | "database_io"
        | "closed" | "query_too_slow" => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    Problem::new(status, error.code(), error.to_string())
}

/// A version that could not be stored, activated or retired.
pub(super) fn problem_of_handler(error: &HandlerError) -> Problem {
    match error {
        HandlerError::Store(error) => problem_of_store(error),
        HandlerError::NotStored { .. } => Problem::new(StatusCode::NOT_FOUND, error.code(), error.to_string()),
        HandlerError::OtherBytes { .. } | HandlerError::NotConfigured { .. } | HandlerError::Artefact(_) => {
            conflict(error.code(), error.to_string())
        }
        _ => invalid(error.code(), error.to_string()),
    }
}

/// Something that is asked about does not exist.
pub(super) fn not_found(what: impl Into<String>) -> Refusal {
    Problem::new(StatusCode::NOT_FOUND, "not_found", what).into()
}

/// The request can't be read.
pub(super) fn malformed(detail: impl Into<String>) -> Refusal {
    Problem::new(StatusCode::BAD_REQUEST, "malformed", detail).into()
}

/// The request can be read and does not make sense.
pub(super) fn invalid(code: &str, detail: impl Into<String>) -> Problem {
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, code, detail)
}

/// What is asked for can't be done as things stand.
pub(super) fn conflict(code: &str, detail: impl Into<String>) -> Problem {
    Problem::new(StatusCode::CONFLICT, code, detail)
}

/// Something is larger than it may be; the limit is in the error.
pub(super) fn too_large(what: &str, limit_bytes: usize) -> Problem {
    let detail = format!("{what} is larger than the limit of {limit_bytes} bytes");
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "payload_too_large", detail).with("limit_bytes", limit_bytes)
}
