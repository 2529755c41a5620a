//! Charges a card and sends a receipt. An order without a currency is one in euros.

use charge_card_shared::{Order, charge, send_receipt};
use leasehold_guest::{Failure, Job, Success};

#[leasehold_guest::handler(name = "charge-card")]
fn handle(job: Job<Order>) -> Result<Success, Failure> {
    let order = job.payload;
    charge(&order)?;
    send_receipt(&order, order.currency.as_deref().unwrap_or("EUR"))?;
    Ok(Success::done())
}

#[cfg(test)]
mod tests {
    use leasehold_guest::mock::{Answer, MockHost, MockJob};

    use super::*;

    #[test]
    fn r4_a_charge_that_was_applied_is_not_applied_again() {
        let host = MockHost::new()
            .setting("endpoint", "https://pay.example/")
            .applied_step("charge", &())
            .answer(Answer::status(201));
        let order = r#"{"order":"A-1001","amount_cents":1999,"card":"4111","email":"a@example.com"}"#;
        assert_eq!(host.run(handle, MockJob::raw(order)), Ok(Success::done()));
        let [request] = &host.requests()[..] else { panic!("not one request") };
        assert_eq!(request.url, "https://pay.example/receipts");
        assert_eq!(request.body, br#"{"order":"A-1001","amount":"EUR 19.99","email":"a@example.com"}"#);
    }
}
