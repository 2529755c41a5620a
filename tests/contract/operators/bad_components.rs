//! Files that are no handler: each is refused in one line that says what it is, and the version before stays live.

use std::{fs, path::PathBuf};

use serde_json::{Value, json};

use crate::{
    letters::{config, other_misbehave},
    raw_http,
    support::{Daemon, guest, plugin},
};

const ANOTHER_WORLD: &str = include_str!("../../guests/wat/another-world.wat");
const CORE_MODULE: &str = include_str!("../../guests/wat/core-module.wat");
const WRONG_HANDLE: &str = include_str!("../../guests/wat/wrong-handle.wat");

fn file(daemon: &Daemon, bytes: &[u8]) -> PathBuf {
    let path = daemon.directory().join("component.wasm");
    fs::write(&path, bytes).unwrap();
    path
}

/// Everything that is stored, in the database and beside it.
fn stored(daemon: &Daemon) -> (Value, Vec<String>) {
    let versions = daemon.ask(&["handlers", "ls"]).json();
    let files = fs::read_dir(daemon.data().join("handlers")).unwrap();
    let mut names: Vec<_> = files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    (versions, names)
}

/// The version before serves on.
#[track_caller]
fn assert_serves_on(daemon: &Daemon) {
    let job = daemon.enqueue("job", &json!({ "do": "echo" }), &[]);
    assert_eq!(daemon.wait(job), "done");
    assert_eq!(daemon.job(job)["attempts"][0]["handler"], "misbehave@1.0.0");
}

#[test]
fn h3_what_is_no_component_is_refused_in_one_line_and_nothing_of_it_is_stored() {
    let daemon = Daemon::with_misbehave(&config());
    let before = stored(&daemon);
    let whole = fs::read(guest("misbehave@1.0.0")).unwrap();
    let cases = [
        (Vec::new(), "component_empty", "empty"),
        (ANOTHER_WORLD.trim_start_matches(|c| c != '(').into(), "component_text", "text"),
        (whole[..5].to_vec(), "component_truncated", "cut off after 5 bytes"),
        (whole[..whole.len() / 2].to_vec(), "component_truncated", "cut off"),
        (wat::parse_str(CORE_MODULE).unwrap(), "component_core_module", "core WebAssembly module"),
        (b"\x7fELF and so on".to_vec(), "component_invalid", "does not begin"),
    ];
    for (bytes, code, why) in cases {
        let path = file(&daemon, &bytes);
        let push =
            ["handlers", "push", path.to_str().unwrap(), "--name", "misbehave", "--version", "2.0.0", "--activate"];
        let answer = daemon.ask(&push);
        assert_eq!((answer.status, answer.refusal()), (1, code.into()), "{answer:?}");
        assert!(answer.stderr.contains(why) && answer.stderr.lines().count() == 1, "{answer:?}");
        // The daemon looks for itself, whatever the command has found.
        let (status, problem) = raw_http::send_bytes(&daemon, "PUT", "/v1/handlers/misbehave@2.0.0", &[], &bytes);
        let problem: Value = serde_json::from_slice(&problem).unwrap();
        assert_eq!((status, &problem["code"]), (422, &json!(code)), "{problem}");
        assert_eq!(stored(&daemon), before, "{code} left something behind");
    }
    assert_serves_on(&daemon);
}

#[test]
fn h3_a_component_of_another_world_does_not_go_live() {
    let daemon = Daemon::with_misbehave(&config());
    for (number, text) in [ANOTHER_WORLD, WRONG_HANDLE].into_iter().enumerate() {
        let path = file(&daemon, &wat::parse_str(text).unwrap());
        let version = format!("2.{number}.0");
        let push =
            ["handlers", "push", path.to_str().unwrap(), "--name", "misbehave", "--version", &version, "--activate"];
        let answer = daemon.ask(&push);
        assert_eq!((answer.status, answer.refusal()), (1, "component_wrong_world".into()), "{answer:?}");
        assert!(answer.stderr.contains("leasehold:job/handler@0.1.0"), "{answer:?}");
        let shown = daemon.ask(&["handlers", "show", &format!("misbehave@{version}")]).json();
        assert_eq!((&shown["state"], &shown["current"]), (&json!("staged"), &json!(false)));
    }
    assert_serves_on(&daemon);
}

#[test]
fn h3_each_import_that_was_not_granted_is_named_with_the_line_that_grants_it() {
    let daemon = Daemon::with_misbehave(&config().more("[handlers.email-send]\n[handlers.wants-sockets]"));
    let answer = daemon.ask(&["handlers", "push", plugin("email-send@1.0.0").to_str().unwrap(), "--activate"]);
    assert_eq!((answer.status, answer.refusal()), (1, "component_not_granted".into()), "{answer:?}");
    for line in ["outbound = [", "settings = {", "stores = {", "[handlers.email-send]"] {
        assert!(answer.stderr.contains(line), "{line} is not in {answer:?}");
    }
    let answer = daemon.ask(&["handlers", "push", guest("wants-sockets@1.0.0").to_str().unwrap(), "--activate"]);
    assert_eq!((answer.status, answer.refusal()), (1, "component_unknown_import".into()), "{answer:?}");
    assert!(answer.stderr.contains("wasi:sockets"), "{answer:?}");
    // A handler without a section in the configuration is granted nothing, not even to be one.
    let answer = daemon.ask(&["handlers", "push", plugin("email-bounce@1.0.0").to_str().unwrap(), "--activate"]);
    assert_eq!((answer.status, answer.refusal()), (1, "handler_not_configured".into()), "{answer:?}");
    assert!(answer.stderr.contains("[handlers.email-bounce]"), "{answer:?}");
    let versions = daemon.ask(&["handlers", "ls"]).json();
    let live: Vec<_> = versions["items"].as_array().unwrap().iter().filter(|row| row["state"] == "live").collect();
    assert_eq!(live.len(), 1, "{versions}");
    assert_serves_on(&daemon);
}

#[test]
fn h1_a_stored_version_never_changes_its_bytes() {
    let daemon = Daemon::with_misbehave(&config());
    let before = stored(&daemon);
    let other = other_misbehave(daemon.directory(), 1);
    let push = |file: &PathBuf| {
        daemon.ask(&["handlers", "push", file.to_str().unwrap(), "--name", "misbehave", "--version", "1.0.0"])
    };
    let answer = push(&other);
    assert_eq!((answer.status, answer.refusal()), (1, "version_exists_with_other_bytes".into()), "{answer:?}");
    assert_eq!(push(&guest("misbehave@1.0.0")).json()["already_stored"], true);
    assert_eq!(stored(&daemon), before);
    for (name, version) in [("Misbehave!", "1.0.0"), ("misbehave", "one")] {
        let answer = daemon.ask(&["handlers", "push", other.to_str().unwrap(), "--name", name, "--version", version]);
        assert_eq!(answer.status, 1, "{answer:?}");
        assert!(["malformed", "invalid_handler_version"].contains(&&*answer.refusal()), "{answer:?}");
    }
    let answer = daemon.ask(&["handlers", "activate", "misbehave@9.9.9"]);
    assert_eq!((answer.status, answer.refusal()), (1, "version_not_stored".into()));
    assert_serves_on(&daemon);
}
