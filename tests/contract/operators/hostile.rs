//! Payloads that are well-formed and as unpleasant as JSON or bytes allow: they go in and out byte for byte, and what is
//! shown of them is well-formed and hides what the policy hides.

use std::fs;

use leasehold_domain::{HandlerName, Kind, redaction::is_well_formed};
use leasehold_store::{ClaimRequest, Durability, KindClaim, Store, StoreOptions};
use serde_json::{Value, json};

use crate::{
    forms::assert_free,
    letters::{config, id, replay},
    support::{ConfigText, Daemon, Server, guest, plugin, server::block_on},
};

const SECRET: &str = "hunter22-4711";

/// Well-formed JSON, each with the policy's field in it once, written as a string without escapes.
fn documents() -> Vec<(&'static str, String)> {
    let field = format!("\"password\":\"{SECRET}\"");
    let deep = |open: &str, inner: &str, close: &str| open.repeat(10_000) + inner + &close.repeat(10_000);
    let text_bytes = (256 << 10) - field.len() - r#"{,"text":""}"#.len();
    vec![
        ("a NUL", format!(r#"{{"a":"\u0000","\u0000":1,{field}}}"#)),
        ("a lone surrogate", format!(r#"{{"a":"\ud800","\udc00\ud800":"\ud800\u0041",{field}}}"#)),
        ("numbers of any size", format!(r#"{{"a":1e400,"b":-0.0e-999,"c":{},{field}}}"#, "9".repeat(1_000))),
        ("a name that comes twice", format!(r#"{{"a":1,"a":2,"a":{{"a":3}},"":4,"":5,{field}}}"#)),
        ("escapes and white space", format!(" {{ \"\\/\\b\\f\" : \"\\u00e9é\u{2028}\u{7f}\" ,\r\n\t{field} }} ")),
        ("deep arrays", format!("[{{{field}}},{}]", deep("[", "1", "]"))),
        ("deep objects", deep("{\"a\":", &format!("{{{field}}}"), "}")),
        ("a text of the largest size", format!(r#"{{{field},"text":"{}"}}"#, "x".repeat(text_bytes))),
        ("a right-to-left override", format!("{{\"a\":\"\u{202e}gpj.exe\u{9b}2J\u{feff}\",{field}}}")),
    ]
}

fn bytes() -> Vec<Vec<u8>> {
    vec![
        (0..=255).collect(),
        b"\0".to_vec(),
        b"\xff\xfe\xc3\x28 not UTF-8 \xed\xa0\x80".to_vec(),
        b"{\"not\": closed".to_vec(),
        vec![0xc3; 256 << 10],
    ]
}

fn hostile_config() -> ConfigText {
    config().kind("redact = { names = [\"password\"] }").another_kind("raw", "payload = \"bytes\"\nattempts = 1")
}

/// Sends bytes in through a file, as they are; answers the job.
#[track_caller]
fn enqueue(daemon: &Daemon, kind: &str, payload: &[u8], options: &[&str]) -> i64 {
    let path = daemon.directory().join("payload");
    fs::write(&path, payload).unwrap();
    let payload = format!("@{}", path.display());
    let arguments = [&["enqueue", kind, "--payload", &payload], options].concat();
    daemon.ask(&arguments).json()["id"].as_i64().unwrap()
}

/// What a worker would be given of every job of a kind on a stopped daemon's database, by the jobs' ids.
fn claimed(daemon: &Daemon, kind: &str) -> Vec<(i64, Vec<u8>)> {
    let directory = daemon.data();
    let options = StoreOptions {
        key_file: directory.join("leasehold.key"),
        directory,
        durability: Durability::Full,
        wal_autocheckpoint_pages: 1_000,
        batch_time: StoreOptions::BATCH_TIME,
    };
    let store = Store::open(&options).unwrap();
    let request = ClaimRequest {
        waits_its_turn: false,
        now_ms: store.persisted_clock_ms() + 1,
        max: 100,
        memory: leasehold_domain::MemoryRoom::UNLIMITED,
        kinds: vec![KindClaim {
            kind: Kind::new(kind).unwrap(),
            handler: HandlerName::new("misbehave").unwrap(),
            max: 100,
            memory_bytes: 1,
            attempts_max: 3,
            visibility_timeout_ms: 1_000,
            lease_max_ms: 1_000,
            lane_concurrency: None,
            cooldown: false,
            bound_only: false,
        }],
    };
    let claim = block_on(store.claim(request)).unwrap();
    store.close();
    claim.jobs.into_iter().map(|job| (job.token.job.0, job.contents.unwrap().payload.clone())).collect()
}

#[test]
fn q17_hostile_payloads_go_in_and_come_to_the_worker_byte_for_byte() {
    let mut daemon = Daemon::with_misbehave(&hostile_config());
    let documents = documents();
    for kind in ["job", "raw"] {
        daemon.ask(&["kinds", "pause", kind]).json();
    }
    let as_json: Vec<_> =
        documents.iter().map(|(_, document)| enqueue(&daemon, "job", document.as_bytes(), &[])).collect();
    let raw: Vec<_> = bytes().iter().map(|payload| enqueue(&daemon, "raw", payload, &["--bytes"])).collect();
    daemon.terminate();
    let sent = as_json.into_iter().zip(documents.iter().map(|(_, document)| document.clone().into_bytes()));
    // White space around a document is no part of it, in any way of sending one.
    let sent: Vec<_> = sent.map(|(job, document)| (job, document.trim_ascii().to_vec())).collect();
    assert!(claimed(&daemon, "job") == sent, "a document was changed");
    let sent: Vec<_> = raw.into_iter().zip(bytes()).collect();
    assert!(claimed(&daemon, "raw") == sent, "bytes were changed");
}

/// A replay takes the payload along as it was, so that the job dies as it did.
#[track_caller]
fn replays_to_the_same_death(daemon: &Daemon, letter: &Value, what: &str) {
    let job = replay(daemon, letter, &["--override-reason", "to see it again"]);
    assert_eq!((&job["state"], &job["payload_digest"]), (&json!("dead"), &letter["payload_digest"]), "{what}");
    let again = daemon.dead_letter(job["id"].as_i64().unwrap());
    for field in ["cause", "error_class", "message", "redacted_payload"] {
        assert!(again[field] == letter[field], "{what}: {field}");
    }
}

#[test]
fn d2_hostile_payloads_are_shown_well_formed_and_with_the_policys_field_masked() {
    let daemon = Daemon::with_misbehave(&hostile_config());
    for (what, document) in documents() {
        let job = enqueue(&daemon, "job", document.as_bytes(), &[]);
        assert_eq!(daemon.wait(job), "dead", "{what}");
        let shown = daemon.ask(&["dlq", "show", &id(&daemon.dead_letter(job))]);
        assert_free(&shown.stdout, &[SECRET], what);
        let letter = shown.json();
        assert_eq!((&letter["cause"], &letter["error_class"]), (&json!("poison"), &json!("payload.invalid")), "{what}");
        let view = letter["redacted_payload"].as_str().unwrap();
        assert!(is_well_formed(view.as_bytes()).is_ok(), "{what}");
        // All but the field is shown as it was sent.
        assert!(
            view == document.trim_ascii().replace(SECRET, "[redacted:text ~16]"),
            "{what}: {}",
            &view[..view.len().min(300)]
        );
        replays_to_the_same_death(&daemon, &letter, what);
    }
    for payload in bytes() {
        let job = enqueue(&daemon, "raw", &payload, &["--bytes"]);
        assert_eq!(daemon.wait(job), "dead");
        let view = daemon.dead_letter(job)["redacted_payload"].clone();
        assert_eq!(view, format!("\"[redacted: {} bytes]\"", payload.len()));
        replays_to_the_same_death(&daemon, &daemon.dead_letter(job), "bytes");
    }
    assert_free(&daemon.log(), &[SECRET], "the log");
    daemon.database().check();
}

#[test]
fn d2_control_characters_of_a_payload_never_reach_a_persons_terminal() {
    let daemon = Daemon::with_misbehave(&hostile_config());
    let job =
        enqueue(&daemon, "job", "{\"a\":\"\u{202e}gpj.exe\u{7f}\u{9b}2J\"}".as_bytes(), &["--lane", "\u{202e}gpj"]);
    daemon.wait(job);
    let letter = id(&daemon.dead_letter(job));
    let job = job.to_string();
    for arguments in [&["dlq", "show", &letter][..], &["dlq", "ls"], &["jobs", "show", &job], &["jobs", "ls"]] {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_leasehold"));
        let output = command.arg("--config").arg(daemon.config_path()).args(arguments).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let is_control = |c: char| (c.is_control() && c != '\n') || ('\u{202a}'..='\u{202e}').contains(&c);
        assert!(!text.contains(is_control), "{arguments:?}: {text:?}");
    }
}

#[test]
fn q17_hostile_documents_go_through_a_handler_byte_for_byte() {
    let server = Server::accepting();
    let url = server.url();
    let config = config().queue("payload_max = \"512KiB\"").more(&format!(
        "[handlers.webhook-deliver]\noutbound = [\"POST {url}\"]\nsettings = {{ signing_secret = \"not-a-secret-here\" }}\n\
         [kinds.webhook]\nhandler = \"webhook-deliver\"\nowner = \"tests\"\nattempts = 1"
    ));
    let daemon = Daemon::start(&config);
    daemon.push_live(&plugin("webhook-deliver@1.0.0"));
    daemon.push_live(&guest("misbehave@1.0.0"));
    for (number, (what, document)) in documents().into_iter().enumerate() {
        let payload = format!(r#"{{"url":"{url}/hook","body":{document}}}"#);
        let job = enqueue(&daemon, "webhook", payload.as_bytes(), &[]);
        assert_eq!(daemon.wait(job), "done", "{what}: {}", daemon.job(job));
        assert!(server.received()[number].body == document.trim_ascii(), "{what} was changed");
    }
}
