//! What tests of dead letters share: jobs that die as told, and further versions of a handler. It asserts nothing of a
//! clause by itself.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use crate::support::{ConfigText, Daemon, guest};

/// A configuration that knows one class of each treatment.
pub fn config() -> ConfigText {
    ConfigText::default().more(
        "\"shop.down\" = \"retry\"\n\"shop.slow\" = \"rate-limited\"\n\"shop.closed\" = \"rejected\"\n\
         \"shop.defect\" = \"poison\"",
    )
}

/// A payload whose handler fails, saying so.
pub fn told(said: &str, class: &str) -> Value {
    json!({ "do": "fail", "as": said, "class": class })
}

/// Enqueues a job that has to die; answers its open dead letter.
#[track_caller]
pub fn letter_of(daemon: &Daemon, kind: &str, payload: &Value) -> Value {
    let job = daemon.enqueue(kind, payload, &[]);
    assert_eq!(daemon.wait(job), "dead");
    wait_until_counted(daemon, job);
    daemon.dead_letter(job)
}

/// Waits until a job's first death has been counted, which is told after it is durable and counted.
#[track_caller]
pub fn wait_until_counted(daemon: &Daemon, job: i64) {
    daemon.wait_for_log(&format!("a job died; it is kept as a dead letter job={job} "));
}

/// The id of what an answer is about.
#[track_caller]
pub fn id(answer: &Value) -> String {
    answer["id"].as_i64().unwrap_or_else(|| panic!("no id: {answer}")).to_string()
}

/// How many attempts a job or dead letter shows.
#[track_caller]
pub fn attempts(shown: &Value) -> usize {
    shown["attempts"].as_array().unwrap_or_else(|| panic!("no attempts: {shown}")).len()
}

/// The handler `misbehave` with other bytes, which do the same: a custom section (identifier 0) more at its end.
pub fn other_misbehave(directory: &Path, note: u8) -> PathBuf {
    let mut bytes = fs::read(guest("misbehave@1.0.0")).unwrap();
    bytes.extend([0, 6, 4, b'n', b'o', b't', b'e', note]);
    let path = directory.join(format!("misbehave-{note}.wasm"));
    fs::write(&path, bytes).unwrap();
    path
}

/// Stores a component as a version of `misbehave`.
#[track_caller]
pub fn push(daemon: &Daemon, component: &Path, version: &str) -> Value {
    let component = component.to_str().unwrap();
    daemon.ask(&["handlers", "push", component, "--name", "misbehave", "--version", version]).json()
}

/// Makes a version of `misbehave` current.
#[track_caller]
pub fn activate(daemon: &Daemon, version: &str, options: &[&str]) -> Value {
    let version = format!("misbehave@{version}");
    daemon.ask(&[&["handlers", "activate", &version], options].concat()).json()
}

/// Replays a dead letter and waits for its job's end; answers the job.
#[track_caller]
pub fn replay(daemon: &Daemon, letter: &Value, options: &[&str]) -> Value {
    let letter = id(letter);
    let answer = daemon.ask(&[&["dlq", "replay", &letter, "--reason", "mended"], options].concat()).json();
    let job = answer["job_id"].as_i64().unwrap();
    daemon.wait(job);
    daemon.job(job)
}

/// The code with which a replay is refused, and why.
#[track_caller]
pub fn refused_replay(daemon: &Daemon, letter: &Value, options: &[&str]) -> (String, String) {
    let letter = id(letter);
    let answer = daemon.ask(&[&["dlq", "replay", &letter, "--reason", "mended"], options].concat());
    assert_eq!(answer.status, 1, "{answer:?}");
    (answer.refusal(), answer.stderr)
}
