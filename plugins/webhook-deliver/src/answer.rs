//! How a receiver's answer is read. It never quotes the answer.

use leasehold_guest::{Failure, StepError, clock, http};

/// The status of success, or why the receiver did not accept the message.
pub(crate) fn read(response: &http::Response) -> Result<u16, StepError> {
    if response.is_success() {
        return Ok(response.status);
    }
    // Whatever its status, a complete answer that is no success says that the message was not accepted.
    Err(StepError::not_applied(refusal(response)))
}

fn refusal(response: &http::Response) -> Failure {
    let status = response.status;
    let message = format!("the receiver answered {status}");
    let retry_after_ms = response.retry_after_ms(clock::now_ms());
    match status {
        429 => Failure::rate_limited("downstream.rate_limited", message, retry_after_ms),
        503 if retry_after_ms.is_some() => Failure::rate_limited("downstream.rate_limited", message, retry_after_ms),
        408 => Failure::retry("downstream.timeout", message),
        404 | 410 => Failure::rejected("downstream.not_found", message),
        401 | 403 | 407 => Failure::rejected("downstream.unauthorized", message),
        // These say that the receiver can't do it at all, not that it can't do it now.
        501 | 505 | 508 => Failure::rejected("downstream.refused", message),
        // "Too early" (425) asks for nothing but another time.
        425 | 500..=599 => Failure::retry("downstream.unavailable", message),
        _ => Failure::rejected("downstream.refused", message),
    }
}
