//! R7: a dead letter is run on any stored version with every effect recorded and none applied.

use std::{
    fs,
    io::Read as _,
    process::{Child, Stdio},
};

use serde_json::{Value, json};

use crate::{
    forms::{assert_free, carried},
    letters::{activate, config, id, letter_of, other_misbehave, push, told},
    support::{Answer, ConfigText, Daemon, Database, Reply, Server, guest},
};

/// A daemon whose handler reaches the server.
fn start(server: &Server) -> Daemon {
    Daemon::with_misbehave(&config().reaching(server.url()))
}

/// A dead letter whose job has not done anything but die.
fn letter(daemon: &Daemon) -> String {
    id(&letter_of(daemon, "job", &told("rejected", "shop.closed")))
}

fn ask(daemon: &Daemon, letter: &str, options: &[&str]) -> Answer {
    daemon.ask(&[&["dlq", "rehearse", letter], options].concat())
}

#[track_caller]
fn rehearse(daemon: &Daemon, letter: &str, options: &[&str]) -> Value {
    ask(daemon, letter, options).json()
}

/// Rehearses with a payload in place of the original, and with answers.
#[track_caller]
fn rehearse_with(daemon: &Daemon, letter: &str, payload: &Value, answers: &[Value]) -> Value {
    let file = daemon.directory().join("answers.jsonl");
    let lines: Vec<_> = answers.iter().map(Value::to_string).collect();
    fs::write(&file, lines.join("\n")).unwrap();
    rehearse(daemon, letter, &["--payload", &payload.to_string(), "--answers", file.to_str().unwrap()])
}

/// A step that sends, stores and enqueues.
fn full_step(server: &Server) -> Value {
    json!({
        "do": "step", "name": "send", "url": format!("{}/charge", server.url()), "body": "{\"amount\":5}",
        "kv": [{ "op": "set", "store": "s", "key": "k", "value": "v" }],
        "enqueue": [{ "kind": "job", "lane": "l", "key": "next", "payload": { "do": "count" }, "delay_ms": 5 }],
    })
}

fn events<'a>(report: &'a Value, name: &str) -> Vec<&'a Value> {
    report["events"].as_array().unwrap().iter().filter(|event| event["event"] == name).collect()
}

/// All that is in the database but the audit log, the queue's persisted time and the numbers of the audit's rows.
fn contents(database: &Database) -> Vec<String> {
    let tables =
        database.all::<String>("SELECT name FROM sqlite_master WHERE type = 'table' AND name <> 'audit' ORDER BY 1");
    let rows = tables.iter().flat_map(|table| {
        let columns =
            database.all::<String>(&format!("SELECT 'quote(\"' || name || '\")' FROM pragma_table_info('{table}')"));
        database
            .all::<String>(&format!("SELECT '{table}: ' || {} FROM {table} ORDER BY 1", columns.join(" || ', ' || ")))
    });
    rows.filter(|row| !row.contains("'queue_clock_ms'") && !row.starts_with("sqlite_sequence: 'audit'")).collect()
}

/// Everything that was counted.
fn counters(daemon: &Daemon) -> Vec<String> {
    let metrics = daemon.metrics();
    let is_counter = |line: &&str| line.contains("_total") || line.contains("_count");
    let counters = metrics.lines().filter(|line| !line.starts_with('#')).filter(is_counter);
    let mut counters: Vec<_> = counters.map(str::to_owned).collect();
    counters.sort();
    counters
}

fn acts(daemon: &Daemon) -> Vec<Value> {
    let audit = daemon.ask(&["audit", "ls"]).json();
    let rows = audit["items"].as_array().unwrap().iter().filter(|row| row["action"] == "dead_letter.rehearse");
    rows.cloned().collect()
}

/// Begins a rehearsal that goes on until its deadline, and waits until its guest runs. The number counts the daemon's
/// rehearsals of this dead letter from 1.
fn begin_endless(daemon: &Daemon, letter: &str, number: usize) -> Child {
    let mut command = daemon.command(&["dlq", "rehearse", letter, "--payload", r#"{"do":"loop"}"#]);
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    daemon.wait_for_log_lines(number, &format!("a rehearsal runs dead_letter={letter} "));
    child
}

#[test]
fn r7_every_effect_is_recorded_and_none_is_applied() {
    let server = Server::accepting();
    let daemon = start(&server);
    let letter = letter(&daemon);
    let (before, counted) = (contents(&daemon.database()), counters(&daemon));
    let answer =
        json!({ "method": "POST", "url": format!("{}/charge", server.url()), "status": 201, "body": { "id": "c-1" } });
    let report = rehearse_with(&daemon, &letter, &full_step(&server), &[answer]);

    let kinds: Vec<_> = report["events"].as_array().unwrap().iter().map(|event| &event["event"]).collect();
    assert_eq!(kinds, ["step_begun", "request", "step_completed"], "{report}");
    let [begun, request] = [events(&report, "step_begun")[0], events(&report, "request")[0]];
    assert_eq!((&begun["step"], &begun["found"]), (&json!("send"), &json!("fresh")));
    assert_eq!(request["method"], "POST");
    assert_eq!(request["url"], format!("{}/charge", server.url()));
    assert_eq!(request["body"], "{\"amount\":5}");
    assert_eq!(request["answered"], "201");
    assert_eq!(request["idempotency_key"], begun["idempotency_key"]);
    assert!(request["idempotency_key"].as_str().is_some_and(|key| key.len() == 32), "{request}");
    let completed = events(&report, "step_completed")[0]["result"].as_str().unwrap();
    assert!(completed.contains("c-1"), "the guest was not given the answer: {completed}");
    let job = json!({
        "step": "send", "kept_before": false, "kind": "job", "lane": "l", "has_key": true, "delay_ms": 5, "payload": "{\"do\":\"count\"}",
    });
    assert_eq!(report["jobs"], json!([job]));
    assert_eq!(
        report["values"],
        json!([{ "step": "send", "kept_before": false, "store": "s", "key": "k", "value_bytes": 1 }])
    );
    assert_eq!((&report["ended_as"], &report["verdict"]["job"]), (&json!("done"), &json!("done")));
    assert_eq!((&report["answers_left"], &report["payload_corrected"]), (&json!(0), &json!(true)));
    assert!(report["memory_peak_bytes"].as_u64().unwrap() > 0);

    assert_eq!(server.received().len(), 0, "a rehearsal reached the network");
    assert_eq!(contents(&daemon.database()), before, "a rehearsal wrote more than its audit row");
    assert_eq!(counters(&daemon), counted, "a rehearsal was counted");
    daemon.database().check();
}

#[test]
fn r7_a_rehearsal_is_in_the_audit_log_with_who_and_what() {
    let daemon = Daemon::with_misbehave(&config());
    let letter = letter_of(&daemon, "job", &told("rejected", "shop.closed"));
    rehearse(&daemon, &id(&letter), &[]);
    let [act] = &acts(&daemon)[..] else { panic!("not one act: {:?}", acts(&daemon)) };
    assert_eq!(act["subject"], id(&letter));
    assert_eq!(act["actor"], daemon.ask(&["audit", "ls"]).json()["items"][0]["actor"]);
    assert_eq!(act["detail"]["version"], "misbehave@1.0.0");
    assert_eq!(act["detail"]["digest"], letter["digest"]);
    assert_eq!(act["detail"]["payload_corrected"], false);
}

#[test]
fn r7_it_stops_at_the_first_request_without_an_answer_and_says_which() {
    let server = Server::accepting();
    let daemon = start(&server);
    let letter = letter(&daemon);
    let get = json!({ "do": "get", "url": format!("{}/state", server.url()) });
    for (payload, method, path) in [(get, "GET", "state"), (full_step(&server), "POST", "charge")] {
        let report = rehearse_with(&daemon, &letter, &payload, &[]);
        let url = format!("{}/{path}", server.url());
        assert_eq!((&report["ended_as"], &report["verdict"]), (&json!("unanswered"), &json!(null)), "{report}");
        let template = &report["unanswered"];
        assert_eq!((&template["method"], &template["url"]), (&json!(method), &json!(url)));
        let last = report["events"].as_array().unwrap().last().unwrap();
        assert_eq!((&last["event"], &last["answered"]), (&json!("request"), &json!("unanswered")));
        assert_eq!((&report["jobs"], &report["steps_in_doubt"]), (&json!([]), &json!([])));
        // The template is an answer as it stands.
        let report = rehearse_with(&daemon, &letter, &payload, std::slice::from_ref(template));
        assert_eq!(report["ended_as"], "done", "{report}");
    }
    assert_eq!(server.received().len(), 0);
}

#[test]
fn r7_the_run_ends_as_the_answers_make_it_end() {
    let server = Server::accepting();
    let daemon = start(&server);
    let letter = letter(&daemon);
    let answer = |failure: &str| json!({ "url": "*", "failure": failure });
    // The request left and nobody knows what became of it; then it certainly did not leave.
    let report = rehearse_with(&daemon, &letter, &full_step(&server), &[answer("timed_out"), answer("broken")]);
    assert_eq!(
        (&report["ended_as"], &report["error_class"]),
        (&json!("failed"), &json!("downstream.timeout")),
        "{report}"
    );
    let verdict = &report["verdict"];
    assert_eq!(
        (&verdict["job"], &verdict["delay_min_ms"], &verdict["delay_max_ms"]),
        (&json!("retry"), &json!(10), &json!(20))
    );
    assert_eq!((&report["steps_in_doubt"], &report["answers_left"]), (&json!(["send"]), &json!(1)));
    assert_eq!(report["jobs"], json!([]), "a step that was not completed keeps nothing");
    let report = rehearse_with(&daemon, &letter, &full_step(&server), &[answer("not_connected")]);
    assert_eq!((events(&report, "step_taken_back").len(), &report["steps_in_doubt"]), (1, &json!([])), "{report}");
    assert_eq!(server.received().len(), 0);
}

#[test]
fn r7_an_applied_step_gives_its_stored_result_and_what_it_kept() {
    let server = Server::answering(|_, _| Reply::Status(200, Vec::new(), "first-answer".into()));
    let daemon = start(&server);
    let mut payload = full_step(&server);
    payload["then"] = json!("rejected");
    let dead = letter_of(&daemon, "job", &payload);
    assert_eq!(server.received().len(), 1);
    let report = rehearse(&daemon, &id(&dead), &[]);
    let begun = events(&report, "step_begun")[0];
    assert_eq!(begun["found"], "applied");
    assert!(begun["result"].as_str().unwrap().contains("first-answer"), "{begun}");
    assert_eq!((events(&report, "request").len(), server.received().len()), (0, 1));
    assert_eq!((&report["verdict"]["job"], &report["verdict"]["cause"]), (&json!("dead_letter"), &json!("rejected")));
    assert_eq!((&report["jobs"][0]["step"], &report["jobs"][0]["kept_before"]), (&json!("send"), &json!(true)));
    // A version that goes on from there reads the stored value that the step has kept.
    let read = json!({ "do": "kv", "ops": [{ "op": "get", "store": "s", "key": "k" }] });
    assert_eq!(rehearse_with(&daemon, &id(&dead), &read, &[])["result"], "[\"v\"]");
}

#[test]
fn r7_a_step_in_doubt_is_found_as_a_replay_would_find_it() {
    let server = Server::answering(|_, _| Reply::Broken);
    let asks = "attempts = 1\nin_doubt = \"dead-letter\"";
    let daemon =
        Daemon::with_misbehave(&config().reaching(server.url()).kind("attempts = 1").another_kind("ask", asks));
    let step = json!({ "do": "step", "name": "send", "url": format!("{}/charge", server.url()) });
    let begins_again = id(&letter_of(&daemon, "job", &step));
    let report = rehearse_with(&daemon, &begins_again, &step, &[json!({ "url": "*" })]);
    assert_eq!(events(&report, "step_begun")[0]["found"], "in_doubt");
    assert_eq!(report["verdict"]["job"], "done");
    let sent = server.received();
    assert_eq!(events(&report, "request")[0]["idempotency_key"], sent[0].header("idempotency-key").unwrap());
    let asks = id(&letter_of(&daemon, "ask", &step));
    let report = rehearse(&daemon, &asks, &[]);
    assert_eq!(
        (&report["verdict"]["job"], &report["verdict"]["cause"]),
        (&json!("dead_letter"), &json!("in_doubt")),
        "{report}"
    );
    assert_eq!(server.received().len(), 2);
}

#[test]
fn r7_values_come_from_the_store_and_from_the_rehearsals_own_writes() {
    let daemon = Daemon::with_misbehave(&config());
    let kv = |ops: &[Value]| json!({ "do": "kv", "ops": ops });
    let (get, set) = (
        json!({ "op": "get", "store": "s", "key": "a" }),
        |value: &str| json!({ "op": "set", "store": "s", "key": "a", "value": value }),
    );
    let job = daemon.enqueue("job", &kv(&[set("real")]), &[]);
    assert_eq!(daemon.wait(job), "done");
    let letter = letter(&daemon);
    let report = rehearse_with(&daemon, &letter, &kv(&[get.clone(), set("rehearsed"), get.clone()]), &[]);
    assert_eq!(report["result"], r#"["real","set","rehearsed"]"#);
    assert_eq!(report["values"][0]["value_bytes"], "rehearsed".len());
    let job = daemon.enqueue("job", &kv(&[get]), &[]);
    assert_eq!(daemon.wait(job), "done");
    assert_eq!(daemon.result(job), json!(["real"]));
}

#[test]
fn r7_any_stored_version_is_rehearsed_and_stays_as_it_is() {
    let daemon = Daemon::with_misbehave(&config());
    let letter = letter_of(&daemon, "job", &told("rejected", "shop.closed"));
    push(&daemon, &other_misbehave(daemon.directory(), 1), "1.1.0");
    let state = |version: &str| daemon.ask(&["handlers", "show", version]).json()["state"].clone();
    let report = rehearse(&daemon, &id(&letter), &["--version", "misbehave@1.1.0"]);
    assert_eq!((&report["version"], &report["version_state"]), (&json!("misbehave@1.1.0"), &json!("staged")));
    assert_ne!(report["digest"], letter["digest"]);
    assert_eq!((&report["verdict"]["cause"], &report["error_class"]), (&json!("rejected"), &json!("shop.closed")));
    assert_eq!((state("misbehave@1.1.0"), state("misbehave@1.0.0")), (json!("staged"), json!("live")));
    activate(&daemon, "1.1.0", &[]);
    let report = rehearse(&daemon, &id(&letter), &["--version", "misbehave@1.0.0"]);
    assert_eq!((&report["version_state"], &report["digest"]), (&json!("retired"), &letter["digest"]));
    assert_eq!(rehearse(&daemon, &id(&letter), &[])["version"], "misbehave@1.1.0", "the current one by default");
}

#[test]
fn r7_a_version_that_can_not_be_had_is_refused_and_says_why() {
    let daemon = Daemon::with_misbehave(&config().more("[handlers.bench-parse]"));
    daemon.ask(&["handlers", "push", guest("bench-parse@1.0.0").to_str().unwrap()]).json();
    let letter = letter_of(&daemon, "job", &told("rejected", "shop.closed"));
    let refusal = |options: &[&str]| ask(&daemon, &id(&letter), options).refusal();
    assert_eq!(refusal(&["--version", "misbehave@9.9.9"]), "version_not_stored");
    assert_eq!(refusal(&["--version", "bench-parse@1.0.0"]), "version_of_other_handler");
    assert_eq!(refusal(&["--version", "1.0"]), "invalid_handler_version");
    assert_eq!(ask(&daemon, "4711", &[]).refusal(), "not_found");
    let component = daemon.data().join("handlers").join(format!("{}.wasm", letter["digest"].as_str().unwrap()));
    let bytes = fs::read(&component).unwrap();
    fs::remove_file(&component).unwrap();
    assert_eq!(refusal(&[]), "component_damaged");
    fs::write(&component, bytes).unwrap();
    daemon.ask(&["handlers", "retire", "misbehave@1.0.0"]).json();
    let refused = ask(&daemon, &id(&letter), &[]);
    assert_eq!(refused.refusal(), "no_current_version");
    assert!(refused.stderr.contains("stored: misbehave@1.0.0"), "{}", refused.stderr);
    assert_eq!(acts(&daemon), Vec::<Value>::new(), "nothing was rehearsed");
}

#[test]
fn r7_a_letter_that_can_not_be_run_is_refused_and_says_why() {
    let asks_nothing = "keep_original = false\nattempts = 1";
    let config = config().another_kind("gone", "attempts = 1").another_kind("forgetful", asks_nothing);
    let mut daemon = Daemon::with_misbehave(&config);
    let [gone, forgetful, discarded] =
        ["gone", "forgetful", "job"].map(|kind| id(&letter_of(&daemon, kind, &told("rejected", "shop.closed"))));
    assert_eq!(ask(&daemon, &forgetful, &[]).refusal(), "original_not_kept");
    assert_eq!(rehearse(&daemon, &forgetful, &["--payload", r#"{"do":"count"}"#])["verdict"]["job"], "done");
    daemon.ask(&["dlq", "discard", &discarded, "--reason", "a test"]).json();
    assert_eq!(ask(&daemon, &discarded, &[]).refusal(), "already_discarded");
    daemon.terminate();
    daemon.write_config(&crate::letters::config().another_kind("forgetful", asks_nothing));
    daemon.run();
    assert_eq!(ask(&daemon, &gone, &[]).refusal(), "unknown_kind");
}

#[test]
fn r7_answers_that_can_not_be_read_are_refused_with_their_place() {
    let daemon = Daemon::with_misbehave(&config());
    let letter = letter(&daemon);
    let file = daemon.directory().join("answers.json");
    let path = file.to_str().unwrap();
    for (text, code) in [
        (r#"[{"url": "*"}, {"url": "*", "status": 42}]"#, "invalid_answer"),
        (r#"{"url": "*", "stauts": 200}"#, "answers_invalid"),
        ("not JSON", "answers_invalid"),
    ] {
        fs::write(&file, text).unwrap();
        assert_eq!(ask(&daemon, &letter, &["--answers", path]).refusal(), code, "{text}");
    }
    assert_eq!(ask(&daemon, &letter, &["--answers", "nowhere.json"]).refusal(), "file_unreadable");
}

#[test]
fn r7_what_the_handler_is_not_granted_is_refused_as_in_reality() {
    let server = Server::accepting();
    let daemon = start(&server);
    let letter = letter(&daemon);
    let any = [json!({ "url": "*" }), json!({ "url": "*" })];
    let report = rehearse_with(&daemon, &letter, &json!({ "do": "get", "url": "http://127.0.0.1:1/" }), &any);
    assert!(report["log"].as_str().unwrap().contains("it is not granted; add"), "{report}");
    assert_eq!((&report["answers_left"], &report["events"]), (&json!(2), &json!([])));
    // A failure, and a request outside of a step that is no GET.
    let post = json!({ "do": "post", "url": server.url() });
    let report = rehearse_with(&daemon, &letter, &post, &any);
    assert!(report["log"].as_str().unwrap().contains("outside a step only"), "{report}");
    let mut twice = full_step(&server);
    twice["requests"] = json!(2);
    let report = rehearse_with(&daemon, &letter, &twice, &any);
    assert!(report["log"].as_str().unwrap().contains("has sent an unsafe request already"), "{report}");
}

#[test]
fn r7_a_loop_ends_by_the_kinds_deadline() {
    let daemon = Daemon::with_misbehave(&config().kind("deadline = \"1s\""));
    let letter = letter(&daemon);
    let report = rehearse(&daemon, &letter, &["--payload", r#"{"do":"loop"}"#]);
    assert_eq!((&report["ended_as"], &report["error_class"]), (&json!("failed"), &json!("limit.time")));
    assert_eq!(report["verdict"]["job"], "retry");
}

#[test]
fn r7_a_trap_is_shown_with_its_frames() {
    let daemon = Daemon::with_misbehave(&config());
    let report = rehearse(&daemon, &letter(&daemon), &["--payload", r#"{"do":"panic","message":"as told"}"#]);
    assert_eq!(report["error_class"], "handler.panic");
    assert!(report["trap"].as_str().unwrap().contains("as told"), "{report}");
}

#[test]
fn r7_a_caller_that_goes_away_ends_the_rehearsal() {
    let daemon = Daemon::with_misbehave(&config().kind("deadline = \"1h\""));
    let letter = letter(&daemon);
    // More of them than there are places: each has to be let go of by the one before.
    for number in 1..=3 {
        let mut caller = begin_endless(&daemon, &letter, number);
        caller.kill().unwrap();
        caller.wait().unwrap();
        daemon.wait_for_log_lines(number, "a rehearsal has ended");
    }
}

#[test]
fn r7_a_rehearsal_takes_no_jobs_place_and_ends_with_the_daemon() {
    let mut daemon = Daemon::with_misbehave(&config().sandbox("slots = 1").kind("deadline = \"1h\""));
    let letter = letter(&daemon);
    let mut caller = begin_endless(&daemon, &letter, 1);
    let job = daemon.enqueue("job", &json!({ "do": "count" }), &[]);
    assert_eq!(daemon.wait(job), "done");
    assert!(daemon.terminate().success());
    let mut refusal = String::new();
    caller.stderr.take().unwrap().read_to_string(&mut refusal).unwrap();
    caller.wait().unwrap();
    assert!(refusal.contains("\"stopping\""), "{refusal}");
}

#[test]
fn r7_the_report_holds_no_personal_data_and_no_secret() {
    const EMAIL: &str = "al1ce.c4nary@example.com";
    const NAME: &str = "N4me Canary-O'Neil";
    const SECRET: &str = "s3cret/c+nary-4711";
    const OLD: &str = "0ld Canary-Name";
    let server = Server::accepting();
    let config: ConfigText = config()
        .reaching(server.url())
        .kind("redact = { names = [\"subject\", \"password\"] }")
        .more("[handlers.misbehave.secrets]\napi_key = { env = \"TEST_API_KEY\" }");
    let mut daemon = Daemon::prepare(&config);
    daemon.set_environment("TEST_API_KEY", SECRET);
    daemon.run();
    daemon.push_live(&guest("misbehave@1.0.0"));
    // The original names somebody else, whose name an applied step has stored.
    let original = json!({
        "do": "step", "name": "before", "subject": OLD, "url": server.url(), "body": OLD, "then": "rejected",
        "kv": [{ "op": "set", "store": "s", "key": OLD, "value": OLD }],
    });
    let dead = id(&letter_of(&daemon, "job", &original));
    let told = carried(NAME);
    let payload = json!({
        "do": "step", "name": "send", "subject": NAME, "url": format!("{}/{EMAIL}?token=abc&to={EMAIL}", server.url()),
        "body": json!({ "to": EMAIL, "note": told, "password": "hunter2-canary", "old": OLD, "key": SECRET }).to_string(),
        "kv": [{ "op": "set", "store": "s", "key": EMAIL, "value": NAME }],
        "enqueue": [{ "kind": "job", "lane": "l", "payload": { "do": "echo", "payload": told, "password": "hunter2-canary" } }],
    });
    let answer = json!({ "url": "*", "body_text": format!("{NAME} {OLD} {SECRET}") });
    let all = [EMAIL, NAME, SECRET, OLD, "hunter2-canary"];
    let report = rehearse_with(&daemon, &dead, &payload, &[answer]);
    assert_eq!((events(&report, "request").len(), report["jobs"].as_array().unwrap().len()), (1, 1), "{report}");
    assert_free(&report.to_string(), &all, "the report");
    for (payload, answers) in [
        (payload, &[][..]),
        (json!({ "do": "panic", "message": format!("{EMAIL} {OLD} {SECRET}") }), &[]),
        (json!({ "do": "log", "text": format!("{EMAIL} {OLD} {SECRET}") }), &[]),
        (json!({ "do": "settings", "name": "api_key" }), &[]),
        (json!({ "do": "suppress", "reason": format!("{EMAIL} {OLD}") }), &[]),
        (original, &[]),
    ] {
        let report = rehearse_with(&daemon, &dead, &payload, answers);
        assert_free(&report.to_string(), &all, "the report");
    }
    assert_free(&daemon.log(), &all, "the daemon's log");
}

#[test]
fn r7_a_report_that_can_not_be_masked_is_not_shown() {
    let mut daemon = Daemon::prepare(&config());
    daemon.set_crash_points("redact.mask=panic");
    daemon.run();
    daemon.push_live(&guest("misbehave@1.0.0"));
    let letter = letter(&daemon);
    let refused = ask(&daemon, &letter, &["--payload", r#"{"do":"log","text":"anything"}"#]);
    assert_eq!(refused.refusal(), "redaction_failed");
    assert!(!refused.stderr.contains("anything"), "{}", refused.stderr);
}

#[test]
fn r7_a_person_reads_the_report_as_text() {
    let server = Server::accepting();
    let daemon = start(&server);
    let letter = letter(&daemon);
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_leasehold"));
    let payload = full_step(&server).to_string();
    command.arg("--config").arg(daemon.config_path()).args(["dlq", "rehearse", &letter, "--payload", &payload]);
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    for expected in ["step begun", "POST", "unanswered", "--answers", "{\"method\":\"POST\""] {
        assert!(text.contains(expected), "{expected} is missing:\n{text}");
    }
}
