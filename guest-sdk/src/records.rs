//! Notes on the records of other jobs. They become real with this job's success, and only then; the other job's state never
//! changes by one.

use crate::{Failure, host};

/// A note to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// The other job's type, which has to be granted to the handler.
    pub kind: String,
    /// The other job. On one that does not exist, is forgotten or is of another type, no note is made.
    pub job: u64,
    /// What tells notes of one class apart, such as a notification's id: of the same key, one is made.
    pub key: String,
    /// What it is about, of the form `[a-z0-9._-]{1,64}`.
    pub class: String,
    /// Words for a person.
    pub text: String,
}

/// Why the host did not take a note.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AnnotateError {
    /// The handler may not make notes on jobs of that type.
    Denied,
    /// Over a limit, which is named.
    TooLarge(String),
    /// Not acceptable, and why.
    Invalid(String),
}

impl From<AnnotateError> for Failure {
    fn from(error: AnnotateError) -> Self {
        match error {
            // The operator mends this in the configuration; the handler has no defect.
            AnnotateError::Denied => {
                Self::rejected("records.denied", "the handler was not granted to make notes on jobs of that kind")
            }
            AnnotateError::TooLarge(limit) => {
                Self::poison("records.too_large", format!("a note is over a limit: {limit}"))
            }
            AnnotateError::Invalid(reason) => Self::poison("records.invalid", format!("a note was refused: {reason}")),
        }
    }
}

/// Keeps a note with the open step, or with the attempt when no step is open.
pub fn annotate(note: Note) -> Result<(), AnnotateError> {
    host::annotate(note)
}
