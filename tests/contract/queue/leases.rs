//! Q3 to Q7: one live lease a job, attempts, heartbeats, expiry and fencing.

use std::collections::HashSet;

use serde_json::json;

use crate::{
    support::{ConfigText, Daemon, Reply, Server},
    told::{attempts, count, echo, ended, enqueue_file, get, send},
};

/// Leases that run out quickly, below deadlines that are far.
fn short_leases() -> ConfigText {
    ConfigText::default().kind("visibility_timeout = \"1500ms\"").kind("heartbeat = \"100ms\"")
}

/// A server that holds its first answer back.
fn holding_the_first() -> Server {
    Server::answering(|_, number| match number {
        0 => Reply::Held(Box::new(Reply::status(200))),
        _ => Reply::status(200),
    })
}

#[test]
fn q3_each_of_many_jobs_is_leased_once_and_runs_once() {
    let server = Server::accepting();
    let daemon = Daemon::with_misbehave(&ConfigText::default().reaching(server.url()));
    let names: Vec<_> = (0..200).map(|number| format!("job-{number}")).collect();
    let jobs = enqueue_file(&daemon, names.iter().map(|name| json!({ "kind": "job", "payload": send(&server, name) })));
    for job in jobs {
        assert_eq!(daemon.wait(job), "done");
    }
    let received = server.received();
    let distinct: HashSet<_> = received.iter().map(|request| request.body.as_str()).collect();
    assert_eq!((received.len(), distinct.len()), (names.len(), names.len()));
    let database = daemon.database();
    assert_eq!(database.one::<i64>("SELECT count(*) FROM attempts"), 200);
    database.check();
}

#[test]
fn q4_an_attempt_counts_when_the_daemon_dies_right_after_its_lease() {
    let mut daemon = Daemon::with_misbehave(&ConfigText::default());
    daemon.kill();
    daemon.set_crash_points("claim.leased=kill");
    daemon.run();
    let job = daemon.enqueue("job", &echo(), &[]);
    daemon.wait_for_exit();
    daemon.set_crash_points("");
    daemon.run();
    assert_eq!(daemon.wait(job), "done");
    assert_eq!(attempts(&daemon, job), ended([("daemon_stopped", true), ("done", true)]));
    assert_eq!(daemon.job(job)["attempts_used"], 2);
}

#[test]
fn q4_a_job_that_always_takes_the_daemon_along_is_not_leased_for_ever() {
    let mut daemon = Daemon::with_misbehave(&ConfigText::default().kind("attempts = 2"));
    let job = daemon.enqueue("job", &echo(), &["--delay", "1s"]);
    daemon.kill();
    daemon.set_crash_points("claim.leased=kill");
    for _ in 0..2 {
        // The job may be due before the daemon says that it is ready.
        daemon.spawn();
        daemon.wait_for_exit();
    }
    // The point is still armed: a third lease would take this start along too.
    daemon.run();
    assert_eq!(daemon.wait(job), "dead");
    assert_eq!(daemon.job(job)["attempts_used"], 2);
    daemon.database().check();
}

#[test]
fn q5_a_guest_that_sleeps_far_beyond_the_visibility_timeout_keeps_its_lease() {
    let daemon = Daemon::with_misbehave(&short_leases());
    let job = daemon.enqueue("job", &json!({ "do": "sleep", "ms": 4000 }), &[]);
    assert_eq!(daemon.wait(job), "done");
    assert_eq!(attempts(&daemon, job), ended([("done", true)]));
    assert_eq!(count(&daemon, "leasehold_lease_expiries_total", &[]), 0);
}

#[test]
fn q5_a_guest_that_spins_is_covered_until_its_deadline_and_stopped_there() {
    let daemon = Daemon::with_misbehave(&short_leases().kind("deadline = \"4s\"").kind("attempts = 1"));
    let job = daemon.enqueue("job", &json!({ "do": "loop" }), &[]);
    assert_eq!(daemon.wait(job), "dead");
    let letter = daemon.dead_letter(job);
    assert_eq!((&letter["error_class"], &letter["cause"]), (&json!("limit.time"), &json!("poison")));
    assert_eq!(attempts(&daemon, job), ended([("failed", true)]));
    assert_eq!(count(&daemon, "leasehold_lease_expiries_total", &[]), 0);
}

#[test]
fn q6_a_lease_without_heartbeats_runs_out_and_the_job_is_visible_again() {
    let server = holding_the_first();
    let config = short_leases().reaching(server.url());
    let mut daemon = Daemon::with_misbehave(&config);
    daemon.kill();
    daemon.set_crash_points("heartbeat.send=1*return->off;lease.keep_running_when_lost=return");
    daemon.run();
    let job = daemon.enqueue("job", &get(&server), &[]);
    // The second request is the second attempt's: nothing but the expiry of the first lease brings it.
    server.wait_for(2);
    assert_eq!(daemon.wait(job), "done");
    assert_eq!(attempts(&daemon, job), ended([("expired", true), ("done", true)]));
    assert_eq!(daemon.job(job)["attempts"][0]["error_class"], "lease.expired");
    assert_eq!(count(&daemon, "leasehold_lease_expiries_total", &[("kind", "job")]), 1);
    // At the visibility timeout: not before it, and long before the reaper would look by itself.
    let waited_ms: i64 = daemon.database().one("SELECT max(leased_at) - min(leased_at) FROM attempts");
    assert!((1_500..30_000).contains(&waited_ms), "{waited_ms} ms");
}

#[test]
fn q7_a_late_completion_changes_nothing_and_is_counted() {
    let server = holding_the_first();
    let mut daemon = Daemon::with_misbehave(&short_leases().reaching(server.url()));
    daemon.kill();
    daemon.set_crash_points("heartbeat.send=1*return->off;lease.keep_running_when_lost=return");
    daemon.run();
    let job = daemon.enqueue("job", &get(&server), &[]);
    server.wait_for(2);
    assert_eq!(daemon.wait(job), "done");
    let before = daemon.job(job);
    assert_eq!(count(&daemon, "leasehold_stale_settlements_total", &[]), 0);
    server.let_go();
    daemon.wait_for_log("a late result changed nothing");
    assert_eq!(daemon.job(job), before);
    assert_eq!(count(&daemon, "leasehold_stale_settlements_total", &[]), 1);
    daemon.database().check();
}

#[test]
fn q7_a_late_completion_does_not_touch_the_attempt_that_runs_now() {
    let server = Server::answering(|_, _| Reply::Held(Box::new(Reply::status(200))));
    // The heartbeats of the first attempt alone are lost; the second one keeps its lease.
    let mut daemon = Daemon::with_misbehave(&short_leases().reaching(server.url()));
    daemon.kill();
    daemon.set_crash_points("heartbeat.send=1*return->off;lease.keep_running_when_lost=return");
    daemon.run();
    let job = daemon.enqueue("job", &get(&server), &[]);
    server.wait_for(1);
    server.wait_for(2);
    let second = daemon.job(job);
    assert_eq!(second["state"], "leased");
    server.let_go();
    daemon.wait_for_log("a late result changed nothing");
    assert_eq!(daemon.wait(job), "done");
    assert_eq!(attempts(&daemon, job), ended([("expired", true), ("done", true)]));
}

#[test]
fn q7_a_guest_whose_lease_is_lost_is_stopped_in_its_host_call() {
    let server = holding_the_first();
    let mut daemon = Daemon::with_misbehave(&short_leases().reaching(server.url()));
    daemon.kill();
    daemon.set_crash_points("heartbeat.send=1*return->off");
    daemon.run();
    let job = daemon.enqueue("job", &get(&server), &[]);
    assert_eq!(daemon.wait(job), "done");
    daemon.wait_for_log("an attempt's lease is lost; its guest is stopped");
    // The first answer is still held back: a daemon that stops has no guest left that would wait for it.
    assert_eq!(count(&daemon, "leasehold_attempts_running", &[]), 0);
    assert_eq!(attempts(&daemon, job), ended([("expired", true), ("done", true)]));
}
