//! Q10 and Q11: a job at its cap moves to the dead letters whole, and a move that fails loses nothing.

use serde_json::json;

use crate::{
    support::{ConfigText, Daemon, Reply, Server},
    told::{attempts, count, echo, ended, get},
};

const UNWRITTEN: &str = "a settlement could not be written";

/// Where the one job is, as counts of its places: the queue, the ended jobs, the open dead letters.
fn places(daemon: &Daemon) -> (i64, i64, i64) {
    let database = daemon.database();
    (
        database.one("SELECT count(*) FROM jobs"),
        database.one("SELECT count(*) FROM ended_jobs WHERE state = 'dead'"),
        database.one("SELECT count(*) FROM dead_letters WHERE state = 'open'"),
    )
}

#[test]
fn q10_at_the_cap_a_job_leaves_the_queue_for_the_dead_letters() {
    let daemon = Daemon::with_misbehave(&ConfigText::default().kind("attempts = 2"));
    let job = daemon.enqueue("job", &json!({ "do": "panic" }), &[]);
    assert_eq!(daemon.wait(job), "dead");
    assert_eq!(places(&daemon), (0, 1, 1));
    let letter = daemon.dead_letter(job);
    assert_eq!((&letter["cause"], &letter["attempt"]), (&json!("poison"), &json!(2)));
    assert_eq!(attempts(&daemon, job), ended([("failed", true), ("failed", true)]));
    assert_eq!(count(&daemon, "leasehold_dead_letters_total", &[("kind", "job")]), 1);
}

#[test]
fn q10_expiries_lead_to_the_dead_letters_too() {
    let server = Server::answering(|_, _| Reply::Held(Box::new(Reply::status(200))));
    let config = ConfigText::default()
        .kind("visibility_timeout = \"600ms\"")
        .kind("heartbeat = \"100ms\"")
        .kind("attempts = 2")
        .reaching(server.url());
    let mut daemon = Daemon::with_misbehave(&config);
    daemon.kill();
    daemon.set_crash_points("heartbeat.send=return");
    daemon.run();
    let job = daemon.enqueue("job", &get(&server), &[]);
    assert_eq!(daemon.wait(job), "dead");
    assert_eq!(attempts(&daemon, job), ended([("expired", true), ("expired", true)]));
    let letter = daemon.dead_letter(job);
    assert_eq!((&letter["cause"], &letter["error_class"]), (&json!("exhausted"), &json!("lease.expired")));
}

#[test]
fn q10_a_kill_at_any_commit_leaves_the_job_in_exactly_one_place() {
    let mut points = vec!["settle.before_commit=kill".to_owned()];
    for point in ["writer.before_commit", "writer.after_commit"] {
        points.extend((4..=7).map(|times| format!("{point}=kill@{times}")));
    }
    for point in points {
        let mut daemon = Daemon::with_misbehave(&ConfigText::default().kind("attempts = 1"));
        daemon.kill();
        daemon.set_crash_points(&point);
        let arguments = ["enqueue", "job", "--payload", r#"{"do":"panic"}"#, "--key", "order-1"];
        // A start commits as well, and may be what the kill hits.
        if daemon.run_or_end() && daemon.ask(&arguments).status == 0 {
            // Ends with the job's end or with the daemon's.
            daemon.ask(&["jobs", "wait", "1", "--timeout", "60s"]);
        }
        daemon.kill();
        daemon.set_crash_points("");
        daemon.run();
        daemon.database().check();
        let (live, dead, letters) = places(&daemon);
        assert!(live + dead <= 1 && letters == dead, "{point}: {live} live, {dead} dead, {letters} letters");
        let job = daemon.ask(&arguments).json()["id"].as_i64().unwrap();
        assert_eq!(daemon.wait(job), "dead", "{point}");
        assert_eq!(places(&daemon), (0, 1, 1), "{point}");
        assert_eq!(daemon.job(job)["attempts_used"], 1, "{point}");
    }
}

/// Sends one request to the server and dies at its first attempt.
fn refused(server: &Server) -> serde_json::Value {
    json!({ "do": "step", "name": "send", "url": server.url(), "then": "rejected" })
}

#[test]
fn q11_a_dead_letter_that_can_not_be_written_is_retried_without_running_the_handler() {
    let server = Server::accepting();
    let mut daemon = Daemon::with_misbehave(&ConfigText::default().reaching(server.url()));
    daemon.kill();
    daemon.set_crash_points("dead_letter.write=6*return->off");
    daemon.run();
    let job = daemon.enqueue("job", &refused(&server), &[]);
    assert_eq!(daemon.wait(job), "dead");
    assert_eq!(server.received().len(), 1);
    assert_eq!(attempts(&daemon, job), ended([("failed", true)]));
    assert_eq!(daemon.dead_letter(job)["cause"], "rejected");
    // A write that fails in one transaction with others is run once more before it is said to have failed, so the six
    // make three failures at least.
    let failures = count(&daemon, "leasehold_store_write_failures_total", &[]);
    assert!((3..=6).contains(&failures), "{failures}");
    assert_eq!(i64::try_from(daemon.log().matches(UNWRITTEN).count()).unwrap(), failures);
    daemon.database().check();
}

#[test]
fn q11_a_job_whose_dead_letter_can_not_be_written_stays_in_the_queue() {
    let server = Server::accepting();
    let config = ConfigText::default().reaching(server.url()).kind("attempts = 1");
    let mut daemon = Daemon::with_misbehave(&config);
    daemon.kill();
    daemon.set_crash_points("dead_letter.write=return");
    daemon.run();
    let job =
        daemon.enqueue("job", &json!({ "do": "step", "name": "send", "url": server.url(), "then": "retry" }), &[]);
    daemon.wait_for_log_lines(3, UNWRITTEN);
    assert_eq!(daemon.job(job)["state"], "leased");
    assert_eq!(places(&daemon), (1, 0, 0));
    daemon.kill();
    daemon.set_crash_points("");
    daemon.run();
    // The next start finds a job whose attempts are used up: it dies and does not run.
    assert_eq!(daemon.wait(job), "dead");
    assert_eq!(server.received().len(), 1);
    assert_eq!(places(&daemon), (0, 1, 1));
}

#[test]
fn q11_a_held_verdict_outlives_its_lease() {
    // The guest asks to die at its first attempt of three, and its lease runs out long before that can be written.
    let config = ConfigText::default()
        .kind("deadline = \"100ms\"")
        .kind("visibility_timeout = \"200ms\"")
        .kind("heartbeat = \"50ms\"");
    let mut daemon = Daemon::with_misbehave(&config);
    daemon.kill();
    daemon.set_crash_points("heartbeat.send=return;dead_letter.write=5*return->off");
    daemon.run();
    let job = daemon.enqueue("job", &json!({ "do": "fail", "as": "rejected", "class": "downstream.refused" }), &[]);
    assert_eq!(daemon.wait(job), "dead");
    assert_eq!(attempts(&daemon, job), ended([("failed", true)]));
    assert_eq!(daemon.dead_letter(job)["cause"], "rejected");
}

#[test]
fn q11_a_dead_letter_that_can_not_be_written_holds_up_no_other_lease() {
    let server = Server::answering(|_, number| match number {
        0 | 1 => Reply::Held(Box::new(Reply::status(200))),
        _ => Reply::status(200),
    });
    let short = "visibility_timeout = \"1500ms\"\nheartbeat = \"100ms\"\nbackoff = { min = \"10ms\", max = \"50ms\" }";
    let config = ConfigText::default()
        .reaching(server.url())
        .another_kind("last", &format!("attempts = 1\n{short}"))
        .another_kind("first", &format!("attempts = 3\n{short}"));
    let mut daemon = Daemon::with_misbehave(&config);
    daemon.kill();
    daemon
        .set_crash_points("heartbeat.send=2*return->off;lease.keep_running_when_lost=return;dead_letter.write=return");
    daemon.run();
    let stuck = daemon.enqueue("last", &get(&server), &[]);
    server.wait_for(1);
    let other = daemon.enqueue("first", &get(&server), &[]);
    daemon.wait_for_log(UNWRITTEN);
    assert_eq!(daemon.wait(other), "done");
    assert_eq!(attempts(&daemon, other), ended([("expired", true), ("done", true)]));
    assert_eq!(daemon.job(stuck)["state"], "leased");
    let unrelated = daemon.enqueue("job", &echo(), &[]);
    assert_eq!(daemon.wait(unrelated), "done");
}
