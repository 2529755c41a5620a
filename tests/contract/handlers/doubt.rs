//! I3: what becomes of a step whose run's end nobody saw, and what is said to whom.

use serde_json::{Value, json};

use crate::{
    helpers::{dead, done, ends, replay},
    support::{ConfigText, Daemon, Received, Reply, Server, guest},
};

/// The classes that the guest's requests fail with.
const DOWNSTREAM: &str =
    "\"downstream.connect\" = \"retry\"\n\"downstream.unavailable\" = \"retry\"\n\"downstream.timeout\" = \"retry\"";

/// Holds the first answer back and gives the others.
fn holding_the_first() -> Server {
    Server::answering(|_, number| match number {
        0 => Reply::Held(Box::new(Reply::status(200))),
        _ => Reply::status(200),
    })
}

fn step(url: &str, more: &Value) -> Value {
    let mut payload = json!({ "do": "step", "name": "s", "url": url });
    payload.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    payload
}

fn key_of(request: &Received) -> String {
    request.header("idempotency-key").expect("a key").to_owned()
}

/// The state of a job's one step.
fn state(job: &Value) -> &str {
    job["steps"][0]["state"].as_str().unwrap()
}

#[test]
fn i3_after_a_kill_under_a_request_the_next_attempt_is_told_and_sends_the_same_key() {
    let server = holding_the_first();
    let mut daemon = Daemon::with_misbehave(&ConfigText::default().reaching(server.url()));
    let who = "anna.brandt@example.org";
    let payload = step(server.url(), &json!({ "subject": who, "body": who }));
    let job = daemon.enqueue("job", &payload, &["--key", who]);
    server.wait_for(1);
    daemon.kill_and_run();
    assert_eq!(daemon.wait(job), "done");
    let result = daemon.result(job);
    assert_eq!((&result["has_run"], &result["result"]["in_doubt"]), (&json!(true), &json!(true)));
    let requests = server.received();
    assert_eq!(requests.len(), 2);
    let key = key_of(&requests[0]);
    assert_eq!(key, key_of(&requests[1]));
    assert_eq!(result["result"]["idempotency_key"], key.as_str());
    // A digest: 32 hexadecimal digits say nothing of anybody.
    assert!(key.len() == 32 && key.bytes().all(|byte| byte.is_ascii_hexdigit()), "{key}");
    let shown = daemon.job(job);
    assert_eq!(ends(&shown), [("daemon_stopped", true), ("done", true)]);
    assert_eq!(shown["attempts"][0]["in_doubt_steps"], json!(["s"]));
    assert_eq!(shown["attempts"][1]["in_doubt_steps"], json!([]));
    let runs = shown["steps"][0]["runs"].as_array().unwrap();
    assert_eq!((&runs[0]["in_doubt"], &runs[0]["ended_as"]), (&json!(false), &Value::Null));
    assert_eq!((&runs[1]["in_doubt"], &runs[1]["ended_as"]), (&json!(true), &json!("applied")));
    daemon.database().check();
}

#[test]
fn i3_the_downstream_key_differs_by_kind_and_job() {
    let server = Server::accepting();
    let daemon = Daemon::with_misbehave(&ConfigText::default().reaching(server.url()).another_kind("other", ""));
    for (kind, key) in [("job", "1"), ("job", "2"), ("other", "1")] {
        let job = daemon.enqueue(kind, &step(server.url(), &json!({})), &["--key", key]);
        assert_eq!(daemon.wait(job), "done");
    }
    let mut keys: Vec<_> = server.received().iter().map(key_of).collect();
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), 3);
}

#[test]
fn i3_by_the_kinds_policy_a_step_in_doubt_ends_the_job_until_somebody_resolves_it() {
    let server = holding_the_first();
    let config = ConfigText::default().kind("in_doubt = \"dead-letter\"").reaching(server.url());
    let mut daemon = Daemon::with_misbehave(&config);
    let job = daemon.enqueue("job", &step(server.url(), &json!({})), &[]);
    server.wait_for(1);
    daemon.kill_and_run();
    assert_eq!(daemon.wait(job), "dead");
    let letter = daemon.dead_letter(job);
    assert_eq!((&letter["cause"], &letter["error_class"]), (&json!("in_doubt"), &json!("step.in_doubt")));
    assert_eq!(server.received().len(), 1);
    assert_eq!(replay(&daemon, job, &[]).refusal(), "step_unresolved");
    let shown = daemon.job(job);
    assert_eq!((state(&shown), &shown["attempts"][0]["in_doubt_steps"]), ("begun", &json!(["s"])));
    daemon.database().check();
}

#[test]
fn i3_a_request_that_found_no_connection_takes_its_step_back() {
    // Nothing listens on this port.
    let daemon = Daemon::with_misbehave(&ConfigText::default().more(DOWNSTREAM).kind("in_doubt = \"dead-letter\""));
    let letter = dead(&daemon, &step("http://127.0.0.1:9", &json!({})));
    assert_eq!((&letter["error_class"], &letter["cause"]), (&json!("downstream.connect"), &json!("exhausted")));
    let shown = daemon.job(letter["job_id"].as_i64().unwrap());
    assert_eq!(ends(&shown).len(), 3);
    assert_eq!(state(&shown), "taken_back");
    for (attempt, run) in
        shown["attempts"].as_array().unwrap().iter().zip(shown["steps"][0]["runs"].as_array().unwrap())
    {
        assert_eq!((&run["in_doubt"], &run["ended_as"]), (&json!(false), &json!("taken_back")));
        assert_eq!(attempt["in_doubt_steps"], json!([]));
    }
}

#[test]
fn i3_a_refusal_by_downstream_takes_the_step_back() {
    let server = Server::answering(|_, number| Reply::status(if number == 0 { 429 } else { 201 }));
    let config = ConfigText::default().more(&format!(
        "[handlers.charge-card]\nsettings = {{ endpoint = \"{0}\" }}\noutbound = [\"POST {0}\"]\n\
         [kinds.charge]\nhandler = \"charge-card\"\nowner = \"tests\"\nin_doubt = \"dead-letter\"\n\
         backoff = {{ min = \"10ms\", max = \"50ms\" }}",
        server.url()
    ));
    let daemon = Daemon::start(&config);
    daemon.push_live(&guest("charge-card@1.1.0"));
    let order = json!({ "order": "A-1", "amount_cents": 5, "card": "c", "email": "e", "currency": "EUR" });
    let job = daemon.enqueue("charge", &order, &[]);
    assert_eq!(daemon.wait(job), "done");
    let requests = server.received();
    let paths: Vec<_> = requests.iter().map(|request| request.path.as_str()).collect();
    assert_eq!(paths, ["/charges", "/charges", "/receipts"]);
    assert_eq!(key_of(&requests[0]), key_of(&requests[1]));
    assert_ne!(key_of(&requests[0]), key_of(&requests[2]), "each step has a key of its own");
    let shown = daemon.job(job);
    let charge = shown["steps"].as_array().unwrap().iter().find(|step| step["name"] == "charge").unwrap();
    assert_eq!(charge["runs"][0]["ended_as"], "taken_back");
    assert_eq!((&charge["runs"][1]["in_doubt"], &charge["state"]), (&json!(false), &json!("applied")));
}

#[test]
fn i3_a_timeout_or_a_broken_answer_leaves_the_step_in_doubt() {
    let broken = Server::answering(|_, _| Reply::Broken);
    let silent = Server::answering(|_, _| Reply::Held(Box::new(Reply::status(200))));
    let config = ConfigText::default().more(DOWNSTREAM).kind("attempts = 1").kind("in_doubt = \"dead-letter\"");
    let grants = format!("outbound = [\"POST {}\", \"POST {}\"]", broken.url(), silent.url());
    let daemon = Daemon::with_misbehave(&config.handler(&grants));
    for (server, class) in [(&broken, "downstream.unavailable"), (&silent, "downstream.timeout")] {
        let letter = dead(&daemon, &step(server.url(), &json!({ "timeout_ms": 1_000 })));
        assert_eq!(letter["error_class"], class);
        let job = letter["job_id"].as_i64().unwrap();
        let shown = daemon.job(job);
        assert_eq!((state(&shown), &shown["attempts"][0]["in_doubt_steps"]), ("begun", &json!(["s"])), "{class}");
        assert_eq!(replay(&daemon, job, &[]).refusal(), "step_unresolved");
    }
}

#[test]
fn i3_each_run_that_ended_in_doubt_is_on_the_jobs_record() {
    let server = Server::accepting();
    let daemon = Daemon::with_misbehave(&ConfigText::default().reaching(server.url()));
    let letter = dead(&daemon, &step(server.url(), &json!({ "inside": "unknown" })));
    let shown = daemon.job(letter["job_id"].as_i64().unwrap());
    let attempts = shown["attempts"].as_array().unwrap();
    assert_eq!(attempts.len(), 3);
    assert!(attempts.iter().all(|attempt| attempt["in_doubt_steps"] == json!(["s"])), "{shown}");
    let runs = shown["steps"][0]["runs"].as_array().unwrap();
    assert_eq!(runs.iter().map(|run| run["in_doubt"] == true).collect::<Vec<_>>(), [false, true, true]);
    let keys: Vec<_> = server.received().iter().map(key_of).collect();
    assert!(keys.len() == 3 && keys.iter().all(|key| *key == keys[0]), "{keys:?}");
}

#[test]
fn i3_a_guest_that_ends_before_its_request_leaves_no_doubt() {
    let daemon = Daemon::with_misbehave(
        &ConfigText::default().kind("attempts = 1").kind("deadline = \"2s\"").kind("in_doubt = \"dead-letter\""),
    );
    for inside in ["panic", "loop", "hang", "unknown"] {
        let letter = dead(&daemon, &json!({ "do": "step", "name": "s", "inside": inside }));
        let shown = daemon.job(letter["job_id"].as_i64().unwrap());
        assert_eq!((state(&shown), &shown["attempts"][0]["in_doubt_steps"]), ("taken_back", &json!([])), "{inside}");
    }
}

#[test]
fn i3_a_guest_that_is_stopped_during_or_after_its_request_leaves_a_doubt() {
    let holding = Server::answering(|_, _| Reply::Held(Box::new(Reply::status(200))));
    let answering = Server::accepting();
    let config = ConfigText::default().kind("attempts = 1").kind("deadline = \"10m\"");
    let grants = format!("outbound = [\"POST {}\", \"POST {}\"]", holding.url(), answering.url());
    let daemon =
        Daemon::with_misbehave(&config.handler(&grants).another_kind("quick", "attempts = 1\ndeadline = \"2s\""));
    let in_doubt = |job| {
        let shown = daemon.job(job);
        assert_eq!((state(&shown), &shown["attempts"][0]["in_doubt_steps"]), ("begun", &json!(["s"])), "{shown}");
    };
    let during = daemon.enqueue("job", &step(holding.url(), &json!({})), &[]);
    holding.wait_for(1);
    daemon.ask(&["jobs", "cancel", &during.to_string()]).json();
    assert_eq!(daemon.wait(during), "cancelled");
    in_doubt(during);
    for inside in ["loop", "hang", "panic"] {
        let after = daemon.enqueue("quick", &step(answering.url(), &json!({ "inside": inside })), &[]);
        assert_eq!(daemon.wait(after), "dead");
        in_doubt(after);
    }
    assert_eq!(answering.received().len(), 3);
}

#[test]
fn i3_a_step_that_was_in_doubt_is_not_taken_back_by_a_later_run() {
    let server = holding_the_first();
    let config = ConfigText::default().more(DOWNSTREAM).kind("attempts = 2").reaching(server.url());
    let mut daemon = Daemon::with_misbehave(&config);
    let job = daemon.enqueue("job", &step(server.url(), &json!({})), &[]);
    server.wait_for(1);
    daemon.kill();
    drop(server);
    daemon.run();
    // The second run finds no connection: it certainly applied nothing, which says nothing of the first one.
    assert_eq!(daemon.wait(job), "dead");
    assert_eq!(daemon.dead_letter(job)["error_class"], "downstream.connect");
    let shown = daemon.job(job);
    assert_eq!(state(&shown), "begun");
    assert_eq!(shown["attempts"][0]["in_doubt_steps"], json!(["s"]));
    assert_eq!(shown["steps"][0]["runs"][1]["in_doubt"], true);
}

#[test]
fn i3_a_second_unsafe_request_in_a_step_needs_a_key_of_its_own() {
    let server = Server::accepting();
    let daemon = Daemon::with_misbehave(&ConfigText::default().reaching(server.url()));
    let result = done(&daemon, &step(server.url(), &json!({ "requests": 2 })));
    let answers = &result["result"]["answers"];
    assert_eq!((&answers[0]["status"], &answers[1]["error"]), (&json!(200), &json!("Denied")));
    let first = server.received();
    assert_eq!((first.len(), key_of(&first[0])), (1, result["result"]["idempotency_key"].as_str().unwrap().to_owned()));
    let result = done(&daemon, &step(server.url(), &json!({ "requests": 2, "own_key": true })));
    assert_eq!(result["result"]["answers"][1]["status"], 200);
    let keys: Vec<_> = server.received()[1..].iter().map(key_of).collect();
    assert_eq!(keys, ["own-0", "own-1"]);
}
