//! Delivers one webhook, signed by the Standard Webhooks scheme.
//!
//! **Payload**: `{"url": "https://…", "body": <any JSON>}`, with `id` (the message's own id) and `headers` (an object of
//! further headers) as wanted. The body goes out byte for byte as it stands in the payload. **Setting**: `signing_secret`,
//! in the form `whsec_<base64>` or as plain text. **Lane**: whoever enqueues sets it to the receiving host, so that one slow
//! receiver, or one that asks to slow down, holds back only its own deliveries.
//!
//! The request carries `webhook-id` (the payload's `id`, else the step's idempotency key: the same over all retries, so
//! that a receiver can tell a repetition), `webhook-timestamp` and `webhook-signature`. It goes out in one step, `deliver`:
//!
//! | answer | outcome |
//! |---|---|
//! | 2xx | done |
//! | 429, and 503 with `Retry-After` | rate-limited, `downstream.rate_limited` |
//! | 408 | retry, `downstream.timeout` |
//! | 404, 410 | rejected, `downstream.not_found` |
//! | 401, 403, 407 | rejected, `downstream.unauthorized` |
//! | any other 3xx or 4xx but 425; 501, 505, 508 | rejected, `downstream.refused` |
//! | 425 and any other 5xx | retry, `downstream.unavailable` |
//! | none: no connection | retry, `downstream.connect` |
//! | none in time; a broken one | retry, `downstream.timeout`; `downstream.unavailable` |
//!
//! A complete answer other than 2xx says that the receiver did not accept the message, so it counts as *not applied*, a
//! 5xx too: webhooks are delivered at least once by convention, and a receiver tells repetitions by `webhook-id`. Only a
//! time-out or a broken answer is *unknown*. Redirects are not followed, and nothing of the URL, the body, the answer or the
//! secret goes into a message or a log.

mod answer;
mod signature;

use std::collections::BTreeMap;

use leasehold_guest::{Failure, Job, Success, clock, http, once, settings};
use serde::Deserialize;
use serde_json::value::RawValue;

use signature::Secret;

/// How long a receiver has for its answer.
const TIMEOUT_MS: u64 = 15_000;

/// The payload.
#[derive(Deserialize)]
struct Envelope {
    url: String,
    body: Box<RawValue>,
    id: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
}

/// Delivers one webhook.
#[leasehold_guest::handler]
fn handle(job: Job<Envelope>) -> Result<Success, Failure> {
    let envelope = job.payload;
    check_headers(&envelope)?;
    let secret = Secret::parse(&settings::required("signing_secret")?)?;
    let body = envelope.body.get();

    let subject = (&envelope.url, &envelope.id, body);
    let status = once("deliver", &subject, |key| {
        let id = envelope.id.as_ref().unwrap_or(&key.idempotency_key);
        let timestamp = clock::now_ms() / 1000;
        let mut request = http::Request::post(&envelope.url)
            .header("webhook-id", id)
            .header("webhook-timestamp", timestamp.to_string())
            .header("webhook-signature", secret.sign(id, timestamp, body))
            .body(body)
            .timeout_ms(TIMEOUT_MS);
        if !envelope.headers.keys().any(|name| name.eq_ignore_ascii_case("content-type")) {
            request = request.header("content-type", "application/json");
        }
        for (name, value) in &envelope.headers {
            request = request.header(name, value);
        }
        answer::read(&request.send()?)
    })?;
    Success::done_json(&serde_json::json!({ "status": status }))
}

/// The signature's headers and those of the connection are not the payload's to set.
fn check_headers(envelope: &Envelope) -> Result<(), Failure> {
    let is_reserved = |name: &String| {
        let name = name.to_ascii_lowercase();
        name.starts_with("webhook-")
            || ["host", "content-length", "connection", "transfer-encoding"].contains(&name.as_str())
    };
    if envelope.headers.keys().any(is_reserved) {
        return Err(Failure::poison("webhook.header_reserved", "the payload sets a header that is not its to set"));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
