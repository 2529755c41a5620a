//! O5: what a web page of another origin can make a browser send to the API over TCP. None of it does anything, even with
//! a token, and nothing of an answer is for such a page to read.

use serde_json::json;

use crate::{
    raw_http::{RawAnswer, over_tcp, tcp_address},
    support::Daemon,
    tokens::{on_tcp, token},
};

const JOB: &[u8] = br#"{"kind":"job","payload":{"do":"echo"}}"#;
const JSON: &str = "content-type: application/json";

/// A daemon, its address, and the header of an admin's token: the worst that a page could have got hold of.
fn daemon() -> (Daemon, String, String) {
    let daemon = Daemon::start(&on_tcp());
    let address = tcp_address(&daemon);
    let bearer = format!("authorization: Bearer {}", token(&daemon, "root", "admin", &[]));
    (daemon, address, bearer)
}

#[track_caller]
fn assert_unreadable(answer: &RawAnswer) {
    assert!(!answer.head.contains("access-control-") && !answer.head.contains("set-cookie"), "{}", answer.head);
}

#[track_caller]
fn assert_refused(answer: &RawAnswer, status: u16, code: &str) {
    assert_eq!((answer.status, answer.code()), (status, json!(code)), "{answer:?}");
    assert_unreadable(answer);
}

fn jobs(daemon: &Daemon) -> i64 {
    daemon.database().one("SELECT count(*) FROM jobs")
}

#[test]
fn o5_a_name_that_resolves_to_this_machine_is_not_the_api() {
    let (daemon, address, bearer) = daemon();
    let port = address.rsplit_once(':').unwrap().1;
    for host in [format!("evil.example:{port}"), "evil.example".into(), "127.0.0.1".into(), "127.0.0.1:1".into()] {
        let headers = [&*format!("host: {host}"), &bearer, JSON];
        assert_refused(&over_tcp(&address, "POST", "/v1/jobs", &headers, JOB), 403, "host_not_allowed");
        assert_refused(&over_tcp(&address, "GET", "/v1/jobs", &headers, b""), 403, "host_not_allowed");
    }
    let own = format!("host: localhost:{port}");
    let two = [&*own, "host: evil.example", &bearer, JSON];
    assert!(over_tcp(&address, "POST", "/v1/jobs", &two, JOB).status >= 400);
    let absolute = over_tcp(&address, "POST", "http://evil.example/v1/jobs", &[&own, &bearer, JSON], JOB);
    assert_refused(&absolute, 403, "host_not_allowed");
    assert_eq!(jobs(&daemon), 0);
    assert_eq!(over_tcp(&address, "POST", "/v1/jobs", &[&own, &bearer, JSON], JOB).status, 201);
    let audit = daemon.ask(&["audit", "ls", "--action", "access.refused", "--actor", "peer:127.0.0.1"]).json();
    assert!(
        audit["items"].as_array().unwrap().iter().any(|row| row["detail"]["code"] == "host_not_allowed"),
        "{audit}"
    );
}

#[test]
fn o5_a_page_of_another_origin_is_refused_and_may_read_nothing() {
    let (daemon, address, bearer) = daemon();
    let host = format!("host: {address}");
    for origin in ["http://evil.example", "https://evil.example", "null", "http://127.0.0.1:1"] {
        let origin = format!("origin: {origin}");
        for (method, path) in
            [("POST", "/v1/jobs"), ("POST", "/v1/reload"), ("GET", "/v1/jobs"), ("GET", "/openapi.json")]
        {
            let answer = over_tcp(&address, method, path, &[&host, &bearer, JSON, &origin], JOB);
            assert_refused(&answer, 403, "origin_not_allowed");
        }
        // The question that a browser asks before it sends what a form can't.
        let asked = "access-control-request-method: POST";
        let headers = [&*host, &origin, asked, "access-control-request-headers: authorization"];
        assert_refused(&over_tcp(&address, "OPTIONS", "/v1/jobs", &headers, b""), 403, "origin_not_allowed");
    }
    assert_eq!(jobs(&daemon), 0);
    let own = format!("origin: http://{address}");
    let answer = over_tcp(&address, "POST", "/v1/jobs", &[&host, &bearer, JSON, &own], JOB);
    assert_eq!(answer.status, 201, "{answer:?}");
    assert_unreadable(&answer);
}

#[test]
fn o5_a_form_can_not_speak_to_the_api() {
    let (daemon, address, bearer) = daemon();
    let host = format!("host: {address}");
    for form in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"] {
        let content_type = format!("content-type: {form}");
        for path in ["/v1/jobs", "/v1/jobs:batch", "/v1/tokens", "/v1/handlers"] {
            let answer = over_tcp(&address, "POST", path, &[&host, &bearer, &content_type], JOB);
            assert_refused(&answer, 415, "content_type_not_allowed");
        }
    }
    assert_refused(&over_tcp(&address, "POST", "/v1/jobs", &[&host, &bearer], JOB), 415, "content_type_not_allowed");
    assert_eq!(jobs(&daemon), 0);
}

#[test]
fn o5_nothing_but_a_token_makes_a_call_somebodys() {
    let (daemon, address, _) = daemon();
    let host = format!("host: {address}");
    for header in ["cookie: session=root", "x-forwarded-user: root", "authorization: Basic cm9vdDpyb290", "x-uid: 0"] {
        let answer = over_tcp(&address, "POST", "/v1/jobs", &[&host, JSON, header], JOB);
        assert_refused(&answer, 401, "unauthenticated");
    }
    assert_eq!(jobs(&daemon), 0);
}
