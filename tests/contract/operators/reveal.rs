//! D4: seeing the sealed original of a dead letter, and who is on record for it.

use std::{fs, os::unix::fs::PermissionsExt as _, process::Command};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::json;

use crate::{
    forms::{assert_free, files_with},
    letters::{config, id, letter_of, replay, told},
    raw_http::over_socket,
    support::{ConfigText, Daemon, guest},
};

const SECRET: &str = "hunter22-4711-reveal";
/// White space that only the bytes as they were sent have.
const PAYLOAD: &str =
    "{ \"do\": \"fail\",  \"as\": \"poison\", \"class\": \"shop.defect\", \"password\": \"hunter22-4711-reveal\" }";

fn masking() -> ConfigText {
    config().kind("redact = { names = [\"password\"] }")
}

/// The open dead letter of a job with that payload, a key and metadata.
#[track_caller]
fn dead(daemon: &Daemon) -> String {
    let options = ["enqueue", "job", "--payload", PAYLOAD, "--key", "order-4711", "--meta", "customer=jo@example.com"];
    let job = daemon.ask(&options).json()["id"].as_i64().unwrap();
    assert_eq!(daemon.wait(job), "dead");
    id(&daemon.dead_letter(job))
}

fn reveals(daemon: &Daemon) -> i64 {
    daemon.database().one("SELECT count(*) FROM audit WHERE action = 'dead_letter.reveal'")
}

/// The command as a person gives it, without `--json`.
fn as_person(daemon: &Daemon, arguments: &[&str]) -> std::process::Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    command.arg("--config").arg(daemon.config_path()).args(arguments).output().unwrap()
}

#[test]
fn d4_reveal_gives_the_original_byte_for_byte_and_records_who_saw_it_and_why() {
    let daemon = Daemon::with_misbehave(&masking());
    let letter = dead(&daemon);
    assert!(!daemon.ask(&["dlq", "show", &letter]).stdout.contains(SECRET));
    let shown = daemon.ask(&["dlq", "reveal", &letter, "--reason", "ticket 7"]).json();
    let payload = BASE64_STANDARD.decode(shown["payload_base64"].as_str().unwrap()).unwrap();
    assert_eq!(String::from_utf8(payload).unwrap(), PAYLOAD);
    assert_eq!((&shown["key"], &shown["metadata"]), (&json!("order-4711"), &json!({ "customer": "jo@example.com" })));
    let raw = as_person(&daemon, &["dlq", "reveal", &letter, "--reason", "ticket 8"]);
    assert_eq!(String::from_utf8(raw.stdout).unwrap(), PAYLOAD);
    let audit = daemon.ask(&["audit", "ls", "--action", "dead_letter.reveal"]).json();
    let entries = audit["items"].as_array().unwrap();
    let reasons: Vec<_> = entries.iter().map(|entry| entry["detail"]["reason"].as_str().unwrap()).collect();
    assert_eq!(reasons, ["ticket 8", "ticket 7"]);
    assert!(entries.iter().all(|entry| entry["subject"] == json!(letter) && entry["actor"] != ""), "{audit}");
    // It can be replayed afterwards as before.
    let job = replay(&daemon, &daemon.ask(&["dlq", "show", &letter]).json(), &["--override-reason", "looked"]);
    assert_eq!(job["state"], "dead");
}

#[test]
fn d4_reveal_needs_a_reason() {
    let daemon = Daemon::with_misbehave(&masking());
    let letter = dead(&daemon);
    assert_eq!(daemon.ask(&["dlq", "reveal", &letter]).status, 2);
    assert_eq!(daemon.ask(&["dlq", "reveal", &letter, "--reason", " "]).refusal(), "reason_missing");
    assert_eq!(reveals(&daemon), 0);
}

#[test]
fn d4_reveal_is_on_record_before_anything_is_shown() {
    let mut daemon = Daemon::prepare(&masking());
    daemon.set_crash_points("reveal.recorded=kill");
    daemon.run();
    daemon.push_live(&guest("misbehave@1.0.0"));
    let letter = dead(&daemon);
    let answer = daemon.ask(&["dlq", "reveal", &letter, "--reason", "ticket 7"]);
    assert_eq!((answer.status, answer.stdout.as_str()), (3, ""));
    assert!(!answer.stderr.contains(SECRET));
    daemon.wait_for_exit();
    daemon.set_crash_points("");
    daemon.run();
    assert_eq!(reveals(&daemon), 1);
    daemon.database().check();
}

#[test]
fn d4_reveal_leaves_the_original_nowhere_else() {
    let mut daemon = Daemon::with_misbehave(&masking());
    let letter = dead(&daemon);
    let path = format!("/v1/dead-letters/{letter}/reveal");
    let headers = ["host: a", "content-type: application/json"];
    let answer = over_socket(&daemon, "POST", &path, &headers, br#"{"reason":"ticket 7"}"#);
    assert_eq!(answer.status, 200);
    assert!(answer.head.contains("cache-control: no-store"), "{}", answer.head);
    for seen in [daemon.log(), daemon.metrics(), daemon.ask(&["audit", "ls"]).stdout] {
        assert_free(&seen, &[SECRET], "what is told beside the answer");
    }
    daemon.terminate();
    assert_eq!(files_with(daemon.directory(), SECRET, "compiled"), Vec::<String>::new());
}

#[test]
fn d4_reveal_says_why_there_is_no_original() {
    let daemon = Daemon::with_misbehave(&config().another_kind("brief", "attempts = 1\nkeep_original = false"));
    let reveal = |letter: &str| daemon.ask(&["dlq", "reveal", letter, "--reason", "ticket 7"]);
    let not_kept = letter_of(&daemon, "brief", &told("rejected", "shop.closed"));
    assert_eq!(reveal(&id(&not_kept)).refusal(), "original_not_kept");
    let replayed = letter_of(&daemon, "job", &told("rejected", "shop.closed"));
    replay(&daemon, &replayed, &[]);
    assert_eq!(reveal(&id(&replayed)).refusal(), "already_replayed");
    assert_eq!(reveal("4711").refusal(), "not_found");
    assert_eq!(reveals(&daemon), 0);
}

#[test]
fn d4_reveal_shows_the_original_that_a_replay_corrected() {
    let daemon = Daemon::with_misbehave(&masking());
    let letter = dead(&daemon);
    let shown = daemon.ask(&["dlq", "show", &letter]).json();
    replay(&daemon, &shown, &["--payload", r#"{"do":"echo"}"#]);
    let revealed = daemon.ask(&["dlq", "reveal", &letter, "--reason", "ticket 7"]).json();
    assert_eq!(revealed["key"], "order-4711");
    assert_eq!(BASE64_STANDARD.decode(revealed["payload_base64"].as_str().unwrap()).unwrap(), PAYLOAD.as_bytes());
    assert_eq!(reveals(&daemon), 1);
}

#[test]
fn d4_reveal_needs_the_key_and_records_nothing_without_it() {
    let mut daemon = Daemon::with_misbehave(&masking());
    let letter = dead(&daemon);
    daemon.terminate();
    fs::rename(daemon.data().join("leasehold.key"), daemon.directory().join("elsewhere")).unwrap();
    daemon.run();
    assert_eq!(daemon.ask(&["dlq", "reveal", &letter, "--reason", "ticket 7"]).refusal(), "key_unavailable");
    assert_eq!(reveals(&daemon), 0);
}

#[test]
fn d4_reveal_writes_a_new_file_of_its_owner_alone() {
    let daemon = Daemon::with_misbehave(&masking());
    let letter = dead(&daemon);
    let file = daemon.directory().join("original");
    let path = file.to_str().unwrap();
    let arguments = ["dlq", "reveal", &letter, "--reason", "ticket 7", "--output", path];
    let written = as_person(&daemon, &arguments);
    assert!(written.status.success() && !String::from_utf8(written.stdout).unwrap().contains(SECRET));
    assert_eq!(fs::read_to_string(&file).unwrap(), PAYLOAD);
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    // One that exists is left as it is, and nobody is on record for having seen what they did not get.
    fs::write(&file, "kept").unwrap();
    assert_eq!(daemon.ask(&arguments).refusal(), "file_exists");
    assert_eq!(fs::read_to_string(&file).unwrap(), "kept");
    assert_eq!(reveals(&daemon), 1);
}
