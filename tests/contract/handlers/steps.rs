//! I1: a step is begun durably, applied once, and its result given to every later run.

use serde_json::{Value, json};

use crate::{
    helpers::{dead, replay_with},
    support::{ConfigText, Daemon, Reply, Server},
};

fn step(url: &str, more: &Value) -> Value {
    let mut payload = json!({ "do": "step", "name": "s", "url": url });
    payload.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    payload
}

fn other_fingerprints(daemon: &Daemon) -> f64 {
    daemon.metric("leasehold_step_other_fingerprints_total", &[])
}

#[test]
fn i1_a_step_is_durable_before_its_effect_is_run() {
    let server = Server::answering(|_, _| Reply::Held(Box::new(Reply::status(200))));
    let daemon = Daemon::with_misbehave(&ConfigText::default().reaching(server.url()));
    let job = daemon.enqueue("job", &step(server.url(), &json!({})), &[]);
    server.wait_for(1);
    // Another connection sees what is committed and nothing else.
    let begun: String = daemon.database().one(&format!("SELECT state FROM steps WHERE job_id = {job}"));
    assert_eq!(begun, "begun");
    server.let_go();
    assert_eq!(daemon.wait(job), "done");
    assert_eq!(daemon.job(job)["steps"][0]["state"], "applied");
}

#[test]
fn i1_a_kill_before_the_record_is_durable_leaves_no_effect_and_no_doubt() {
    let server = Server::accepting();
    let mut daemon = Daemon::prepare(&ConfigText::default().reaching(server.url()));
    daemon.set_crash_points("step.begun=kill");
    daemon.run();
    daemon.push_live(&crate::support::guest("misbehave@1.0.0"));
    let job = daemon.enqueue("job", &step(server.url(), &json!({})), &[]);
    daemon.wait_for_exit();
    assert!(server.received().is_empty());
    daemon.set_crash_points("");
    daemon.run();
    assert_eq!(daemon.wait(job), "done");
    assert_eq!(daemon.result(job)["result"]["in_doubt"], false);
    assert_eq!(server.received().len(), 1);
}

#[test]
fn i1_an_applied_result_is_given_to_every_later_run_without_the_effect() {
    let server = Server::answering(|_, number| Reply::Status(200, Vec::new(), format!("answer {number}")));
    let daemon = Daemon::with_misbehave(&ConfigText::default().reaching(server.url()));
    let job = daemon.enqueue("job", &step(server.url(), &json!({ "then": "retry" })), &[]);
    assert_eq!(daemon.wait(job), "dead");
    assert_eq!(daemon.job(job)["attempts_used"], 3);
    assert_eq!(server.received().len(), 1);
    assert_eq!(replay_with(&daemon, job, &step(server.url(), &json!({}))), "done");
    let result = daemon.result(job);
    assert_eq!(result["has_run"], false);
    assert_eq!(result["result"]["answers"][0]["body"], "answer 0");
    assert_eq!(server.received().len(), 1);
    assert_eq!(daemon.metric("leasehold_duplicates_prevented_total", &[("what", "step")]), 3.0);
    let runs = daemon.job(job)["steps"][0]["runs"].as_array().unwrap().len();
    assert_eq!(runs, 1);
    assert_eq!(other_fingerprints(&daemon), 0.0);
}

#[test]
fn i1_an_applied_step_begun_with_another_fingerprint_gives_its_result_and_is_flagged() {
    let server = Server::accepting();
    let daemon = Daemon::with_misbehave(&ConfigText::default().kind("attempts = 1").reaching(server.url()));
    let first = step(server.url(), &json!({ "subject": "one", "then": "retry" }));
    let job = dead(&daemon, &first)["job_id"].as_i64().unwrap();
    assert_eq!(replay_with(&daemon, job, &step(server.url(), &json!({ "subject": "another" }))), "done");
    assert_eq!(daemon.result(job)["has_run"], false);
    assert_eq!(server.received().len(), 1);
    assert_eq!(other_fingerprints(&daemon), 1.0);
    daemon.wait_for_log("begun again with another fingerprint");
}

#[test]
fn i1_a_step_in_doubt_begun_with_another_fingerprint_is_a_conflict() {
    let server = Server::accepting();
    let daemon = Daemon::with_misbehave(&ConfigText::default().kind("attempts = 1").reaching(server.url()));
    let first = step(server.url(), &json!({ "subject": "one", "inside": "unknown" }));
    let job = dead(&daemon, &first)["job_id"].as_i64().unwrap();
    assert_eq!(replay_with(&daemon, job, &step(server.url(), &json!({ "subject": "another" }))), "dead");
    assert_eq!(daemon.dead_letter(job)["error_class"], "step.conflict");
    assert_eq!(server.received().len(), 1);
    // With the fingerprint that it was begun with it goes on.
    assert_eq!(replay_with(&daemon, job, &step(server.url(), &json!({ "subject": "one" }))), "done");
    assert_eq!(daemon.result(job)["result"]["in_doubt"], true);
}

#[test]
fn i1_a_name_twice_in_one_attempt_or_inside_another_step_is_a_conflict() {
    let server = Server::accepting();
    let config = ConfigText::default().more("\"step.conflict\" = \"poison\"\n\"step.invalid_name\" = \"poison\"");
    let daemon = Daemon::with_misbehave(&config.reaching(server.url()));
    for more in [json!({ "begin_twice": true }), json!({ "inside": "nested" })] {
        let letter = dead(&daemon, &step(server.url(), &more));
        assert_eq!((&letter["error_class"], &letter["cause"]), (&json!("step.conflict"), &json!("poison")), "{more}");
    }
    assert_eq!(server.received().len(), 2);
}

#[test]
fn i1_a_steps_name_is_of_the_form_that_the_contract_gives() {
    let server = Server::accepting();
    let daemon = Daemon::with_misbehave(
        &ConfigText::default().more("\"step.invalid_name\" = \"poison\"").reaching(server.url()),
    );
    let named = |name: &str| step(server.url(), &json!({ "name": name }));
    for name in ["", "Send", "a b", "a/b", "é", &"a".repeat(65)] {
        assert_eq!(dead(&daemon, &named(name))["error_class"], "step.invalid_name", "{name:?}");
    }
    assert!(server.received().is_empty());
    for name in ["a", "send.e-mail_2", &"a".repeat(64)] {
        let job = daemon.enqueue("job", &named(name), &[]);
        assert_eq!(daemon.wait(job), "done", "{name:?}");
        assert_eq!(daemon.job(job)["steps"][0]["name"], name);
    }
}
