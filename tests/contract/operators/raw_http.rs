//! Requests as bytes on the daemon's socket, for what the typed client would never send.

use std::{
    io::{Read as _, Write as _},
    os::unix::net::UnixStream,
};

use serde_json::Value;

use crate::support::Daemon;

/// Sends a request with a body of JSON, and further header lines; answers the status and the body.
#[track_caller]
pub fn send(daemon: &Daemon, method: &str, path: &str, headers: &[&str], body: &str) -> (u16, Value) {
    let (status, body) = send_bytes(daemon, method, path, headers, body.as_bytes());
    (status, serde_json::from_slice(&body).unwrap_or(Value::Null))
}

/// Sends a request; answers the status and the body as it came.
#[track_caller]
pub fn send_bytes(daemon: &Daemon, method: &str, path: &str, headers: &[&str], body: &[u8]) -> (u16, Vec<u8>) {
    let mut stream = UnixStream::connect(daemon.data().join("leasehold.sock")).unwrap();
    let length = format!("content-length: {}", body.len());
    let request = format!("{method} {path} HTTP/1.1");
    let always = [&*request, "host: localhost", "connection: close", "content-type: application/json", &length];
    let head = [&always, headers, &["", ""]].concat().join("\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n").expect("an HTTP answer");
    let head = String::from_utf8_lossy(&answer[..end]).into_owned();
    assert!(!head.to_lowercase().contains("transfer-encoding"), "an answer in chunks: {head}");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    (status, answer[end + 4..].to_vec())
}
