//! Charges a card and sends a receipt. This version has a defect, on purpose: an order without a currency is charged, and
//! then makes it panic.

use charge_card_shared::{Order, charge, send_receipt};
use leasehold_guest::{Failure, Job, Success};

#[leasehold_guest::handler(name = "charge-card")]
fn handle(job: Job<Order>) -> Result<Success, Failure> {
    let order = job.payload;
    charge(&order)?;
    let currency = order.currency.as_deref().expect("an order has a currency");
    send_receipt(&order, currency)?;
    Ok(Success::done())
}

#[cfg(test)]
mod tests {
    use leasehold_guest::mock::{Answer, MockHost, MockJob};

    use super::*;

    #[test]
    #[should_panic(expected = "an order has a currency")]
    fn the_defect_strikes_after_the_charge() {
        let host = MockHost::new().setting("endpoint", "https://pay.example").answer(Answer::status(201));
        let order = r#"{"order":"A-1001","amount_cents":1999,"card":"4111","email":"a@example.com"}"#;
        let _ = host.run(handle, MockJob::raw(order));
    }
}
