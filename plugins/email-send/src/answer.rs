//! How the API's answer is read. It never quotes the answer: what a provider writes may name the recipient.

use leasehold_guest::{Failure, StepError, clock, http};
use serde::Deserialize;

use crate::Sent;

/// What an answer of success may hold.
#[derive(Deserialize)]
struct Accepted {
    #[serde(alias = "message_id", alias = "messageId")]
    id: Option<String>,
}

/// What an answer of refusal may hold.
#[derive(Deserialize)]
struct Refusal {
    error: RefusalError,
}

#[derive(Deserialize)]
struct RefusalError {
    code: String,
}

/// What was sent, or why nothing was and whether that is certain.
pub(crate) fn read(response: &http::Response) -> Result<Sent, StepError> {
    match response.status {
        200..=299 => Ok(Sent::Accepted { message_id: response.json::<Accepted>().and_then(|accepted| accepted.id) }),
        // A refusal is certain: the provider says that it did not take the message.
        300..=499 => read_refusal(response),
        status => Err(StepError::unknown(Failure::retry(
            "downstream.unavailable",
            format!("the e-mail API answered {status}"),
        ))),
    }
}

fn read_refusal(response: &http::Response) -> Result<Sent, StepError> {
    let status = response.status;
    let code = response.json::<Refusal>().map(|refusal| refusal.error.code).unwrap_or_default();
    let failure = match (status, code.as_str()) {
        (_, "hard_bounce" | "invalid_recipient" | "recipient_unknown") => return Ok(Sent::HardBounce { code }),
        (_, "soft_bounce" | "mailbox_full") => {
            Failure::retry("email.soft_bounce", format!("the recipient can't take mail now: {code}"))
        }
        (_, "greylisted") => Failure::retry("email.greylisted", "the recipient's server asks to come again"),
        (429, _) => Failure::rate_limited(
            "downstream.rate_limited",
            "the e-mail API asks to slow down",
            response.retry_after_ms(clock::now_ms()),
        ),
        (401 | 403, _) => {
            Failure::rejected("email.unauthorized", format!("the e-mail API refuses the key with {status}"))
        }
        (408, _) => Failure::retry("downstream.timeout", "the e-mail API waited too long for the request"),
        _ => Failure::rejected("email.refused", format!("the e-mail API refuses the message with {status}")),
    };
    Err(StepError::not_applied(failure))
}
