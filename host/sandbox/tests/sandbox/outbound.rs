//! Outbound HTTP against a real server.

use leasehold_domain::{
    Outcome,
    grants::{Grants, OutboundGrant},
};
use leasehold_sandbox::RunReport;
use serde_json::{Value, json};

use crate::support::{Host, Recorded, Server, broke, grants, limits, log, misbehave_with, outbound, output, run};

async fn get_with(grant: OutboundGrant, url: &str) -> RunReport {
    let grants = Grants { outbound: vec![grant], ..grants(9) };
    run(&misbehave_with(&grants, &limits()).await, &json!({"do": "get", "url": url}), &Host::new()).await
}

async fn answer(server: &Server, path: &str) -> Value {
    output(&get_with(outbound(server.port(), &["GET"]), &server.url(path)).await)
}

#[tokio::test]
async fn h6_a_granted_destination_is_reached() {
    let server = Server::start().await;
    assert_eq!(answer(&server, "/ok").await["status"], 200);
    let head = server.requests()[0].clone();
    assert!(head.starts_with("get /ok http/1.1\r\n"), "{head}");
    assert!(head.contains(&format!("\r\nhost: 127.0.0.1:{}", server.port())), "{head}");
}

#[tokio::test]
async fn h6_what_is_not_granted_does_not_leave_and_the_log_says_what_to_add() {
    let server = Server::start().await;
    let other_port = get_with(outbound(1, &["GET"]), &server.url("/ok")).await;
    assert_eq!(output(&other_port)["error"], "Denied");
    assert!(log(&other_port).contains(&format!("add \"GET http://127.0.0.1:{}\" to `outbound`", server.port())));
    let other_method = get_with(outbound(server.port(), &["POST"]), &server.url("/ok")).await;
    assert_eq!(output(&other_method)["error"], "Denied");
    assert!(log(&other_method).contains("granted with POST alone"));
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn h6_a_private_address_is_refused_unless_granted_as_such_in_any_notation() {
    let server = Server::start().await;
    let public = OutboundGrant { private: false, host: "*".into(), ..outbound(server.port(), &["GET"]) };
    for host in ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "[::ffff:127.0.0.1]", "0.0.0.0"] {
        let url = format!("http://{host}:{}/ok", server.port());
        assert_eq!(output(&get_with(public.clone(), &url).await)["error"], "Denied", "{host}");
    }
    assert!(server.requests().is_empty());
    let url = format!("http://127.1:{}/ok", server.port());
    assert_eq!(output(&get_with(outbound(server.port(), &["GET"]), &url).await)["status"], 200);
    let by_name = OutboundGrant { host: "localhost".into(), ..outbound(server.port(), &["GET"]) };
    let url = format!("http://LOCALHOST:{}/ok", server.port());
    assert_eq!(output(&get_with(by_name, &url).await)["status"], 200);
}

#[tokio::test]
async fn h6_redirects_are_not_followed() {
    let server = Server::start().await;
    assert_eq!(answer(&server, "/redirect").await["status"], 302);
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn h5_an_answer_that_is_too_large_is_cut_off() {
    let server = Server::start().await;
    let answer = answer(&server, "/large").await;
    assert!(answer.get("error").is_some(), "{answer}");
}

#[tokio::test]
async fn h6_an_unsafe_request_outside_a_step_is_refused_with_its_class() {
    let server = Server::start().await;
    let post = json!({"do": "post", "url": server.url("/ok"), "body": "b"});
    let misbehave = misbehave_with(&grants(server.port()), &limits()).await;
    let report = run(&misbehave, &post, &Host::new()).await;
    assert_eq!(output(&report)["error"], "Denied");
    assert!(log(&report).contains("outside a step only GET, HEAD and OPTIONS leave the host"));
    assert!(server.requests().is_empty());
    let allowed = OutboundGrant { outside_step: true, ..outbound(server.port(), &["POST"]) };
    let grants = Grants { outbound: vec![allowed], ..grants(9) };
    let report = run(&misbehave_with(&grants, &limits()).await, &post, &Host::new()).await;
    assert_eq!(output(&report)["status"], 200);
    assert!(!server.requests()[0].contains("idempotency-key"));
}

#[tokio::test]
async fn h5_the_guests_own_patience_ends_a_request_and_not_the_attempt() {
    let server = Server::start().await;
    let misbehave = misbehave_with(&grants(server.port()), &limits()).await;
    let payload = json!({"do": "get", "url": server.url("/hang"), "timeout_ms": 200});
    let report = run(&misbehave, &payload, &Host::new()).await;
    assert_eq!(output(&report)["error"], "Timeout", "{:?}", report.outcome);
}

#[tokio::test]
async fn h5_requests_are_calls_that_are_counted() {
    let server = Server::start().await;
    let few = leasehold_domain::grants::AttemptLimits { host_calls_max: 0, ..limits() };
    let misbehave = misbehave_with(&grants(server.port()), &few).await;
    let report = run(&misbehave, &json!({"do": "get", "url": server.url("/ok")}), &Host::new()).await;
    assert_eq!(broke(&report), "limit.host_calls");
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn i3_a_failed_handshake_leaves_the_step_untouched() {
    let server = Server::start().await;
    let secure = OutboundGrant { scheme: "https".into(), ..outbound(server.port(), &["POST"]) };
    let grants = Grants { outbound: vec![secure], ..grants(9) };
    let misbehave = misbehave_with(&grants, &limits()).await;
    let host = Host::new();
    let url = format!("https://127.0.0.1:{}/", server.port());
    // The server takes the handshake for a request without an end, so the guest's patience ends it.
    let payload = json!({"do": "step", "name": "send", "url": url, "body": "b", "timeout_ms": 200});
    let report = run(&misbehave, &payload, &host).await;
    assert!(matches!(report.outcome, Outcome::Failed { .. }), "{:?}", report.outcome);
    assert_eq!(host.step("send"), Recorded::Nothing);
}
