//! What the tests of this suite say often: another version of a handler, a replay, how an attempt ended.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use crate::support::{Answer, Daemon, guest};

/// The version of `misbehave` that is committed.
pub const FIRST: &str = "misbehave@1.0.0";
/// The version that [`push_second`] stores.
pub const SECOND: &str = "misbehave@1.1.0";

/// A file with a component's bytes and a section more, which nothing reads: other bytes that do the same.
pub fn with_other_bytes(daemon: &Daemon, component: &Path) -> PathBuf {
    let mut bytes = fs::read(component).unwrap();
    // A custom section: its id, its length, and a name of which the length comes first.
    bytes.extend_from_slice(b"\x00\x06\x05other");
    let file = daemon.directory().join("other-bytes.wasm");
    fs::write(&file, bytes).unwrap();
    file
}

/// Stores a file as a version that it does not name itself.
pub fn push_as(daemon: &Daemon, file: &Path, version: &str, options: &[&str]) -> Answer {
    let (name, number) = version.split_once('@').unwrap();
    let file = file.to_str().unwrap();
    daemon.ask(&[&["handlers", "push", file, "--name", name, "--version", number], options].concat())
}

/// Stores [`SECOND`], which does what [`FIRST`] does and has other bytes.
#[track_caller]
pub fn push_second(daemon: &Daemon) {
    let file = with_other_bytes(daemon, &guest(FIRST));
    push_as(daemon, &file, SECOND, &[]).json();
}

/// Makes a version current.
#[track_caller]
pub fn activate(daemon: &Daemon, version: &str) -> Value {
    daemon.ask(&["handlers", "activate", version]).json()
}

/// A stored version.
#[track_caller]
pub fn version(daemon: &Daemon, version: &str) -> Value {
    daemon.ask(&["handlers", "show", version]).json()
}

/// A stored version's state, such as `live`.
#[track_caller]
pub fn state(daemon: &Daemon, of: &str) -> String {
    version(daemon, of)["state"].as_str().unwrap().to_owned()
}

/// How a kind stands.
#[track_caller]
pub fn kind(daemon: &Daemon, name: &str) -> Value {
    let kinds = daemon.ask(&["kinds", "ls"]).json();
    let found = kinds["items"].as_array().unwrap().iter().find(|kind| kind["kind"] == name);
    found.unwrap_or_else(|| panic!("no kind {name}: {kinds}")).clone()
}

/// Runs a job of the kind `job` to its end, which has to be a good one, and answers its result.
#[track_caller]
pub fn done(daemon: &Daemon, payload: &Value) -> Value {
    let job = daemon.enqueue("job", payload, &[]);
    assert_eq!(daemon.wait(job), "done", "{}", daemon.job(job));
    daemon.result(job)
}

/// Runs a job of the kind `job` to its death and answers its dead letter.
#[track_caller]
pub fn dead(daemon: &Daemon, payload: &Value) -> Value {
    let job = daemon.enqueue("job", payload, &[]);
    assert_eq!(daemon.wait(job), "dead", "{}", daemon.job(job));
    daemon.dead_letter(job)
}

/// Asks for a job's dead letter to be replayed.
#[track_caller]
pub fn replay(daemon: &Daemon, job: i64, options: &[&str]) -> Answer {
    let letter = daemon.dead_letter(job)["id"].to_string();
    daemon.ask(&[&["dlq", "replay", &letter, "--reason", "a test"], options].concat())
}

/// Replays a job with another payload, which excuses the version that it died on, and waits for its end.
#[track_caller]
pub fn replay_with(daemon: &Daemon, job: i64, payload: &Value) -> String {
    replay(daemon, job, &["--payload", &payload.to_string()]).json();
    daemon.wait(job)
}

/// The words of a refusal.
#[track_caller]
pub fn detail(refused: &Answer) -> String {
    assert_ne!(refused.status, 0, "{}", refused.stdout);
    let problem: Value = serde_json::from_str(refused.stderr.trim()).unwrap();
    problem["detail"].as_str().unwrap().to_owned()
}

/// How each attempt of a job ended and whether it counts.
pub fn ends(job: &Value) -> Vec<(&str, bool)> {
    let attempts = job["attempts"].as_array().unwrap().iter();
    attempts.map(|attempt| (attempt["ended_as"].as_str().unwrap_or("runs"), attempt["counted"] == true)).collect()
}

/// The handler section of a guest that needs no grant, and a kind that it serves.
pub const BENCH_PARSE: &str = "[handlers.bench-parse]\n[kinds.parse]\nhandler = \"bench-parse\"\nowner = \"tests\"\n";

/// Runs a job of `bench-parse` to its end: a claim that came after everything before it.
#[track_caller]
pub fn run_another_kind(daemon: &Daemon) {
    let other = daemon.enqueue("parse", &json!({ "to": "somebody" }), &[]);
    assert_eq!(daemon.wait(other), "done");
}
