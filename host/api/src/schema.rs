//! Schemas of words that the domain owns, for the `OpenAPI` document. They list what the domain lists.

use leasehold_domain::{Cause, HandlerState, JobState};
use utoipa::openapi::{Object, ObjectBuilder, schema::Type};

/// The states of a job.
#[must_use]
pub fn job_state() -> Object {
    one_of(JobState::ALL.map(JobState::as_str))
}

/// The causes of a death.
#[must_use]
pub fn cause() -> Object {
    one_of(Cause::ALL.map(Cause::as_str))
}

/// The states of a stored handler version.
#[must_use]
pub fn handler_state() -> Object {
    one_of(HandlerState::ALL.map(HandlerState::as_str))
}

/// Any JSON value at all.
#[must_use]
pub fn any_json() -> Object {
    ObjectBuilder::new().schema_type(utoipa::openapi::schema::SchemaType::AnyValue).build()
}

fn one_of<const N: usize>(words: [&'static str; N]) -> Object {
    ObjectBuilder::new().schema_type(Type::String).enum_values(Some(words)).build()
}
