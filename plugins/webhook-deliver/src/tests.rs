//! The plugin against the mock host: every line of its table, and the bytes that go out.

use leasehold_guest::{
    Failure, Success,
    http::ErrorKind,
    mock::{Answer, MockHost, MockJob},
};

use super::{Secret, handle};

const NOW_MS: u64 = 1_767_225_600_000; // 2026-01-01T00:00:00Z
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const BODY: &str = r#"{ "amount":1.10,  "n": 12345678901234567890123, "name":"Zo\u00eb" }"#;

fn host() -> MockHost {
    MockHost::new().now_ms(NOW_MS).setting("signing_secret", SECRET)
}

fn job_with(extra: &str) -> MockJob {
    MockJob::raw(format!(r#"{{"url":"https://hooks.example/orders?t=tok","body":{BODY}{extra}}}"#))
}

fn job() -> MockJob {
    job_with("")
}

fn failure_after(answer: Answer) -> (Failure, MockHost) {
    let host = host().answer(answer);
    let failure = host.run(handle, job()).expect_err("the attempt must fail");
    let text = format!("{failure:?} {:?}", host.logs());
    for private in ["hooks.example", "tok", "Zo", SECRET] {
        assert!(!text.contains(private), "{private} stands in: {text}");
    }
    (failure, host)
}

#[test]
fn q17_the_body_goes_out_byte_for_byte_and_signed() {
    let host = host().answer(Answer::status(204));
    assert_eq!(host.run(handle, job()), Ok(Success::done_with(r#"{"status":204}"#)));
    let [request] = &host.requests()[..] else { panic!("not one request") };
    assert_eq!(request.body, BODY.as_bytes());
    assert_eq!(request.url, "https://hooks.example/orders?t=tok");
    assert_eq!(request.header("content-type"), Some("application/json"));
    assert_eq!(request.header("webhook-timestamp"), Some("1767225600"));
    let id = request.header("webhook-id").expect("an id");
    let secret = Secret::parse(SECRET).unwrap_or_else(|failure| panic!("{failure:?}"));
    assert_eq!(request.header("webhook-signature"), Some(secret.sign(id, 1_767_225_600, BODY).as_str()));
}

#[test]
fn the_payloads_own_id_and_headers_are_used() {
    let host = host().answer(Answer::status(200));
    let job = job_with(r#","id":"evt-1","headers":{"X-Shop":"7","Content-Type":"application/cloudevents+json"}"#);
    assert!(host.run(handle, job).is_ok());
    let [request] = &host.requests()[..] else { panic!("not one request") };
    assert_eq!(request.header("webhook-id"), Some("evt-1"));
    assert_eq!(request.header("x-shop"), Some("7"));
    assert_eq!(request.header("content-type"), Some("application/cloudevents+json"));
}

#[test]
fn d1_a_reserved_header_is_poison() {
    for name in ["Webhook-Signature", "Host", "content-length"] {
        let host = host();
        let failure = host.run(handle, job_with(&format!(r#","headers":{{"{name}":"x"}}"#))).expect_err("poison");
        assert!(
            matches!(&failure, Failure::Poison(problem) if problem.class == "webhook.header_reserved"),
            "{failure:?}"
        );
        assert!(host.requests().is_empty());
    }
}

#[test]
fn i3_a_delivery_in_doubt_is_repeated_under_the_same_id() {
    let host = host().answer(Answer::error(ErrorKind::Timeout)).answer(Answer::status(200));
    let failure = host.run(handle, job()).expect_err("a time-out");
    assert!(matches!(&failure, Failure::Retry(problem) if problem.class == "downstream.timeout"), "{failure:?}");
    assert!(host.is_in_doubt("deliver"));
    assert!(host.run(handle, job().attempt(2)).is_ok());
    let ids: Vec<_> = host.requests().iter().map(|request| request.header("webhook-id").map(str::to_owned)).collect();
    assert!(ids[0].is_some());
    assert_eq!(ids[0], ids[1]);
}

#[test]
fn i1_a_delivered_webhook_is_not_delivered_again() {
    let host = host().answer(Answer::status(200));
    assert!(host.run(handle, job()).is_ok());
    assert!(host.run(handle, job().attempt(2)).is_ok());
    assert_eq!(host.requests().len(), 1);
}

#[test]
fn q8_what_may_go_well_another_time_is_retried() {
    for (answer, class, in_doubt) in [
        (Answer::status(500), "downstream.unavailable", false),
        (Answer::status(502), "downstream.unavailable", false),
        (Answer::status(503), "downstream.unavailable", false),
        (Answer::status(504), "downstream.unavailable", false),
        (Answer::status(425), "downstream.unavailable", false),
        (Answer::status(408), "downstream.timeout", false),
        (Answer::error(ErrorKind::Connect), "downstream.connect", false),
        (Answer::error(ErrorKind::Timeout), "downstream.timeout", true),
        (Answer::error(ErrorKind::Broken), "downstream.unavailable", true),
    ] {
        let (failure, host) = failure_after(answer);
        assert!(matches!(&failure, Failure::Retry(problem) if problem.class == class), "{class}: {failure:?}");
        assert_eq!(host.is_in_doubt("deliver"), in_doubt, "{class}");
    }
}

#[test]
fn q9_slow_down_is_no_failure_of_the_receiver() {
    for (status, retry_after, after_ms) in [
        (429, None, None),
        (429, Some("30"), Some(30_000)),
        (503, Some("5"), Some(5_000)),
        (503, Some("Thu, 01 Jan 2026 00:02:00 GMT"), Some(120_000)),
    ] {
        let answer = Answer::status(status);
        let answer = match retry_after {
            Some(value) => answer.header("retry-after", value),
            None => answer,
        };
        let (failure, _) = failure_after(answer);
        let Failure::RateLimited(problem, asked_ms) = failure else { panic!("not rate-limited: {failure:?}") };
        assert_eq!((problem.class.as_str(), asked_ms), ("downstream.rate_limited", after_ms));
    }
}

#[test]
fn d1_refusals_for_good_are_rejected() {
    for (status, class) in [
        (404, "downstream.not_found"),
        (410, "downstream.not_found"),
        (401, "downstream.unauthorized"),
        (403, "downstream.unauthorized"),
        (400, "downstream.refused"),
        (413, "downstream.refused"),
        (301, "downstream.refused"),
        (501, "downstream.refused"),
        (508, "downstream.refused"),
    ] {
        let (failure, _) = failure_after(Answer::status(status).body("Zoe was here"));
        assert!(matches!(&failure, Failure::Rejected(problem) if problem.class == class), "{status}: {failure:?}");
    }
}
