//! Settings and secrets that the configuration grants to the handler. They are read each time and never kept.

use crate::{Failure, host};

/// The setting of that name, if the handler has one.
pub fn get(name: &str) -> Result<Option<String>, Failure> {
    host::setting(name).map_err(|reason| Failure::retry("settings.unavailable", format!("setting `{name}`: {reason}")))
}

/// The setting of that name. That it is missing is for the operator to mend, not a defect of the handler.
pub fn required(name: &str) -> Result<String, Failure> {
    get(name)?.ok_or_else(|| {
        Failure::rejected("settings.missing", format!("setting `{name}` is not granted to this handler"))
    })
}
