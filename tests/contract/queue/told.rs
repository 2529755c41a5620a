//! What the tests tell the guest `misbehave`, and how they read what became of a job.

use std::{fs, path::PathBuf};

use serde_json::{Value, json};

use crate::support::{Daemon, Server};

/// Ends well at once.
pub fn echo() -> Value {
    json!({ "do": "echo" })
}

/// Asks the server, outside of any step, and ends well with its answer.
pub fn get(server: &Server) -> Value {
    json!({ "do": "get", "url": server.url() })
}

/// Sends the server a body in a step and ends well.
pub fn send(server: &Server, body: &str) -> Value {
    json!({ "do": "step", "name": "send", "url": server.url(), "body": body })
}

/// Fails with a rate limit.
pub fn slow_down(after_ms: Option<u64>) -> Value {
    json!({ "do": "fail", "as": "rate_limited", "class": "downstream.rate_limited", "after_ms": after_ms })
}

/// Fails so that it is tried again.
pub fn fail() -> Value {
    json!({ "do": "fail", "as": "retry", "class": "handler.told" })
}

/// How each attempt of a job ended and whether it counts, in order.
#[track_caller]
pub fn attempts(daemon: &Daemon, job: i64) -> Vec<(String, bool)> {
    let shown = daemon.job(job);
    let attempts = shown["attempts"].as_array().unwrap().iter();
    attempts
        .map(|attempt| {
            let ended_as = attempt["ended_as"].as_str().unwrap_or("running");
            (ended_as.to_owned(), attempt["counted"].as_bool().unwrap())
        })
        .collect()
}

/// The attempts that are expected, in the form of `attempts`.
pub fn ended<const N: usize>(attempts: [(&str, bool); N]) -> Vec<(String, bool)> {
    attempts.into_iter().map(|(ended_as, counted)| (ended_as.to_owned(), counted)).collect()
}

/// A counter's value, summed over the labels that are not named.
#[allow(clippy::cast_possible_truncation, reason = "a count far below 2^53")]
pub fn count(daemon: &Daemon, name: &str, labels: &[(&str, &str)]) -> i64 {
    daemon.metric(name, labels) as i64
}

/// Sends jobs in as a file of lines; answers their ids.
#[track_caller]
pub fn enqueue_file(daemon: &Daemon, jobs: impl IntoIterator<Item = Value>) -> Vec<i64> {
    let file = write_file(daemon, &jobs.into_iter().map(|job| job.to_string()).collect::<Vec<_>>().join("\n"));
    let answer = daemon.ask(&["enqueue", "--file", file.to_str().unwrap()]);
    assert_eq!(answer.status, 0, "{}{}", answer.stdout, answer.stderr);
    let lines = answer.stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter_map(|line| line["id"].as_i64()).collect()
}

/// Writes a file beside the daemon's configuration.
pub fn write_file(daemon: &Daemon, text: &str) -> PathBuf {
    let path = daemon.directory().join("jobs.ndjson");
    fs::write(&path, text).unwrap();
    path
}
