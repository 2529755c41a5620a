//! The webhook plugin against a receiver: what it signs, what it retries and when.

use std::time::{Duration, SystemTime};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use hmac::{Hmac, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;

use crate::{
    letters::attempts,
    support::{ConfigText, Daemon, Received, Reply, Server, plugin},
};

const KEY: &[u8] = b"a key of many bytes, 32 of them.";

fn start(server: &Server) -> Daemon {
    let url = server.url();
    let secret = format!("whsec_{}", BASE64_STANDARD.encode(KEY));
    let config = ConfigText::default().more(&format!(
        "\"downstream.rate_limited\" = \"rate-limited\"\n\"downstream.unavailable\" = \"retry\"\n\
         \"downstream.not_found\" = \"rejected\"\n\"downstream.refused\" = \"rejected\"\n\
         [handlers.webhook-deliver]\noutbound = [\"POST {url}\"]\n\
         [handlers.webhook-deliver.secrets]\nsigning_secret = {{ env = \"TEST_SIGNING_SECRET\" }}\n\
         [kinds.webhook]\nhandler = \"webhook-deliver\"\nowner = \"integrations\"\nattempts = 3\n\
         backoff = {{ min = \"10ms\", max = \"50ms\" }}\nin_doubt = \"begin-again\""
    ));
    let mut daemon = Daemon::prepare(&config);
    daemon.set_environment("TEST_SIGNING_SECRET", &secret);
    daemon.run();
    daemon.push_live(&plugin("webhook-deliver@1.0.0"));
    daemon
}

/// Delivers a body; answers the job at its end.
fn deliver(daemon: &Daemon, server: &Server, body: &str) -> Value {
    let payload = format!(r#"{{"url":"{}/hook","body":{body},"headers":{{"x-shop":"7"}}}}"#, server.url());
    let sent = daemon.ask(&["enqueue", "webhook", "--payload", &payload]).json();
    let job = sent["id"].as_i64().unwrap();
    daemon.wait(job);
    daemon.job(job)
}

/// The signature as its receiver computes it.
fn signature(request: &Received) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(KEY).unwrap();
    let part = |name| request.header(name).unwrap_or_else(|| panic!("no {name}: {request:?}"));
    mac.update(format!("{}.{}.{}", part("webhook-id"), part("webhook-timestamp"), request.body).as_bytes());
    format!("v1,{}", BASE64_STANDARD.encode(mac.finalize().into_bytes()))
}

/// How long lay between the end of a job's first attempt and the beginning of its second.
pub fn waited_ms(daemon: &Daemon, job: &Value) -> i64 {
    daemon.database().one(&format!(
        "SELECT later.leased_at - earlier.ended_at FROM attempts earlier JOIN attempts later USING (job_id)
         WHERE job_id = {} AND earlier.number = 1 AND later.number = 2",
        job["id"]
    ))
}

#[test]
fn a_webhook_is_signed_as_its_receiver_checks_it_and_its_body_goes_out_byte_for_byte() {
    let server = Server::accepting();
    let daemon = start(&server);
    let body = r#"{ "n": 1e400, "s": "\ud800\u0000é\/", "a": 1, "a": 2, "big": 123456789012345678901234567890 }"#;
    let before = SystemTime::now();
    assert_eq!(deliver(&daemon, &server, body)["state"], "done");
    let [request] = &server.received()[..] else { panic!("not one request") };
    assert_eq!((&*request.method, &*request.path, &*request.body), ("POST", "/hook", body));
    assert_eq!(request.header("webhook-signature"), Some(&*signature(request)));
    assert_eq!(request.header("content-type"), Some("application/json"));
    assert_eq!(request.header("x-shop"), Some("7"));
    let seconds: u64 = request.header("webhook-timestamp").unwrap().parse().unwrap();
    let timestamp = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds + 1);
    assert!(timestamp > before && timestamp < SystemTime::now() + Duration::from_secs(2), "{request:?}");
    let secret = String::from_utf8_lossy(KEY);
    crate::forms::assert_free(&format!("{request:?}"), &[&secret], "the request");
}

#[test]
fn e2_a_webhook_that_its_receiver_can_not_take_now_is_retried_as_the_same_message() {
    let server = Server::answering(|_, number| Reply::status([500, 502, 204][number]));
    let daemon = start(&server);
    let job = deliver(&daemon, &server, r#"{"order":1}"#);
    assert_eq!((&job["state"], attempts(&job)), (&json!("done"), 3));
    let received = server.received();
    for request in &received {
        assert_eq!(request.header("webhook-signature"), Some(&*signature(request)));
        assert_eq!(request.header("webhook-id"), received[0].header("webhook-id"));
        assert_eq!(request.header("idempotency-key"), received[0].header("idempotency-key"));
    }
}

#[test]
fn d1_a_receiver_that_is_gone_rejects_the_webhook_at_once() {
    for (status, class) in [(410, "downstream.not_found"), (404, "downstream.not_found"), (302, "downstream.refused")] {
        let server = Server::answering(move |_, _| Reply::status(status));
        let daemon = start(&server);
        let job = deliver(&daemon, &server, "{}");
        let letter = daemon.dead_letter(job["id"].as_i64().unwrap());
        assert_eq!((&letter["cause"], &letter["error_class"]), (&json!("rejected"), &json!(class)));
        assert_eq!((attempts(&letter), server.received().len()), (1, 1));
    }
}

#[test]
fn e2_a_receiver_that_asks_to_wait_is_waited_for_in_seconds_or_until_a_date() {
    for status in [429, 503] {
        for as_date in [false, true] {
            let server = Server::answering(move |_, number| {
                if number > 0 {
                    return Reply::status(200);
                }
                // A date has whole seconds, so that 3 s from now are more than 2 s.
                let date = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(3));
                Reply::Status(status, vec![("retry-after", if as_date { date } else { "2".into() })], String::new())
            });
            let daemon = start(&server);
            let job = deliver(&daemon, &server, "{}");
            assert_eq!((&job["state"], attempts(&job)), (&json!("done"), 2));
            assert_eq!(job["attempts"][0]["error_class"], "downstream.rate_limited");
            // The backoff alone would have been 50 ms at most; the date is read a moment after it was written.
            let waited_ms = waited_ms(&daemon, &job);
            assert!(waited_ms >= 1_500, "{status} as a date {as_date}: it waited for {waited_ms} ms");
        }
    }
}

#[test]
fn q9_a_receiver_can_not_ask_to_be_waited_for_longer_than_the_kind_allows() {
    let far = |_: &Received, number: usize| match number {
        0 => Reply::Status(429, vec![("retry-after", "86400".into())], String::new()),
        1 => Reply::Status(429, vec![("retry-after", "Fri, 31 Dec 9999 23:59:59 GMT".into())], String::new()),
        _ => Reply::status(200),
    };
    let server = Server::answering(far);
    let url = server.url().to_owned();
    let config = ConfigText::default().more(&format!(
        "\"downstream.rate_limited\" = \"rate-limited\"\n[handlers.webhook-deliver]\noutbound = [\"POST {url}\"]\n\
         settings = {{ signing_secret = \"not-a-secret-here\" }}\n[kinds.webhook]\nhandler = \"webhook-deliver\"\n\
         owner = \"integrations\"\nretry_after_max = \"100ms\"\nbackoff = {{ min = \"10ms\", max = \"50ms\" }}"
    ));
    let daemon = Daemon::start(&config);
    daemon.push_live(&plugin("webhook-deliver@1.0.0"));
    assert_eq!(deliver(&daemon, &server, "{}")["state"], "done");
}
