//! What both versions of the charge-card handler share: the payload and the two requests. The versions differ only in what
//! they do when an order names no currency.

use leasehold_guest::{Failure, StepError, http, once, settings};
use serde::{Deserialize, Serialize};

/// The payload: an order to be paid for.
#[derive(Deserialize)]
pub struct Order {
    /// The order's number.
    pub order: String,
    /// What is to be paid.
    pub amount_cents: u64,
    /// The card, as the shop knows it.
    pub card: String,
    /// Where the receipt goes.
    pub email: String,
    /// The currency, which older clients leave out.
    pub currency: Option<String>,
}

/// What is asked of the payment service.
#[derive(Serialize)]
struct Charge<'a> {
    order: &'a str,
    amount_cents: u64,
    card: &'a str,
    currency: Option<&'a str>,
}

/// What is asked of the receipt service.
#[derive(Serialize)]
struct Receipt<'a> {
    order: &'a str,
    amount: String,
    email: &'a str,
}

/// Charges the card, once for the job.
pub fn charge(order: &Order) -> Result<(), Failure> {
    let charge = Charge {
        order: &order.order,
        amount_cents: order.amount_cents,
        card: &order.card,
        currency: order.currency.as_deref(),
    };
    post_once("charge", "charges", &charge)
}

/// Sends the receipt, once for the job.
pub fn send_receipt(order: &Order, currency: &str) -> Result<(), Failure> {
    let amount = format!("{currency} {}.{:02}", order.amount_cents / 100, order.amount_cents % 100);
    post_once("receipt", "receipts", &Receipt { order: &order.order, amount, email: &order.email })
}

/// POSTs in a step. An answer of 4xx says that nothing was done; one of 5xx leaves it open.
fn post_once(step: &str, path: &str, body: &impl Serialize) -> Result<(), Failure> {
    let url = format!("{}/{path}", settings::required("endpoint")?.trim_end_matches('/'));
    once(step, body, |_key| {
        let status = http::Request::post(&url).json(body).send()?.status;
        let message = format!("the service answered {status}");
        match status {
            200..=299 => Ok(()),
            429 => Err(StepError::not_applied(Failure::rate_limited("downstream.rate_limited", message, None))),
            300..=499 => Err(StepError::not_applied(Failure::rejected("downstream.refused", message))),
            _ => Err(StepError::unknown(Failure::retry("downstream.unavailable", message))),
        }
    })
}
