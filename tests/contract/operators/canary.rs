//! D2 and D4: no file of the database and no line of the log holds a payload, key, secret, result or stored value in the
//! clear, at any time.

use serde_json::{Value, json};

use crate::{
    forms::{assert_free, files_with, found_in},
    letters::{config, id},
    support::{ConfigText, Daemon, Reply, Server, guest},
};

const PAYLOAD: &str = "payl0ad/c+nary é\"1\"~?>";
const KEY: &str = "k3y/c+nary é\"2\"~?>";
const METADATA: &str = "m3ta/c+nary é\"3\"~?>";
const SECRET: &str = "s3cret/c+nary é\"4\"~?>";
const STEP_RESULT: &str = "st3p/c+nary é\"5\"~?>";
const VALUE: &str = "v4lue/c+nary é\"6\"~?>";
const VALUE_KEY: &str = "v4lue-key/c+nary é\"7\"~?>";
const OUTBOX: &str = "0utbox/c+nary é\"8\"~?>";
const CORRECTED: &str = "c0rrected/c+nary é\"9\"~?>";
const ALL: [&str; 9] = [PAYLOAD, KEY, METADATA, SECRET, STEP_RESULT, VALUE, VALUE_KEY, OUTBOX, CORRECTED];
/// A lane is no secret and stands in the clear, which shows that the search finds what is there.
const LANE: &str = "lane-in-the-clear";

fn canary_config(server: &Server) -> ConfigText {
    config()
        .reaching(server.url())
        .kind("redact = { names = [\"subject\", \"value\", \"key\", \"payload\"] }")
        .more("[handlers.misbehave.secrets]\napi_key = { env = \"TEST_API_KEY\" }")
}

#[track_caller]
fn assert_no_canary(daemon: &Daemon, when: &str) {
    for canary in ALL {
        assert_eq!(files_with(&daemon.data(), canary, "leasehold.key"), [""; 0], "{when}");
    }
    assert_free(&daemon.log(), &ALL, when);
    assert!(!files_with(&daemon.data(), LANE, "leasehold.key").is_empty(), "{when}: the search finds nothing at all");
}

/// A step whose result, stored value and job to enqueue each hold a canary.
fn step(server: &Server, path: &str, then: &str) -> Value {
    json!({
        "do": "step", "name": "keep", "subject": PAYLOAD, "url": format!("{}{path}", server.url()), "body": PAYLOAD,
        "kv": [{ "op": "set", "store": "s", "key": VALUE_KEY, "value": VALUE }],
        "enqueue": [{ "kind": "job", "key": OUTBOX, "payload": { "do": "echo", "payload": OUTBOX } }],
        "then": then,
    })
}

#[track_caller]
fn enqueue(daemon: &Daemon, payload: &Value, number: u32, options: &[&str]) -> i64 {
    let (key, metadata) = (format!("{KEY}{number}"), format!("email={METADATA}"));
    let options = [&["--key", &key, "--meta", &metadata, "--lane", LANE], options].concat();
    daemon.enqueue("job", payload, &options)
}

#[test]
fn d4_no_canary_stands_in_any_file_or_in_the_log() {
    let server = Server::answering(|request, _| {
        let reply = Reply::Status(200, Vec::new(), STEP_RESULT.into());
        if request.path == "/held" { Reply::Held(Box::new(reply)) } else { reply }
    });
    let mut daemon = Daemon::prepare(&canary_config(&server));
    daemon.set_environment("TEST_API_KEY", SECRET);
    daemon.run();
    daemon.push_live(&guest("misbehave@1.0.0"));

    // A result that repeats it all; a secret; a delayed job; stored values, a job of the outbox and a step's result.
    let echoed = enqueue(&daemon, &json!({ "do": "echo", "payload": PAYLOAD }), 1, &[]);
    let read = enqueue(&daemon, &json!({ "do": "settings", "name": "api_key" }), 2, &[]);
    enqueue(&daemon, &json!({ "do": "echo", "payload": PAYLOAD }), 3, &["--delay", "1h"]);
    let kept = enqueue(&daemon, &step(&server, "/", "done"), 4, &[]);
    for job in [echoed, read, kept] {
        assert_eq!(daemon.wait(job), "done");
    }
    assert!(!found_in(daemon.result(echoed).to_string().as_bytes(), PAYLOAD).is_empty());
    assert!(!found_in(daemon.result(read).to_string().as_bytes(), SECRET).is_empty());
    assert!(!found_in(daemon.result(kept).to_string().as_bytes(), STEP_RESULT).is_empty());
    // A dead letter with an applied step whose effects wait for a replay, and one that was replayed, corrected.
    let dead = enqueue(&daemon, &step(&server, "/", "poison"), 5, &[]);
    let mended = enqueue(&daemon, &json!({ "do": "kv", "ops": [], "then": "panic" }), 6, &[]);
    for job in [dead, mended] {
        assert_eq!(daemon.wait(job), "dead");
    }
    let corrected = json!({ "do": "echo", "payload": CORRECTED }).to_string();
    let letter = id(&daemon.dead_letter(mended));
    daemon.ask(&["dlq", "replay", &letter, "--reason", "mended", "--payload", &corrected]).json();
    assert_eq!(daemon.wait(mended), "done");

    // One attempt is in the middle of its step.
    let requests = server.received().len();
    enqueue(&daemon, &step(&server, "/held", "done"), 7, &[]);
    server.wait_for(requests + 1);
    assert_no_canary(&daemon, "while it runs");
    daemon.kill();
    assert_no_canary(&daemon, "after a kill");
    daemon.run();
    daemon.signal(rustix::process::Signal::TERM);
    server.let_go();
    daemon.wait_for_exit();
    assert_no_canary(&daemon, "after a stop");
}
