//! The plugin against the mock host: every line of its table, and what it must never write down.

use leasehold_guest::{
    Failure, Success,
    http::ErrorKind,
    mock::{Answer, MockHost, MockJob},
};
use serde_json::{Value, json};

use super::handle;

const NOW_MS: u64 = 1_767_225_600_000; // 2026-01-01T00:00:00Z
const API_KEY: &str = "key-3f9a2c";

fn host() -> MockHost {
    MockHost::new()
        .now_ms(NOW_MS)
        .setting("endpoint", "https://api.mail.example/v1/messages")
        .setting("api_key", API_KEY)
        .setting("from", "shop@example.com")
        .store("suppressions")
}

fn job() -> MockJob {
    MockJob::json(
        &json!({ "to": "Alice@Example.com ", "subject": "Your order 4711", "text": "Thank you", "tags": ["order"] }),
    )
}

fn refusal(status: u16, code: &str) -> Answer {
    Answer::status(status).json(&json!({ "error": { "code": code, "message": "for Alice@Example.com" } }))
}

/// The failure that a run ends with when the API answers so, and the host after it.
fn failure_after(answer: Answer) -> (Failure, MockHost) {
    let host = host().answer(answer);
    let failure = host.run(handle, job()).expect_err("the attempt must fail");
    let text = format!("{failure:?} {:?}", host.logs()).to_lowercase();
    for private in ["alice", "4711", API_KEY] {
        assert!(!text.contains(private), "{private} stands in: {text}");
    }
    (failure, host)
}

#[test]
fn a_message_is_sent_with_the_key_and_its_id_is_the_result() {
    let host = host().answer(Answer::status(202).json(&json!({ "id": "m-1" })));
    assert_eq!(host.run(handle, job()), Ok(Success::done_with(r#"{"message_id":"m-1"}"#)));
    let [request] = &host.requests()[..] else { panic!("not one request") };
    assert_eq!(request.url, "https://api.mail.example/v1/messages");
    assert_eq!(request.header("authorization"), Some("Bearer key-3f9a2c"));
    assert_eq!(request.header("content-type"), Some("application/json"));
    let body: Value = serde_json::from_slice(&request.body).expect("the body is JSON");
    assert_eq!(
        body,
        json!({ "to": "Alice@Example.com", "from": "shop@example.com", "subject": "Your order 4711", "text": "Thank you", "tags": ["order"] })
    );
}

#[test]
fn e3_which_job_sent_the_message_is_known_with_its_success() {
    let host = host().store("messages").answer(Answer::status(202).json(&json!({ "id": "m-1" })));
    let lost = host.run(|job| handle(job).and(Err(Failure::retry("step.lease_lost", ""))), job());
    assert!(lost.is_err());
    assert_eq!(host.value("messages", "m-1"), None);
    assert!(host.run(handle, job().attempt(2)).is_ok());
    assert_eq!((host.value("messages", "m-1").as_deref(), host.requests().len()), (Some(&b"1"[..]), 1));
}

#[test]
fn i1_a_message_that_was_sent_before_is_not_sent_again() {
    let host = host().answer(Answer::status(200).json(&json!({ "messageId": "m-1" })));
    let first = host.run(handle, job());
    assert_eq!(host.run(handle, job().attempt(2)), first);
    assert_eq!(host.requests().len(), 1);
}

#[test]
fn e1_a_hard_bounce_is_suppressed_and_listed() {
    for code in ["hard_bounce", "invalid_recipient", "recipient_unknown"] {
        let host = host().answer(refusal(422, code));
        assert_eq!(host.run(handle, job()), Ok(Success::suppressed(format!("hard bounce: {code}"))));
        assert_eq!(host.value("suppressions", "alice@example.com").as_deref(), Some(code.as_bytes()));
    }
}

#[test]
fn e1_a_hard_bounce_is_listed_by_the_attempt_that_succeeds() {
    let host = host().answer(refusal(400, "hard_bounce"));
    // The first attempt loses its lease after the step: its outcome counts for nothing.
    let lost = host.run(|job| handle(job).and(Err(Failure::retry("step.lease_lost", ""))), job());
    assert!(lost.is_err());
    assert_eq!(host.value("suppressions", "alice@example.com"), None);
    assert!(matches!(host.run(handle, job().attempt(2)), Ok(Success::Suppressed(_))));
    assert!(host.value("suppressions", "alice@example.com").is_some());
    assert_eq!(host.requests().len(), 1);
}

#[test]
fn e2_soft_bounces_and_greylisting_are_retried() {
    for (code, class) in [
        ("soft_bounce", "email.soft_bounce"),
        ("mailbox_full", "email.soft_bounce"),
        ("greylisted", "email.greylisted"),
    ] {
        let (failure, host) = failure_after(refusal(422, code));
        assert!(matches!(failure, Failure::Retry(_)), "{code}: {failure:?}");
        assert_eq!(failure.problem().class, class);
        assert!(!host.is_in_doubt("send"), "{code} is a definite refusal");
        assert_eq!(host.value("suppressions", "alice@example.com"), None);
    }
}

#[test]
fn e2_a_throttled_provider_says_when_to_come_again() {
    let date = "Thu, 01 Jan 2026 00:00:30 GMT";
    for (retry_after, after_ms) in [(Some("7"), Some(7_000)), (Some(date), Some(30_000)), (None, None)] {
        let answer = Answer::status(429);
        let answer = match retry_after {
            Some(value) => answer.header("Retry-After", value),
            None => answer,
        };
        let (failure, host) = failure_after(answer);
        let expected = Failure::rate_limited("downstream.rate_limited", "the e-mail API asks to slow down", after_ms);
        assert_eq!(failure, expected);
        assert!(!host.is_in_doubt("send"));
    }
}

#[test]
fn e3_a_listed_recipient_is_not_sent_to() {
    let host = host().stored_value("suppressions", "alice@example.com", b"hard_bounce");
    assert!(matches!(host.run(handle, job()), Ok(Success::Suppressed(_))));
    assert!(host.requests().is_empty());
}

#[test]
fn d1_refusals_for_good_are_rejected() {
    for (status, class) in [
        (401, "email.unauthorized"),
        (403, "email.unauthorized"),
        (400, "email.refused"),
        (404, "email.refused"),
        (302, "email.refused"),
    ] {
        let (failure, host) = failure_after(Answer::status(status).body("no such page: Alice"));
        assert!(matches!(failure, Failure::Rejected(_)), "{status}: {failure:?}");
        assert_eq!(failure.problem().class, class);
        assert!(!host.is_in_doubt("send"));
    }
}

#[test]
fn i3_a_server_error_or_a_lost_answer_leaves_the_step_in_doubt() {
    for (answer, class) in [
        (Answer::status(500), "downstream.unavailable"),
        (Answer::status(503), "downstream.unavailable"),
        (Answer::error(ErrorKind::Timeout), "downstream.timeout"),
        (Answer::error(ErrorKind::Broken), "downstream.unavailable"),
    ] {
        let (failure, host) = failure_after(answer);
        assert!(matches!(failure, Failure::Retry(_)), "{failure:?}");
        assert_eq!(failure.problem().class, class);
        assert!(host.is_in_doubt("send"), "{class}");
    }
}

#[test]
fn i3_no_connection_leaves_no_doubt() {
    let (failure, host) = failure_after(Answer::error(ErrorKind::Connect));
    assert_eq!(failure.problem().class, "downstream.connect");
    assert!(!host.is_in_doubt("send"));
}

#[test]
fn i3_the_second_try_of_a_send_in_doubt_has_the_same_key() {
    let host = host().answer(Answer::error(ErrorKind::Timeout)).answer(Answer::status(200));
    assert!(host.run(handle, job()).is_err());
    assert!(host.run(handle, job().attempt(2)).is_ok());
    let keys: Vec<_> =
        host.requests().iter().map(|request| request.header("idempotency-key").map(str::to_owned)).collect();
    assert!(keys[0].is_some());
    assert_eq!(keys[0], keys[1]);
}

#[test]
fn d1_a_malformed_address_or_payload_is_poison_before_anything_is_sent() {
    let host = host();
    let malformed = host.run(handle, MockJob::json(&json!({ "to": "alice", "subject": "" }))).expect_err("poison");
    assert_eq!(malformed, Failure::poison("email.address_malformed", "the recipient's address is malformed"));
    let unreadable = host.run(handle, MockJob::raw("{\"to\": 1}")).expect_err("poison");
    assert!(matches!(&unreadable, Failure::Poison(problem) if problem.class == "payload.invalid"), "{unreadable:?}");
    assert!(host.requests().is_empty());
}

#[test]
fn a_missing_setting_is_named() {
    let host = MockHost::new().store("suppressions");
    let failure = host.run(handle, job()).expect_err("a setting is missing");
    assert_eq!(failure.problem().class, "settings.missing");
    assert!(failure.problem().message.contains("`from`"));
}

#[test]
fn e1_a_hard_bounce_that_cannot_be_listed_is_no_success() {
    let host = host().read_only_store("suppressions").answer(refusal(422, "hard_bounce"));
    let failure = host.run(handle, job()).expect_err("the list is not to be written to");
    assert!(matches!(&failure, Failure::Rejected(problem) if problem.class == "keyvalue.denied"), "{failure:?}");
    assert!(!host.is_applied("send"));
}
