//! Versions as operators write them: `name@1.2.3`, or `1.2.3` alone of the handler that serves the kind at hand. It never
//! looks whether a version is stored.

use leasehold_api::Problem;
use leasehold_domain::{DeadLetterId, HandlerName, HandlerVersion, Kind, handler::HandlerVersionError};

use super::{
    Api,
    dead_letters::find,
    refusal::{Refusal, invalid},
};
use crate::config::Config;

/// Reads a version; one without a name is a version of that handler.
pub(super) fn read(text: &str, handler: Option<&HandlerName>) -> Result<HandlerVersion, Problem> {
    let read = match handler {
        Some(handler) if !text.contains('@') => HandlerVersion::new(handler.as_str(), text),
        _ => text.parse(),
    };
    read.map_err(|error: HandlerVersionError| invalid("invalid_handler_version", error.to_string()))
}

/// The handler that serves a kind, if the kind is configured.
pub(super) fn handler_of<'a>(config: &'a Config, kind: &str) -> Option<&'a HandlerName> {
    Kind::new(kind).ok().and_then(|kind| config.kinds.get(&kind)).map(|policy| &policy.handler)
}

/// Reads the version that is asked for a dead letter.
pub(super) async fn of_letter(
    api: &Api,
    id: DeadLetterId,
    text: Option<&str>,
) -> Result<Option<HandlerVersion>, Refusal> {
    let Some(text) = text else { return Ok(None) };
    let letter = find(api, id).await?;
    Ok(Some(read(text, handler_of(&api.daemon.config(), &letter.summary.kind))?))
}
