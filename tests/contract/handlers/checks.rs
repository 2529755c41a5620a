//! H3: what is checked before a version goes live, what is said of it, and that the version before it goes on.

use std::{fs, path::PathBuf};

use serde_json::json;

use crate::{
    helpers::{FIRST, activate, detail, done, push_as, state, version},
    support::{Answer, ConfigText, Daemon, guest},
};

fn wat_file(name: &str) -> Vec<u8> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/guests/wat/");
    wat::parse_file(format!("{path}{name}.wat")).unwrap()
}

/// Pushes bytes as another version of `misbehave` and asks for it to go live.
fn push_bytes(daemon: &Daemon, bytes: &[u8], number: usize) -> Answer {
    let file = daemon.directory().join("pushed.wasm");
    fs::write(&file, bytes).unwrap();
    push_as(daemon, &file, &format!("misbehave@2.0.{number}"), &["--activate"])
}

#[track_caller]
fn first_still_serves(daemon: &Daemon) {
    let first = version(daemon, FIRST);
    assert_eq!((&first["state"], &first["current"]), (&json!("live"), &json!(true)));
    let job = daemon.enqueue("job", &json!({ "do": "count" }), &[]);
    assert_eq!(daemon.wait(job), "done");
    assert_eq!(daemon.job(job)["attempts"][0]["handler"], FIRST);
}

#[test]
fn h3_what_is_no_handler_is_refused_with_what_it_is() {
    let daemon = Daemon::with_misbehave(&ConfigText::default());
    let whole = fs::read(guest(FIRST)).unwrap();
    let wrong = [
        (Vec::new(), "component_empty", "empty"),
        (b"(component)".to_vec(), "component_text", "text"),
        (whole[..whole.len() / 2].to_vec(), "component_truncated", "cut off"),
        (b"\x7fELF and so on".to_vec(), "component_invalid", "does not begin"),
        (wat_file("core-module"), "component_core_module", "core WebAssembly module"),
        (wat_file("another-world"), "component_wrong_world", "`handle`"),
        (wat_file("wrong-handle"), "component_wrong_world", "leasehold:job/handler"),
        (fs::read(guest("wants-sockets@1.0.0")).unwrap(), "component_unknown_import", "wasi:sockets/instance-network"),
    ];
    for (number, (bytes, code, words)) in wrong.into_iter().enumerate() {
        let refused = push_bytes(&daemon, &bytes, number);
        assert_eq!(refused.refusal(), code);
        assert!(detail(&refused).contains(words), "{code}: {}", detail(&refused));
        first_still_serves(&daemon);
    }
}

#[test]
fn h3_a_component_that_does_not_come_to_its_start_is_stopped_and_refused() {
    let daemon = Daemon::with_misbehave(&ConfigText::default());
    let refused = push_bytes(&daemon, &fs::read(guest("loops-in-start@1.0.0")).unwrap(), 0);
    assert_eq!(refused.refusal(), "component_start_failed");
    assert_eq!(state(&daemon, "misbehave@2.0.0"), "staged");
    first_still_serves(&daemon);
}

#[test]
fn h3_every_import_that_is_not_granted_is_named_with_the_line_that_grants_it() {
    let granted_nothing =
        ConfigText::default().handler("outbound = []").handler("settings = {}").handler("stores = {}");
    let daemon = Daemon::start(&granted_nothing);
    // A component that imports nothing goes live without grants and stays so.
    let before = "misbehave@0.9.0";
    push_as(&daemon, &guest("bench-parse@1.0.0"), before, &["--activate"]).json();
    let push: PathBuf = guest(FIRST);
    let refused = daemon.ask(&["handlers", "push", push.to_str().unwrap(), "--activate"]);
    assert_eq!(refused.refusal(), "component_not_granted");
    let words = detail(&refused);
    for (import, line) in [
        ("wasi:http/outgoing-handler@", "`outbound = [\"GET,POST https://HOST\"]` under [handlers.misbehave]"),
        ("wasi:config/store@", "`settings = { KEY = \"value\" }` under [handlers.misbehave]"),
        ("wasi:keyvalue/store@", "`stores = { STORE = \"read-write\" }` under [handlers.misbehave]"),
    ] {
        assert!(words.contains(import) && words.contains(line), "{import} in {words}");
    }
    assert_eq!((state(&daemon, before).as_str(), state(&daemon, FIRST).as_str()), ("live", "staged"));
    let job = daemon.enqueue("job", &json!({ "to": "somebody" }), &[]);
    assert_eq!(daemon.wait(job), "done");
    assert_eq!(daemon.job(job)["attempts"][0]["handler"], before);
    // With the grants that were named it goes live.
    daemon.write_config(&ConfigText::default());
    daemon.ask(&["reload"]).json();
    activate(&daemon, FIRST);
    done(&daemon, &json!({ "do": "count" }));
}

#[test]
fn h3_the_section_that_grants_is_that_of_the_handler_whatever_the_component_calls_itself() {
    let daemon = Daemon::start(&ConfigText::default().more("[handlers.another]\nsettings = { greeting = \"hello\" }"));
    let refused = push_as(&daemon, &guest(FIRST), "another@1.0.0", &["--activate"]);
    assert_eq!(refused.refusal(), "component_not_granted");
    let words = detail(&refused);
    assert!(words.contains("`outbound = [\"GET,POST https://HOST\"]` under [handlers.another]"), "{words}");
    assert!(!words.contains("handlers.misbehave") && !words.contains("wasi:config"), "{words}");
}

#[test]
fn h3_a_handler_without_a_section_is_named() {
    let daemon = Daemon::with_misbehave(&ConfigText::default());
    let refused = push_as(&daemon, &guest("bench-parse@1.0.0"), "elsewhere@1.0.0", &["--activate"]);
    assert_eq!(refused.refusal(), "handler_not_configured");
    assert!(detail(&refused).contains("[handlers.elsewhere]"), "{}", detail(&refused));
}

#[test]
fn h3_inspecting_a_component_says_what_it_needs_and_what_it_can_never_have() {
    let daemon = Daemon::prepare(&ConfigText::default());
    let inspect = |name: &str| daemon.ask(&["handlers", "inspect", guest(name).to_str().unwrap()]).json();
    let sockets = inspect("wants-sockets@1.0.0");
    assert!(sockets["never"].to_string().contains("wasi:sockets/"), "{sockets}");
    let misbehave = inspect(FIRST);
    assert_eq!((&misbehave["name"], &misbehave["never"]), (&json!("misbehave"), &json!([])));
    assert!(misbehave["needs"].as_array().unwrap().len() >= 3, "{misbehave}");
}
