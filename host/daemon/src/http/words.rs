//! Words that operators type and that are kept: a reason, a note. They say something, are no novel, and are masked where
//! they look like personal data, since people paste what they see.

use leasehold_api::Problem;

use super::refusal::invalid;
use crate::{config::Config, redact};

const MAX_BYTES: usize = 4_096;

/// Why something is done.
pub(super) fn reason(text: String, config: &Config) -> Result<String, Problem> {
    kept("reason", "say why", text, config)
}

/// What is known of something.
pub(super) fn note(text: String, config: &Config) -> Result<String, Problem> {
    kept("note", "say what is known", text, config)
}

fn kept(what: &str, wanted: &str, text: String, config: &Config) -> Result<String, Problem> {
    if text.trim().is_empty() {
        return Err(invalid(&format!("{what}_missing"), format!("{wanted}; the {what} is kept")));
    }
    if text.len() > MAX_BYTES {
        let detail = format!("the {what} has {} bytes; at most {MAX_BYTES} are allowed", text.len());
        return Err(invalid(&format!("{what}_too_long"), detail).with("limit_bytes", MAX_BYTES));
    }
    Ok(redact::words(config, text))
}
