//! Masks personal data wherever an operator could see it: in payloads by policy, in texts by value, in both by its form.
//!
//! Everything here takes time linear in what it reads. It never does I/O, never keeps the clear text of what it masked
//! beyond the values that it has to find again, and never recurses, so that nesting can't exhaust a stack.

mod decode;
mod detect;
#[cfg(test)]
mod documents;
mod json;
mod mask;
mod masker;
mod misses;
mod path;
mod payload;
mod rules;
mod text;

pub use detect::{Detector, Finding, detect};
pub use json::{JsonError, is_well_formed};
pub use mask::FingerprintKey;
pub use masker::{Masker, Subject};
pub use misses::Miss;
pub use path::{FieldPath, PathError};
pub use rules::Rules;
pub use text::TextMasker;

/// What stands in the place of something masked of which nothing is told.
pub const REDACTED: &str = "[redacted]";
/// How every mask begins; each goes on to the next `]`.
pub const MASK_BEGINS: &str = "[redacted";
