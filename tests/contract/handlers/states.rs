//! H2 and H9: the states that a version goes through, and jobs whose kind has no live version.

use serde_json::{Value, json};

use crate::{
    helpers::{
        BENCH_PARSE, FIRST, SECOND, activate, dead, kind, push_second, replay, run_another_kind, state, version,
    },
    support::{ConfigText, Daemon, Reply, Server, guest},
};

fn states(daemon: &Daemon) -> (String, String) {
    (state(daemon, FIRST), state(daemon, SECOND))
}

fn are(first: &str, second: &str) -> (String, String) {
    (first.to_owned(), second.to_owned())
}

/// The version that a job of the kind runs on now.
#[track_caller]
fn runs_on(daemon: &Daemon) -> Value {
    let job = daemon.enqueue("job", &json!({ "do": "count" }), &[]);
    assert_eq!(daemon.wait(job), "done");
    daemon.job(job)["attempts"][0]["handler"].clone()
}

#[test]
fn h2_a_version_is_staged_goes_live_retires_and_can_go_live_again() {
    let daemon = Daemon::start(&ConfigText::default());
    daemon.ask(&["handlers", "push", guest(FIRST).to_str().unwrap()]).json();
    push_second(&daemon);
    assert_eq!(states(&daemon), are("staged", "staged"));
    activate(&daemon, FIRST);
    assert_eq!(states(&daemon), are("live", "staged"));
    assert_eq!(runs_on(&daemon), FIRST);
    activate(&daemon, SECOND);
    assert_eq!(states(&daemon), are("retired", "live"));
    assert_eq!(runs_on(&daemon), SECOND);
    activate(&daemon, FIRST);
    assert_eq!(states(&daemon), are("live", "retired"));
    assert_eq!(runs_on(&daemon), FIRST);
    assert_eq!(daemon.ask(&["handlers", "activate", "misbehave@9.9.9"]).refusal(), "version_not_stored");
    assert_eq!(states(&daemon), are("live", "retired"));
}

#[test]
fn h2_a_version_that_is_kept_live_serves_bound_jobs_alone() {
    let daemon = Daemon::with_misbehave(&ConfigText::default().kind("attempts = 1"));
    let letter = dead(&daemon, &json!({ "do": "fail", "as": "retry", "class": "handler.told" }));
    let job = letter["job_id"].as_i64().unwrap();
    push_second(&daemon);
    daemon.ask(&["handlers", "activate", SECOND, "--keep-live"]).json();
    assert_eq!(states(&daemon), are("live", "live"));
    assert_eq!(
        (&version(&daemon, FIRST)["current"], &version(&daemon, SECOND)["current"]),
        (&json!(false), &json!(true))
    );
    assert_eq!(runs_on(&daemon), SECOND);
    replay(&daemon, job, &["--version", FIRST]).json();
    assert_eq!(daemon.wait(job), "dead");
    assert_eq!(daemon.job(job)["attempts"][1]["handler"], FIRST);
    // Without the flag every other live version drains, also one that was kept live.
    activate(&daemon, SECOND);
    assert_eq!(states(&daemon), are("retired", "live"));
    assert_eq!(replay(&daemon, job, &["--version", FIRST]).refusal(), "version_not_live");
}

#[test]
fn r1_a_replay_runs_on_its_version_after_the_current_one_was_retired() {
    let daemon = Daemon::with_misbehave(&ConfigText::default().kind("attempts = 1"));
    let letter = dead(&daemon, &json!({ "do": "fail", "as": "retry", "class": "handler.told" }));
    let job = letter["job_id"].as_i64().unwrap();
    push_second(&daemon);
    daemon.ask(&["handlers", "activate", SECOND, "--keep-live"]).json();
    daemon.ask(&["handlers", "retire", SECOND]).json();
    let unbound = daemon.enqueue("job", &json!({ "do": "count" }), &[]);
    replay(&daemon, job, &["--version", FIRST]).json();
    assert_eq!(daemon.wait(job), "dead");
    assert_eq!(daemon.job(job)["attempts"][1]["handler"], FIRST);
    assert_eq!(
        daemon.job(unbound)["attempts"],
        json!([]),
        "a job that is bound to nothing waits for a current version"
    );
    activate(&daemon, SECOND);
    assert_eq!(daemon.wait(unbound), "done");
}

#[test]
fn h2_a_draining_version_ends_its_attempts_takes_no_others_and_retires() {
    let server = Server::answering(|_, _| Reply::Held(Box::new(Reply::status(200))));
    let config = ConfigText::default().kind("attempts = 1").reaching(server.url());
    let daemon = Daemon::with_misbehave(&config);
    let letter = dead(&daemon, &json!({ "do": "fail", "as": "retry", "class": "handler.told" }));
    let bound = letter["job_id"].as_i64().unwrap();
    push_second(&daemon);
    let running = daemon.enqueue("job", &json!({ "do": "get", "url": server.url() }), &[]);
    server.wait_for(1);
    activate(&daemon, SECOND);
    assert_eq!(states(&daemon), are("draining", "live"));
    assert_eq!(version(&daemon, FIRST)["running"], 1);
    assert_eq!(runs_on(&daemon), SECOND);
    assert_eq!(replay(&daemon, bound, &["--version", FIRST]).refusal(), "version_not_live");
    assert_eq!(daemon.job(running)["state"], "leased");
    server.let_go();
    assert_eq!(daemon.wait(running), "done");
    assert_eq!(daemon.job(running)["attempts"][0]["handler"], FIRST);
    assert_eq!(states(&daemon), are("retired", "live"));
}

#[test]
fn h2_a_draining_version_retires_also_when_the_daemon_was_killed_under_its_last_attempt() {
    let server = Server::answering(|_, number| match number {
        0 => Reply::Held(Box::new(Reply::status(200))),
        _ => Reply::status(200),
    });
    let mut daemon = Daemon::with_misbehave(&ConfigText::default().reaching(server.url()));
    push_second(&daemon);
    let job = daemon.enqueue("job", &json!({ "do": "get", "url": server.url() }), &[]);
    server.wait_for(1);
    activate(&daemon, SECOND);
    assert_eq!(state(&daemon, FIRST), "draining");
    daemon.kill_and_run();
    assert_eq!(daemon.wait(job), "done");
    assert_eq!(daemon.job(job)["attempts"][1]["handler"], SECOND);
    assert_eq!(states(&daemon), are("retired", "live"));
}

#[test]
fn h9_a_job_without_a_live_version_waits_visibly_and_uses_no_attempt() {
    let daemon = Daemon::start(&ConfigText::default().more(BENCH_PARSE));
    daemon.push_live(&guest("bench-parse@1.0.0"));
    let job = daemon.enqueue("job", &json!({ "do": "count" }), &[]);
    // A version that is only stored serves nobody.
    daemon.ask(&["handlers", "push", guest(FIRST).to_str().unwrap()]).json();
    let waits_unclaimed = |job| {
        run_another_kind(&daemon);
        let shown = daemon.job(job);
        assert_eq!(
            (&shown["state"], &shown["attempt"], &shown["attempts_used"]),
            (&json!("ready"), &json!(0), &json!(0))
        );
        let stands = kind(&daemon, "job");
        assert_eq!((&stands["waiting_for_handler"], &stands["live_version"]), (&json!(true), &Value::Null));
        assert_eq!(stands["depth"]["ready"], 1);
        assert_eq!(kind(&daemon, "parse")["waiting_for_handler"], false);
    };
    waits_unclaimed(job);
    activate(&daemon, FIRST);
    assert_eq!(daemon.wait(job), "done");
    assert_eq!(daemon.job(job)["attempts_used"], 1);
    assert_eq!(kind(&daemon, "job")["waiting_for_handler"], false);
    daemon.ask(&["handlers", "retire", FIRST]).json();
    waits_unclaimed(daemon.enqueue("job", &json!({ "do": "count" }), &[]));
}
