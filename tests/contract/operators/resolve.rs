//! R8: a dead letter with a step in doubt is replayed once an operator has said what became of the step.

use serde_json::{Value, json};

use crate::support::{ConfigText, Daemon, Server};

/// A job whose step was sent once and left in doubt, and whose kind asks an operator.
fn in_doubt(server: &Server) -> (Daemon, i64, String) {
    let config = ConfigText::default().reaching(server.url()).kind("in_doubt = \"dead-letter\"");
    let daemon = Daemon::with_misbehave(&config);
    let act = json!({ "do": "step", "name": "charge", "url": server.url(), "inside": "unknown" });
    let job = daemon.enqueue("job", &act, &[]);
    assert_eq!(daemon.wait(job), "dead");
    let letter = daemon.dead_letter(job);
    assert_eq!(letter["cause"], "in_doubt");
    (daemon, job, letter["id"].to_string())
}

fn replay(daemon: &Daemon, letter: &str, step: &str) -> crate::support::Answer {
    daemon.ask(&["dlq", "replay", letter, "--reason", "asked the provider", "--step", step])
}

fn step(daemon: &Daemon, job: i64) -> Value {
    daemon.job(job)["steps"][0].clone()
}

#[test]
fn r8_a_step_that_was_applied_is_not_run_again_and_its_result_is_the_one_that_was_said() {
    let server = Server::accepting();
    let (daemon, job, letter) = in_doubt(&server);
    replay(&daemon, &letter, r#"charge=applied:{"receipt":"r-77"}"#).json();
    assert_eq!(daemon.wait(job), "done");
    assert_eq!(server.received().len(), 1, "the effect was run again");
    assert_eq!(step(&daemon, job)["state"], "applied");
    assert!(daemon.result(job).to_string().contains("r-77"), "{}", daemon.result(job));
    let audit = daemon.ask(&["audit", "ls"]).stdout;
    assert!(audit.contains("charge") && audit.contains("asked the provider"), "{audit}");
    assert!(!audit.contains("r-77"), "a result may be personal data: {audit}");
}

#[test]
fn r8_a_step_that_was_not_applied_is_begun_afresh() {
    let server = Server::accepting();
    let (daemon, job, letter) = in_doubt(&server);
    replay(&daemon, &letter, "charge=not-applied").json();
    assert_eq!(daemon.wait(job), "dead", "the act leaves its step in doubt each time");
    assert_eq!(server.received().len(), 2, "the effect was not run again");
}

#[test]
fn r8_what_can_not_be_resolved_is_refused_and_changes_nothing() {
    let server = Server::accepting();
    let (daemon, job, letter) = in_doubt(&server);
    assert_eq!(replay(&daemon, &letter, "refund=applied").refusal(), "step_unresolved");
    let both = ["dlq", "replay", &letter, "--reason", "r", "--step", "charge=applied", "--step", "refund=applied"];
    assert_eq!(daemon.ask(&both).refusal(), "step_not_in_doubt");
    assert_eq!(replay(&daemon, &letter, "charge=maybe").status, 2);
    assert_eq!(replay(&daemon, &letter, "charge=applied:{").status, 2);
    assert_eq!(step(&daemon, job)["state"], "begun");
    assert_eq!(daemon.job(job)["state"], "dead");
}
