//! Q17 and F1: any request is answered by a success or by a refusal with a code, and the daemon goes on.

use std::{
    io::{Read as _, Write as _},
    os::unix::net::UnixStream,
};

use proptest::{collection::vec, prelude::*};
use serde_json::{Map, Value, json};

use crate::{
    corpus::{kept, try_kept, try_many},
    mutation::mutated,
    support::{ConfigText, Daemon, daemon::PATIENCE},
};

const TARGET: &str = "api";
const TOKENS: [&str; 32] = [
    "null",
    "true",
    "0",
    "-1",
    "1e400",
    "18446744073709551616",
    "9223372036854775807",
    "0.5",
    "\"\"",
    "\"\\u0000\"",
    "\"\\ud800\"",
    "\"job\"",
    "[]",
    "{}",
    "[[[[[[[[",
    "{\"a\":{\"a\":{\"a\":",
    "\"key\":",
    "\"kind\":\"job\",",
    "\"payload\":",
    "\"payload_base64\":\"e30=\",",
    "\"priority\":",
    "\"delay_ms\":",
    "\"run_at\":\"9999-12-31T23:59:59Z\",",
    "\"metadata\":",
    "\"lane\":",
    "\u{feff}",
    "\u{202e}",
    "\n",
    "\r\n\r\n",
    ",",
    "?limit=",
    "&cursor=",
];
/// The names that stand in requests.
const NAMES: [&str; 17] = [
    "kind",
    "key",
    "lane",
    "payload",
    "payload_base64",
    "content_type",
    "metadata",
    "priority",
    "delay_ms",
    "run_at",
    "reason",
    "version",
    "override_reason",
    "steps",
    "step",
    "result",
    "unknown",
];

/// A daemon with an open dead letter and a kind whose jobs wait for a handler.
fn start() -> Daemon {
    let config = ConfigText::default()
        .queue("payload_max = \"4KiB\"")
        .kind("attempts = 1")
        .more("[handlers.absent]\n[kinds.waits]\nhandler = \"absent\"\nowner = \"tests\"");
    let daemon = Daemon::with_misbehave(&config);
    let job = daemon.enqueue("job", &json!({ "do": "fail", "as": "poison", "class": "handler.told" }), &[]);
    assert_eq!(daemon.wait(job), "dead");
    daemon
}

/// An input's first line is a method and a path, the rest is the body.
fn request(input: &[u8]) -> Vec<u8> {
    let end = input.iter().position(|byte| *byte == b'\n').unwrap_or(input.len());
    let (line, body) = (&input[..end], input.get(end + 1..).unwrap_or_default());
    let space = line.iter().position(|byte| *byte == b' ').unwrap_or(line.len());
    let method: String =
        line[..space].iter().filter(|byte| byte.is_ascii_uppercase()).map(|byte| char::from(*byte)).collect();
    // What can't stand in a path is sent as a client would send it.
    let path = line.get(space + 1..).unwrap_or_default().iter().map(|byte| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(*byte).to_string(),
        b'/' | b'?' | b'&' | b'=' | b'.' | b'-' | b'_' | b'~' | b'@' | b':' | b'%' | b'+' => {
            char::from(*byte).to_string()
        }
        _ => format!("%{byte:02X}"),
    });
    let path = path.collect::<String>();
    let head = format!(
        "{} /{} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        if method.is_empty() { "POST" } else { &method },
        path.trim_start_matches('/'),
        body.len()
    );
    [head.as_bytes(), body].concat()
}

/// Sends an input and looks at the answer.
fn check(daemon: &Daemon, input: &[u8]) -> Result<(), String> {
    let answer = send(daemon, &request(input)).map_err(|error| format!("no answer: {error}"))?;
    let text = String::from_utf8_lossy(&answer).into_owned();
    let status: u16 =
        text.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or(format!("no status: {text}"))?;
    let (head, body) = text.split_once("\r\n\r\n").ok_or(format!("no end of the head: {text}"))?;
    match status {
        200..=299 => Ok(()),
        400..=499 if head.contains("application/problem+json") => {
            let problem: Value = serde_json::from_str(body).map_err(|error| format!("{error}: {body}"))?;
            let says = |name: &str| problem[name].as_str().is_some_and(|text| !text.is_empty());
            if says("code") && says("detail") { Ok(()) } else { Err(format!("a refusal without a code: {problem}")) }
        }
        _ => Err(format!("answered with {text:.500}")),
    }
}

fn send(daemon: &Daemon, request: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut stream = UnixStream::connect(daemon.data().join("leasehold.sock"))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(request)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(answer)
}

/// The daemon is as well as before.
#[track_caller]
fn goes_on(daemon: &Daemon) {
    let log = daemon.log();
    assert!(!log.contains("panicked"), "{log}");
    let job = daemon.enqueue("job", &json!({ "do": "echo" }), &[]);
    assert_eq!(daemon.wait(job), "done");
    daemon.database().check();
}

fn sound() -> Vec<Vec<u8>> {
    kept(TARGET).into_iter().map(|(_, input)| input).collect()
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "(?s).{0,20}".prop_map(Value::from),
        proptest::sample::select(&["waits", "job", "1.0.0", "misbehave@1.0.0", "2026-01-01T00:00:00Z", "applied"][..])
            .prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            vec(("[a-z]{0,8}", inner), 0..4).prop_map(|fields| Value::from(Map::from_iter(fields))),
        ]
    })
}

/// A request whose body is an object of the names that there are, with any values.
fn any_object() -> impl Strategy<Value = Vec<u8>> {
    let operations =
        ["v1/jobs", "v1/jobs:batch", "v1/dead-letters/1/replay", "v1/dead-letters/1/discard", "v1/kinds/waits/pause"];
    let fields = vec((proptest::sample::select(&NAMES[..]), any_json()), 0..6);
    (proptest::sample::select(operations.to_vec()), fields).prop_map(|(path, fields)| {
        let object: Map<String, Value> = fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        format!("POST {path}\n{}", Value::from(object)).into_bytes()
    })
}

#[test]
fn q17_kept_requests_are_answered_and_the_daemon_goes_on() {
    let daemon = start();
    try_kept(TARGET, |input| check(&daemon, input));
    goes_on(&daemon);
}

#[test]
fn q17_any_body_is_taken_or_refused_with_a_code_and_the_daemon_goes_on() {
    let daemon = start();
    let any_bytes = (
        proptest::sample::select(vec!["v1/jobs", "v1/jobs:batch", "v1/dead-letters/1/replay"]),
        vec(any::<u8>(), 0..400),
    );
    let any_bytes = any_bytes.prop_map(|(path, body)| [format!("POST {path}\n").as_bytes(), &*body].concat());
    try_many(TARGET, 128, &any_bytes, |input| check(&daemon, input));
    try_many(TARGET, 256, &any_object(), |input| check(&daemon, input));
    goes_on(&daemon);
}

#[test]
fn q17_a_changed_request_is_taken_or_refused_with_a_code_and_the_daemon_goes_on() {
    let daemon = start();
    try_many(TARGET, 512, &mutated(sound(), &TOKENS, 6), |input| check(&daemon, input));
    goes_on(&daemon);
}
