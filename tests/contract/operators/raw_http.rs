//! Requests as bytes on the daemon's sockets, for what the typed client would never send.

use std::{
    io::{Read, Write},
    net::TcpStream,
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
    let mut stream = begin(daemon, method, path, headers, body);
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n").expect("an HTTP answer");
    let head = String::from_utf8_lossy(&answer[..end]).into_owned();
    assert!(!head.to_lowercase().contains("transfer-encoding"), "an answer in chunks: {head}");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    (status, answer[end + 4..].to_vec())
}

/// Sends a request and leaves it to the caller to read the answer or not.
#[track_caller]
pub fn begin(daemon: &Daemon, method: &str, path: &str, headers: &[&str], body: &[u8]) -> UnixStream {
    let mut stream = UnixStream::connect(daemon.data().join("leasehold.sock")).unwrap();
    let length = format!("content-length: {}", body.len());
    let request = format!("{method} {path} HTTP/1.1");
    let always = [&*request, "host: localhost", "connection: close", "content-type: application/json", &length];
    let head = [&always, headers, &["", ""]].concat().join("\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body).unwrap();
    stream
}

/// An answer as it came over TCP.
#[derive(Debug)]
pub struct RawAnswer {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl RawAnswer {
    /// The stable code of a refusal; null when there is none.
    pub fn code(&self) -> Value {
        self.json()["code"].clone()
    }

    /// The body as JSON; null when it is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }
}

/// The address at which a daemon listens on TCP.
#[track_caller]
pub fn tcp_address(daemon: &Daemon) -> String {
    let line = daemon.wait_for_log("listening on TCP");
    line.rsplit_once("address=").expect("an address").1.trim().to_owned()
}

/// Sends a request over TCP with these header lines and none but a length and the wish to close beside them.
#[track_caller]
pub fn over_tcp(address: &str, method: &str, path: &str, headers: &[&str], body: &[u8]) -> RawAnswer {
    exchange(TcpStream::connect(address).unwrap(), method, path, headers, body)
}

/// Sends a request over TCP as a client does that carries a token and speaks JSON.
#[track_caller]
pub fn with_token(address: &str, token: &str, method: &str, path: &str, body: &Value) -> RawAnswer {
    let (host, bearer) = (format!("host: {address}"), format!("authorization: Bearer {token}"));
    let headers = [&*host, &bearer, "content-type: application/json"];
    let body = if body.is_null() { String::new() } else { body.to_string() };
    over_tcp(address, method, path, &headers, body.as_bytes())
}

/// Sends a request over the daemon's socket with these header lines, as [`over_tcp`] does.
#[track_caller]
pub fn over_socket(daemon: &Daemon, method: &str, path: &str, headers: &[&str], body: &[u8]) -> RawAnswer {
    exchange(UnixStream::connect(daemon.data().join("leasehold.sock")).unwrap(), method, path, headers, body)
}

#[track_caller]
fn exchange(mut stream: impl Read + Write, method: &str, path: &str, headers: &[&str], body: &[u8]) -> RawAnswer {
    let length = format!("content-length: {}", body.len());
    let request = format!("{method} {path} HTTP/1.1");
    let head = [&[&*request, "connection: close", &length], headers, &["", ""]].concat().join("\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n").expect("an HTTP answer");
    let head = String::from_utf8_lossy(&answer[..end]).to_lowercase();
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    RawAnswer { status, head, body: answer[end + 4..].to_vec() }
}
