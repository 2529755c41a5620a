//! Sends one e-mail through an HTTP e-mail API.
//!
//! **Payload**: `{"to": "…", "subject": "…"}` with `from`, `text`, `html` as wanted; further fields go to the API as they
//! stand. **Settings**: `endpoint` (the API's URL), `api_key` (a secret, sent as a bearer token), `from` (for payloads that
//! have none). **Key-value stores**: `suppressions`, to read and to write; its keys are recipients, trimmed and in lower case.
//! `messages`, to read and to write, if it is granted: there the job's id is kept under the id that the API gave the message,
//! so that `email-bounce` finds the job. It grows by one value with each message; nothing removes them.
//!
//! The message goes out in one step, `send`. How the API's answer is read:
//!
//! | answer | outcome | was it applied |
//! |---|---|---|
//! | 2xx | done; the message's id is the result | yes |
//! | 4xx, code `hard_bounce`, `invalid_recipient`, `recipient_unknown` | suppressed, the recipient goes on the list | the answer is kept as the step's result |
//! | 4xx, code `soft_bounce`, `mailbox_full` | retry, `email.soft_bounce` | no |
//! | 4xx, code `greylisted` | retry, `email.greylisted` | no |
//! | 429 | rate-limited, `downstream.rate_limited`, after `Retry-After` | no |
//! | 401, 403 | rejected, `email.unauthorized` | no |
//! | 408 | retry, `downstream.timeout` | no |
//! | any other 3xx or 4xx | rejected, `email.refused` | no |
//! | 5xx | retry, `downstream.unavailable` | unknown |
//! | none in time | retry, `downstream.timeout` | unknown |
//!
//! The code stands in the answer's body: `{"error": {"code": "hard_bounce"}}`. A recipient on the list is not written to.
//! A recipient, a subject or the key never goes into a message or a log.

mod answer;

use leasehold_guest::{Failure, Job, StepError, Success, http, keyvalue, log, once, settings};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// How long the API has for its answer.
const TIMEOUT_MS: u64 = 15_000;

/// The payload.
#[derive(Deserialize)]
struct Email {
    to: String,
    from: Option<String>,
    subject: String,
    /// `text`, `html` and whatever else the API takes.
    #[serde(flatten)]
    content: Map<String, Value>,
}

/// The request's body.
#[derive(Serialize)]
struct Message<'a> {
    to: &'a str,
    from: &'a str,
    subject: &'a str,
    #[serde(flatten)]
    content: &'a Map<String, Value>,
}

/// What the step `send` keeps.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Sent {
    /// The API took the message, under this id if it gave one.
    Accepted { message_id: Option<String> },
    /// The API said for good that there is no such recipient.
    HardBounce { code: String },
}

/// Sends one e-mail.
#[leasehold_guest::handler]
fn handle(job: Job<Email>) -> Result<Success, Failure> {
    let email = job.payload;
    let recipient = email_address::normalised(&email.to)?;
    let suppressions = keyvalue::open("suppressions")?;
    if suppressions.exists(&recipient)? {
        return Ok(Success::suppressed("the recipient is on the suppression list"));
    }
    let from = match email.from {
        Some(from) => from,
        None => settings::required("from")?,
    };
    let message = Message { to: email.to.trim(), from: &from, subject: &email.subject, content: &email.content };
    let endpoint = settings::required("endpoint")?;
    let api_key = settings::required("api_key")?;

    let sent = once("send", &message, |_key| {
        let request = http::Request::post(&endpoint)
            .header("authorization", format!("Bearer {api_key}"))
            .json(&message)
            .timeout_ms(TIMEOUT_MS);
        let sent = answer::read(&request.send()?)?;
        if let Sent::Accepted { message_id: Some(message_id) } = &sent {
            remember(message_id, job.id);
        }
        if let Sent::HardBounce { code } = &sent {
            // Written inside the step, it becomes visible with the job's success, whichever attempt that is.
            suppressions.set(&recipient, code.as_bytes()).map_err(|error| StepError::not_applied(error.into()))?;
        }
        Ok(sent)
    })?;
    match sent {
        Sent::Accepted { message_id } => Success::done_json(&serde_json::json!({ "message_id": message_id })),
        Sent::HardBounce { code } => Ok(Success::suppressed(format!("hard bounce: {code}"))),
    }
}

/// Keeps which job sent the message, for its bounces. The message is on its way: that this fails is no reason to send it
/// again.
fn remember(message_id: &str, job: u64) {
    match keyvalue::open("messages").and_then(|messages| messages.set(message_id, job.to_string().as_bytes())) {
        Ok(()) | Err(keyvalue::Error::NoSuchStore | keyvalue::Error::AccessDenied) => {}
        Err(keyvalue::Error::Other(_)) => log::warn("a bounce of this message will not be on the job's record"),
    }
}

#[cfg(test)]
mod tests;
