//! Sends one page the way that the configuration names, within its time. It never tries twice.

use std::time::Duration;

use super::{command, document::Document, webhook};
use crate::config::{AlertsConfig, Channel};

/// Sends a page. Answers by what it was taken, or why it was not, in words that quote no address.
pub(crate) async fn send(config: &AlertsConfig, page: &Document, now_ms: i64) -> Result<&'static str, String> {
    let timeout = Duration::from_millis(u64::try_from(config.timeout_ms).unwrap_or(0));
    match &config.channel {
        None => {
            tracing::warn!(page = %page.id, "{}; set webhook or command under [alerts] to have it sent", page.summary);
            Ok("log")
        }
        Some(Channel::Webhook(receiver)) => {
            let posting = tokio::time::timeout(timeout, webhook::post(receiver, page, now_ms)).await;
            posting.unwrap_or_else(|_| Err(too_slow("the receiver", timeout))).map(|()| "webhook")
        }
        Some(Channel::Command { program, arguments }) => {
            let ran = command::run(program, arguments, page, timeout).await;
            ran.map(|()| "command")
        }
    }
}

/// Why a page was not taken in time.
pub(super) fn too_slow(who: &str, timeout: Duration) -> String {
    format!("{who} took longer than {} ms (timeout under [alerts])", timeout.as_millis())
}
