//! Takes a bounce notification and puts its recipient on the suppression list.
//!
//! **Payload**: `{"recipient": "…", "type": "hard"}`, where the type is `hard`, `soft` or `complaint`; further fields are
//! left alone. Whoever receives the provider's notifications enqueues them in this form, with the notification's id as the
//! job's key. **Key-value store**: `suppressions`, to read and to write, shared with `email-send`.
//!
//! A hard bounce and a complaint list the recipient; a soft bounce changes nothing. A notification that comes twice, or
//! before the send's own answer, leaves the same list: an entry that is there stays as it is. A recipient never goes into
//! a message or a log.

use leasehold_guest::{Failure, Job, Success, keyvalue};
use serde::Deserialize;

/// The payload.
#[derive(Deserialize)]
struct Notification {
    recipient: String,
    #[serde(rename = "type")]
    kind: Kind,
}

/// What is known of the mail.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    /// There is no such recipient.
    Hard,
    /// The recipient could not take the mail this time.
    Soft,
    /// The recipient does not want such mail.
    Complaint,
}

/// Lists the recipient, unless the bounce is a soft one.
#[leasehold_guest::handler]
fn handle(job: Job<Notification>) -> Result<Success, Failure> {
    let recipient = email_address::normalised(&job.payload.recipient)?;
    let reason: &[u8] = match job.payload.kind {
        Kind::Hard => b"hard_bounce",
        Kind::Complaint => b"complaint",
        Kind::Soft => return Ok(Success::done()),
    };
    let suppressions = keyvalue::open("suppressions")?;
    if !suppressions.exists(&recipient)? {
        suppressions.set(&recipient, reason)?;
    }
    Ok(Success::done())
}

#[cfg(test)]
mod tests {
    use leasehold_guest::mock::{MockHost, MockJob};
    use serde_json::json;

    use super::*;

    fn job(kind: &str) -> MockJob {
        MockJob::json(&json!({ "recipient": " Alice@Example.com", "type": kind, "diagnostic": "550" }))
    }

    fn listed(host: &MockHost) -> Option<Vec<u8>> {
        host.value("suppressions", "alice@example.com")
    }

    #[test]
    fn e1_a_hard_bounce_and_a_complaint_list_the_recipient() {
        for (kind, reason) in [("hard", "hard_bounce"), ("complaint", "complaint")] {
            let host = MockHost::new().store("suppressions");
            assert_eq!(host.run(handle, job(kind)), Ok(Success::done()));
            assert_eq!(listed(&host).as_deref(), Some(reason.as_bytes()));
        }
    }

    #[test]
    fn e2_a_soft_bounce_lists_nobody() {
        let host = MockHost::new().store("suppressions");
        assert_eq!(host.run(handle, job("soft")), Ok(Success::done()));
        assert_eq!(listed(&host), None);
    }

    #[test]
    fn e3_a_notification_that_comes_twice_or_late_leaves_the_same_list() {
        let host = MockHost::new().stored_value("suppressions", "alice@example.com", b"recipient_unknown");
        for kind in ["hard", "hard", "complaint"] {
            assert_eq!(host.run(handle, job(kind)), Ok(Success::done()));
            assert_eq!(listed(&host).as_deref(), Some(&b"recipient_unknown"[..]));
        }
    }

    #[test]
    fn d1_an_unreadable_notification_is_poison() {
        let host = MockHost::new().store("suppressions");
        let unknown = host.run(handle, job("lost")).expect_err("no such type");
        assert_eq!(unknown.problem().class, "payload.invalid");
        let malformed =
            host.run(handle, MockJob::raw(r#"{"recipient":"alice","type":"hard"}"#)).expect_err("no address");
        assert_eq!(malformed.problem().class, "email.address_malformed");
    }
}
