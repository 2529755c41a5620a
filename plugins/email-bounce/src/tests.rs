//! The plugin against the mock host: the list, the notes, and the forms in which providers write.

use leasehold_guest::mock::{MockHost, MockJob};
use serde_json::{Value, json};

use super::*;

fn host() -> MockHost {
    MockHost::new().store("suppressions").store("messages").annotates(SEND)
}

fn knowing_host() -> MockHost {
    host().stored_value("messages", "m-1", b"17")
}

fn job(kind: &str) -> MockJob {
    MockJob::json(
        &json!({ "recipient": " Alice@Example.com", "type": kind, "message_id": "m-1", "id": "n-1", "diagnostic": "550" }),
    )
}

fn listed(host: &MockHost) -> Option<Vec<u8>> {
    host.value("suppressions", "alice@example.com")
}

fn noted(host: &MockHost) -> Vec<(u64, String, String)> {
    host.notes().into_iter().map(|note| (note.job, note.class, note.key)).collect()
}

#[test]
fn e1_a_hard_bounce_and_a_complaint_list_the_recipient() {
    for (kind, reason) in [("hard", "hard_bounce"), ("complaint", "complaint")] {
        let host = host();
        assert_eq!(host.run(handle, job(kind)), Ok(Success::done()));
        assert_eq!(listed(&host).as_deref(), Some(reason.as_bytes()));
    }
}

#[test]
fn e2_a_soft_bounce_lists_nobody_and_is_noted() {
    let host = knowing_host();
    assert_eq!(host.run(handle, job("soft")), Ok(Success::done()));
    assert_eq!(listed(&host), None);
    assert_eq!(noted(&host), [(17, "email.soft_bounce".to_owned(), "n-1".to_owned())]);
}

#[test]
fn e3_a_notification_that_comes_twice_or_late_leaves_the_same_list_and_one_note() {
    let host = knowing_host().stored_value("suppressions", "alice@example.com", b"recipient_unknown");
    for kind in ["hard", "hard", "complaint"] {
        assert_eq!(host.run(handle, job(kind)), Ok(Success::done()));
        assert_eq!(listed(&host).as_deref(), Some(&b"recipient_unknown"[..]));
    }
    let note = |class: &str| (17, class.to_owned(), "n-1".to_owned());
    assert_eq!(noted(&host), [note("email.hard_bounce"), note("email.complaint")]);
    let text = format!("{:?} {:?}", host.notes(), host.logs());
    assert!(!text.to_lowercase().contains("alice"), "{text}");
}

#[test]
fn e3_a_notification_before_the_sends_answer_lists_at_once_and_looks_again() {
    let host = host();
    assert_eq!(host.run(handle, job("hard")), Ok(Success::done()));
    assert!(listed(&host).is_some());
    assert_eq!(noted(&host), []);
    let [first] = &host.enqueued()[..] else { panic!("not one job") };
    assert_eq!((first.kind.as_str(), first.key.as_deref(), first.delay_ms), ("mock", Some("mock-key/1"), 1_000));
    // What looks again finds the send once it is known.
    let host = host.stored_value("messages", "m-1", b"17");
    assert_eq!(host.run(handle, MockJob::raw(first.payload.clone())), Ok(Success::done()));
    assert_eq!((noted(&host).len(), host.enqueued().len()), (1, 1));
}

#[test]
fn e3_a_send_that_nobody_knows_is_not_looked_for_for_ever() {
    let host = host();
    let mut next = MockJob::raw(
        serde_json::to_vec(&json!({ "recipient": "a@example.com", "type": "hard", "message_id": "m" })).expect("JSON"),
    );
    let mut waited_ms = 0;
    for looked in 1..=LOOKED_MAX {
        assert_eq!(host.run(handle, next), Ok(Success::done()));
        let enqueued = host.enqueued();
        assert_eq!(enqueued.len(), looked as usize);
        let last = &enqueued[enqueued.len() - 1];
        waited_ms += last.delay_ms;
        next = MockJob::raw(last.payload.clone());
    }
    assert_eq!(host.run(handle, next), Ok(Success::done()));
    assert_eq!(host.enqueued().len(), LOOKED_MAX as usize);
    assert_eq!(waited_ms, 21_845_000);
}

#[test]
fn e3_without_a_message_or_its_store_nothing_is_noted() {
    let host = MockHost::new().store("suppressions");
    assert_eq!(host.run(handle, job("hard")), Ok(Success::done()));
    let without = json!({ "recipient": "alice@example.com", "type": "hard" });
    let host = knowing_host();
    assert_eq!(host.run(handle, MockJob::json(&without)), Ok(Success::done()));
    assert_eq!((noted(&host), host.enqueued()), (Vec::new(), Vec::new()));
}

#[test]
fn e3_providers_forms_are_read() {
    let forms: [(Value, &str); 4] = [
        (
            json!({ "RecordType": "Bounce", "Type": "HardBounce", "Email": "a@example.com", "MessageID": "m-1", "ID": 42 }),
            "email.hard_bounce",
        ),
        (json!({ "bounceType": "Permanent", "email": "a@example.com", "messageId": "<m-1>" }), "email.hard_bounce"),
        (json!({ "bounceType": "Transient", "email": "a@example.com", "messageId": "m-1" }), "email.soft_bounce"),
        (json!({ "type": "spam_report", "email": "a@example.com", "message_id": "m-1" }), "email.complaint"),
    ];
    for (form, class) in forms {
        let host = knowing_host();
        assert_eq!(host.run(handle, MockJob::json(&form)), Ok(Success::done()), "{form}");
        assert_eq!(noted(&host)[0].1, class, "{form}");
    }
}

#[test]
fn h6_notes_that_are_not_granted_are_no_success() {
    let host = MockHost::new().store("suppressions").stored_value("messages", "m-1", b"17");
    let failure = host.run(handle, job("hard")).expect_err("notes are not granted");
    assert_eq!(failure.problem().class, "records.denied");
}

#[test]
fn d1_an_unreadable_notification_is_poison() {
    let unknown = host().run(handle, job("lost")).expect_err("no such type");
    assert_eq!(unknown.problem().class, "payload.invalid");
    let malformed = host().run(handle, MockJob::raw(r#"{"recipient":"alice","type":"hard"}"#)).expect_err("no address");
    assert_eq!(malformed.problem().class, "email.address_malformed");
}
