//! E1 to E3: the e-mail plugins against a provider, which is a real HTTP server.

use std::fs;

use serde_json::{Value, json};

use crate::{
    letters::attempts,
    support::{ConfigText, Daemon, Received, Reply, Server, guest, plugin},
};

const API_KEY: &str = "email-api-key-4711";

pub fn config(server: &Server) -> ConfigText {
    let url = server.url();
    let quick = "attempts = 3\nbackoff = { min = \"10ms\", max = \"50ms\" }\nowner = \"messaging\"";
    ConfigText::default().handler("stores = { suppressions = \"read\" }").more(&format!(
        "\"downstream.rate_limited\" = \"rate-limited\"\n\"downstream.unavailable\" = \"retry\"\n\
         \"email.soft_bounce\" = \"retry\"\n\"email.greylisted\" = \"retry\"\n\"email.unauthorized\" = \"rejected\"\n\
         \"email.address_malformed\" = \"poison\"\n\"records.denied\" = \"rejected\"\n\
         [handlers.email-send]\noutbound = [\"POST {url}\"]\nstores = {{ suppressions = \"read-write\", messages = \"read-write\" }}\n\
         settings = {{ endpoint = \"{url}/v1/messages\", from = \"shop@example.com\" }}\n\
         [handlers.email-send.secrets]\napi_key = {{ file = \"api-key\" }}\n\
         [handlers.email-bounce]\nstores = {{ suppressions = \"read-write\", messages = \"read\" }}\n\
         enqueue = [\"email.bounce\"]\nannotate = [\"email.send\"]\n\
         [kinds.\"email.send\"]\nhandler = \"email-send\"\nin_doubt = \"begin-again\"\n{quick}\n\
         [kinds.\"email.bounce\"]\nhandler = \"email-bounce\"\n{quick}"
    ))
}

/// A daemon with the plugins live.
pub fn start(server: &Server) -> Daemon {
    let mut daemon = Daemon::prepare(&config(server));
    fs::write(daemon.directory().join("api-key"), API_KEY).unwrap();
    daemon.run();
    for component in [plugin("email-send@1.0.0"), plugin("email-bounce@1.0.0"), guest("misbehave@1.0.0")] {
        daemon.push_live(&component);
    }
    daemon
}

/// A provider that gives its answers one after another, and takes every message after them.
fn provider(answers: Vec<Reply>) -> Server {
    Server::answering(move |_, number| answers.get(number).cloned().unwrap_or_else(accepted))
}

pub fn accepted() -> Reply {
    Reply::Status(202, Vec::new(), r#"{"id":"m-1"}"#.into())
}

pub fn refusal(status: u16, code: &str) -> Reply {
    Reply::Status(status, Vec::new(), json!({ "error": { "code": code } }).to_string())
}

pub fn enqueue(daemon: &Daemon, to: &str) -> i64 {
    daemon.enqueue("email.send", &json!({ "to": to, "subject": "Your order", "text": "Thank you" }), &[])
}

/// Sends a message; answers its job at its end.
pub fn send(daemon: &Daemon, to: &str) -> Value {
    let job = enqueue(daemon, to);
    daemon.wait(job);
    daemon.job(job)
}

fn notify(daemon: &Daemon, recipient: &str, kind: &str) {
    let job = daemon.enqueue("email.bounce", &json!({ "recipient": recipient, "type": kind }), &[]);
    assert_eq!(daemon.wait(job), "done");
}

/// Why a recipient is on the suppression list, if so: read by another handler, which was granted the list.
pub fn listed(daemon: &Daemon, recipient: &str) -> Value {
    let act = json!({ "do": "kv", "ops": [{ "op": "get", "store": "suppressions", "key": recipient }] });
    let job = daemon.enqueue("job", &act, &[]);
    assert_eq!(daemon.wait(job), "done");
    daemon.result(job)[0].clone()
}

fn recipients(server: &Server) -> Vec<String> {
    let recipient = |request: &Received| {
        let message: Value = serde_json::from_str(&request.body).unwrap();
        message["to"].as_str().unwrap().to_owned()
    };
    server.received().iter().map(recipient).collect()
}

#[test]
fn e1_a_hard_bounce_is_suppressed_and_nobody_writes_to_the_recipient_again() {
    let server = provider(vec![refusal(422, "hard_bounce")]);
    let daemon = start(&server);
    let job = send(&daemon, "Alice@Example.com");
    assert_eq!((&job["state"], attempts(&job)), (&json!("suppressed"), 1), "it was retried or called poison: {job}");
    assert_eq!(job["dead_letters"], json!([]));
    assert!(job["reason"].as_str().unwrap().contains("hard_bounce"), "{job}");
    assert_eq!(listed(&daemon, "alice@example.com"), "hard_bounce");
    let again = send(&daemon, "alice@example.COM");
    assert_eq!(
        (&again["state"], &again["reason"]),
        (&json!("suppressed"), &json!("the recipient is on the suppression list"))
    );
    assert_eq!(send(&daemon, "bob@example.com")["state"], "done");
    assert_eq!(recipients(&server), ["Alice@Example.com", "bob@example.com"]);
    daemon.database().check();
}

#[test]
fn e2_soft_bounces_and_greylisting_are_retried() {
    let server = provider(vec![refusal(422, "soft_bounce"), refusal(450, "greylisted"), accepted()]);
    let daemon = start(&server);
    let job = send(&daemon, "alice@example.com");
    assert_eq!((&job["state"], attempts(&job)), (&json!("done"), 3));
    let classes: Vec<_> = job["attempts"].as_array().unwrap().iter().map(|attempt| &attempt["error_class"]).collect();
    assert_eq!(classes, [&json!("email.soft_bounce"), &json!("email.greylisted"), &json!(null)]);
    assert_eq!(listed(&daemon, "alice@example.com"), json!(null));
    // All three are one message for a provider that tells repetitions.
    let received = server.received();
    let keys: Vec<_> = received.iter().map(|request| request.header("idempotency-key")).collect();
    assert!(keys[0].is_some() && keys.iter().all(|key| *key == keys[0]), "{keys:?}");
}

#[test]
fn e2_a_provider_that_asks_to_slow_down_is_asked_again_after_the_time_it_named() {
    let slow = Reply::Status(429, vec![("retry-after", "1".into())], String::new());
    let server = provider(vec![slow, accepted()]);
    let daemon = start(&server);
    let job = send(&daemon, "alice@example.com");
    assert_eq!((&job["state"], attempts(&job)), (&json!("done"), 2));
    assert_eq!(job["attempts"][0]["error_class"], "downstream.rate_limited");
    let waited_ms = crate::webhooks::waited_ms(&daemon, &job);
    assert!(waited_ms >= 1_000, "it waited for {waited_ms} ms");
}

#[test]
fn e2_a_soft_bounce_that_outlasts_the_cap_is_exhausted_and_lists_nobody() {
    let server = Server::answering(|_, _| refusal(422, "mailbox_full"));
    let daemon = start(&server);
    let job = send(&daemon, "alice@example.com");
    assert_eq!((&job["state"], attempts(&job)), (&json!("dead"), 3));
    assert_eq!(job["dead_letters"][0]["cause"], "exhausted");
    assert_eq!(listed(&daemon, "alice@example.com"), json!(null));
}

#[test]
fn d1_a_bad_api_key_is_rejected_and_shown_to_nobody() {
    let server = Server::answering(|_, _| Reply::Status(401, Vec::new(), format!("bad key {API_KEY}")));
    let daemon = start(&server);
    let job = send(&daemon, "alice@example.com");
    let letter = daemon.dead_letter(job["id"].as_i64().unwrap());
    assert_eq!((&letter["cause"], &letter["error_class"]), (&json!("rejected"), &json!("email.unauthorized")));
    assert_eq!(attempts(&letter), 1);
    assert_eq!(server.received()[0].header("authorization"), Some(&*format!("Bearer {API_KEY}")));
    crate::forms::assert_free(&format!("{letter}{}{}", daemon.log(), daemon.metrics()), &[API_KEY], "what is seen");
}

#[test]
fn d1_a_malformed_address_is_poison_and_nothing_is_sent() {
    let server = Server::accepting();
    let daemon = start(&server);
    let job = send(&daemon, "alice at example");
    let letter = daemon.dead_letter(job["id"].as_i64().unwrap());
    assert_eq!((&letter["cause"], &letter["error_class"]), (&json!("poison"), &json!("email.address_malformed")));
    assert_eq!((attempts(&letter), server.received().len()), (1, 0));
}

#[test]
fn e3_a_bounce_that_comes_later_and_twice_leaves_one_list_and_the_ended_job() {
    let server = Server::accepting();
    let daemon = start(&server);
    let sent = send(&daemon, "alice@example.com");
    assert_eq!(sent["state"], "done");
    notify(&daemon, "alice@example.com", "soft");
    assert_eq!(listed(&daemon, "alice@example.com"), json!(null));
    notify(&daemon, " Alice@example.com", "hard");
    assert_eq!(listed(&daemon, "alice@example.com"), "hard_bounce");
    notify(&daemon, "alice@example.com", "hard");
    notify(&daemon, "alice@example.com", "complaint");
    assert_eq!(listed(&daemon, "alice@example.com"), "hard_bounce");
    assert_eq!(daemon.database().one::<i64>("SELECT count(*) FROM stored_values WHERE store = 'suppressions'"), 1);
    assert_eq!(daemon.job(sent["id"].as_i64().unwrap())["state"], "done");
    assert_eq!(send(&daemon, "alice@example.com")["state"], "suppressed");
    assert_eq!(server.received().len(), 1);
}

#[test]
fn e3_a_bounce_that_comes_before_the_sends_own_answer_leaves_the_same_list() {
    for (answer, state) in [(accepted(), "done"), (refusal(422, "recipient_unknown"), "suppressed")] {
        let server = Server::answering(move |_, _| Reply::Held(Box::new(answer.clone())));
        let daemon = start(&server);
        let job = enqueue(&daemon, "alice@example.com");
        server.wait_for(1);
        notify(&daemon, "alice@example.com", "hard");
        server.let_go();
        assert_eq!(daemon.wait(job), state);
        assert_ne!(listed(&daemon, "alice@example.com"), json!(null));
        assert_eq!(daemon.database().one::<i64>("SELECT count(*) FROM stored_values WHERE store = 'suppressions'"), 1);
        assert_eq!(send(&daemon, "alice@example.com")["state"], "suppressed");
        assert_eq!(server.received().len(), 1, "a recipient on the list was written to");
    }
}
