//! Q16: cancelling.

use serde_json::json;

use crate::{
    support::{ConfigText, Daemon, Reply, Server},
    told::{attempts, echo, ended, get},
};

#[track_caller]
fn cancel(daemon: &Daemon, job: i64) -> serde_json::Value {
    daemon.ask(&["jobs", "cancel", &job.to_string()]).json()
}

#[test]
fn q16_a_job_that_does_not_run_is_cancelled_at_once() {
    let daemon = Daemon::start(&ConfigText::default());
    let ready = daemon.enqueue("job", &echo(), &[]);
    let waiting = daemon.enqueue("job", &echo(), &["--delay", "1h"]);
    for job in [ready, waiting] {
        assert_eq!(cancel(&daemon, job), json!({ "id": job, "state": "cancelled", "ended": true }));
        assert_eq!(daemon.wait(job), "cancelled");
    }
    daemon.push_live(&crate::support::guest("misbehave@1.0.0"));
    let marker = daemon.enqueue("job", &echo(), &[]);
    assert_eq!(daemon.wait(marker), "done");
    assert!(attempts(&daemon, ready).is_empty());
    let by: String =
        daemon.database().one("SELECT group_concat(action || ' ' || subject) FROM audit WHERE action = 'job.cancel'");
    assert_eq!(by, format!("job.cancel {ready},job.cancel {waiting}"));
    daemon.database().check();
}

#[test]
fn q16_a_guest_that_spins_is_stopped_and_its_job_ends_as_cancelled() {
    let server = Server::accepting();
    let config = ConfigText::default().reaching(server.url()).kind("deadline = \"1h\"");
    let daemon = Daemon::with_misbehave(&config);
    let step = json!({ "do": "step", "name": "send", "url": server.url(), "inside": "loop" });
    let job = daemon.enqueue("job", &step, &[]);
    server.wait_for(1);
    cancel(&daemon, job);
    assert_eq!(daemon.wait(job), "cancelled");
    assert_eq!(attempts(&daemon, job), ended([("cancelled", true)]));
    daemon.database().check();
}

#[test]
fn q16_a_guest_in_a_host_call_is_stopped_too() {
    let server = Server::answering(|_, _| Reply::Held(Box::new(Reply::status(200))));
    let config = ConfigText::default().reaching(server.url()).kind("deadline = \"1h\"");
    let daemon = Daemon::with_misbehave(&config);
    let job = daemon.enqueue("job", &get(&server), &[]);
    server.wait_for(1);
    cancel(&daemon, job);
    assert_eq!(daemon.wait(job), "cancelled");
    assert_eq!(attempts(&daemon, job), ended([("cancelled", true)]));
    assert_eq!(server.received().len(), 1);
}

#[test]
fn q16_a_job_is_cancelled_between_its_lease_and_its_start() {
    let mut daemon = Daemon::with_misbehave(&ConfigText::default().kind("deadline = \"1h\""));
    daemon.kill();
    // The lease is durable a moment before the daemon knows of it, and the cancel has to fall in between. One that comes
    // before the lease has only to be tried again.
    daemon.set_crash_points("claim.leased=sleep(3000)");
    daemon.run();
    let cancelled_while_leased = (0..20).any(|_| {
        let job = daemon.enqueue("job", &json!({ "do": "loop" }), &[]);
        let answered = cancel(&daemon, job);
        assert_eq!(daemon.wait(job), "cancelled");
        answered["state"] == "leased"
    });
    assert!(cancelled_while_leased);
}

#[test]
fn q16_a_cancelled_job_stays_cancelled_over_a_restart() {
    let server = Server::answering(|_, _| Reply::Held(Box::new(Reply::status(200))));
    let mut daemon = Daemon::with_misbehave(&ConfigText::default().reaching(server.url()));
    daemon.kill();
    daemon.set_crash_points("settle.before_commit=kill");
    daemon.run();
    let job = daemon.enqueue("job", &get(&server), &[]);
    server.wait_for(1);
    daemon.ask(&["jobs", "cancel", &job.to_string()]);
    daemon.wait_for_exit();
    daemon.set_crash_points("");
    daemon.run();
    assert_eq!(daemon.wait(job), "cancelled");
    assert_eq!(server.received().len(), 1);
}

#[test]
fn q16_cancelling_a_finished_job_is_a_clear_error() {
    let daemon = Daemon::with_misbehave(&ConfigText::default());
    let job = daemon.enqueue("job", &echo(), &[]);
    assert_eq!(daemon.wait(job), "done");
    let before = daemon.job(job);
    let refused = daemon.ask(&["jobs", "cancel", &job.to_string()]);
    assert_eq!(refused.refusal(), "already_ended");
    assert!(refused.stderr.contains("has ended as done"), "{}", refused.stderr);
    assert_eq!(daemon.job(job), before);
    assert_eq!(daemon.ask(&["jobs", "cancel", "999"]).refusal(), "not_found");
}
