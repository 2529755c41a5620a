//! Q12: what a signal does to running jobs.

use rustix::process::Signal;
use serde_json::json;

use crate::{
    support::{ConfigText, Daemon, Reply, Server},
    told::{attempts, echo, ended, get},
};

fn holding() -> Server {
    Server::answering(|_, _| Reply::Held(Box::new(Reply::status(200))))
}

#[test]
fn q12_a_running_guest_finishes_and_no_further_job_is_leased() {
    let server = holding();
    let mut daemon =
        Daemon::with_misbehave(&ConfigText::default().reaching(server.url()).daemon("shutdown_grace = \"1m\""));
    let running = daemon.enqueue("job", &get(&server), &[]);
    server.wait_for(1);
    daemon.signal(Signal::TERM);
    daemon.wait_for_log("no further leases are taken");
    let late = daemon.enqueue("job", &echo(), &[]);
    server.let_go();
    assert!(daemon.wait_for_exit().success());
    let database = daemon.database();
    assert_eq!(database.one::<String>(&format!("SELECT state FROM ended_jobs WHERE id = {running}")), "done");
    assert_eq!(database.one::<i64>(&format!("SELECT attempt FROM jobs WHERE id = {late}")), 0);
    database.check();
    daemon.run();
    assert_eq!(daemon.wait(late), "done");
    assert_eq!(attempts(&daemon, running), ended([("done", true)]));
}

#[test]
fn q12_leases_are_extended_while_guests_finish() {
    let server = Server::accepting();
    let config = ConfigText::default()
        .reaching(server.url())
        .daemon("shutdown_grace = \"1m\"")
        .kind("visibility_timeout = \"1500ms\"")
        .kind("heartbeat = \"100ms\"");
    let mut daemon = Daemon::with_misbehave(&config);
    let step = json!({ "do": "step", "name": "send", "url": server.url(), "inside": { "sleep": { "ms": 4000 } } });
    let job = daemon.enqueue("job", &step, &[]);
    server.wait_for(1);
    assert!(daemon.terminate().success());
    daemon.run();
    assert_eq!(daemon.wait(job), "done");
    assert_eq!(attempts(&daemon, job), ended([("done", true)]));
}

#[test]
fn q12_after_the_grace_time_leases_are_released_and_attempts_given_back() {
    let server = holding();
    let config = ConfigText::default().reaching(server.url()).daemon("shutdown_grace = \"200ms\"").kind("attempts = 1");
    let mut daemon = Daemon::with_misbehave(&config);
    let job = daemon.enqueue("job", &get(&server), &[]);
    server.wait_for(1);
    assert!(daemon.terminate().success());
    let database = daemon.database();
    assert_eq!(database.one::<i64>("SELECT attempts_used FROM jobs"), 0);
    assert_eq!(database.one::<i64>("SELECT count(*) FROM jobs WHERE state = 2"), 0);
    database.check();
    daemon.run();
    // The only attempt that counts is still to come; the fencing token has gone on.
    server.wait_for(2);
    server.let_go();
    assert_eq!(daemon.wait(job), "done");
    assert_eq!(attempts(&daemon, job), ended([("released", false), ("done", true)]));
    assert_eq!(daemon.job(job)["attempts_used"], 1);
}

#[test]
fn q12_a_job_is_given_back_a_bounded_number_of_times_in_a_row() {
    let server = holding();
    let config = ConfigText::default()
        .reaching(server.url())
        .daemon("shutdown_grace = \"100ms\"")
        .queue("release_max = 2")
        .kind("attempts = 2");
    let mut daemon = Daemon::with_misbehave(&config);
    let job = daemon.enqueue("job", &get(&server), &[]);
    for round in 1..=4 {
        server.wait_for(round);
        assert!(daemon.terminate().success());
        daemon.run();
    }
    // The third release in a row counts; after it two more would be given back.
    let expected = ended([("released", false), ("released", false), ("released", true), ("released", false)]);
    let before = attempts(&daemon, job);
    assert_eq!(before.iter().map(|(_, counted)| *counted).collect::<Vec<_>>()[..4], [false, false, true, false]);
    assert_eq!((&before[0], &before[3]), (&expected[0], &expected[3]));
    server.wait_for(5);
    server.let_go();
    assert_eq!(daemon.wait(job), "done");
    assert_eq!(daemon.job(job)["attempts_used"], 2);
}

#[test]
fn q12_a_lease_that_is_being_taken_is_released_too() {
    let config =
        ConfigText::default().daemon("shutdown_grace = \"100ms\"").kind("deadline = \"1h\"").kind("attempts = 1");
    let mut daemon = Daemon::with_misbehave(&config);
    daemon.kill();
    // The lease is durable a moment before its attempt is in memory: the signal falls in between.
    daemon.set_crash_points("claim.leased=sleep(2000)");
    daemon.run();
    let job = daemon.enqueue("job", &json!({ "do": "loop" }), &[]);
    let leased = daemon.job(job)["state"] == "leased";
    assert!(daemon.terminate().success());
    let database = daemon.database();
    assert_eq!(database.one::<i64>("SELECT count(*) FROM jobs WHERE state = 2 OR attempts_used > 0"), 0, "{leased}");
    let released: i64 = database.one("SELECT count(*) FROM attempts WHERE ended_as = 'released' AND counted = 0");
    assert!(released >= i64::from(leased), "{released}");
    database.check();
}

#[test]
fn q12_a_second_signal_stops_at_once_and_corrupts_nothing() {
    let server = holding();
    let mut daemon =
        Daemon::with_misbehave(&ConfigText::default().reaching(server.url()).daemon("shutdown_grace = \"1m\""));
    let job = daemon.enqueue("job", &get(&server), &[]);
    server.wait_for(1);
    daemon.signal(Signal::TERM);
    daemon.wait_for_log("no further leases are taken");
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait_for_exit().code(), Some(130));
    daemon.database().check();
    daemon.run();
    server.wait_for(2);
    server.let_go();
    assert_eq!(daemon.wait(job), "done");
    assert_eq!(attempts(&daemon, job), ended([("daemon_stopped", true), ("done", true)]));
}

/// How many unclean stops in a row the only job was running at.
fn unclean_stops(daemon: &Daemon) -> i64 {
    daemon.database().one("SELECT unclean_stops FROM jobs")
}

/// Stops the daemon with two signals.
fn stop_at_once(daemon: &mut Daemon) {
    daemon.signal(Signal::TERM);
    daemon.signal(Signal::INT);
    assert_eq!(daemon.wait_for_exit().code(), Some(130));
}

#[test]
fn q12_stopping_at_once_over_and_over_blames_no_job() {
    let server = holding();
    let config = ConfigText::default().reaching(server.url()).daemon("shutdown_grace = \"1m\"").kind("attempts = 9");
    let mut daemon = Daemon::with_misbehave(&config);
    let job = daemon.enqueue("job", &get(&server), &[]);
    for round in 1..=4 {
        server.wait_for(round);
        stop_at_once(&mut daemon);
        assert_eq!(unclean_stops(&daemon), 0);
        daemon.run();
    }
    server.wait_for(5);
    assert_eq!(unclean_stops(&daemon), 0);
    server.let_go();
    assert_eq!(daemon.wait(job), "done");
    assert_eq!(daemon.job(job)["attempts_used"], 5, "each of them had its attempt");
    daemon.database().check();
}

#[test]
fn q12_the_note_of_a_stop_at_once_excuses_no_later_crash() {
    let server = holding();
    let config = ConfigText::default().reaching(server.url()).daemon("shutdown_grace = \"1m\"").kind("attempts = 9");
    let mut daemon = Daemon::with_misbehave(&config);
    let job = daemon.enqueue("job", &get(&server), &[]);
    server.wait_for(1);
    stop_at_once(&mut daemon);
    let note = daemon.data().join("stopped-at-once.json");
    let bytes = std::fs::read(&note).unwrap();
    daemon.run();
    server.wait_for(2);
    assert!(!note.exists(), "a note is taken away when it has done its work");
    // Should it stay all the same, it is of an attempt that has ended.
    daemon.kill();
    std::fs::write(&note, bytes).unwrap();
    daemon.run();
    server.wait_for(3);
    assert_eq!(unclean_stops(&daemon), 1);
    server.let_go();
    assert_eq!(daemon.wait(job), "done");
}

#[test]
fn q12_an_interrupt_stops_like_a_termination_and_the_second_signal_may_be_the_other_one() {
    let server = holding();
    let mut daemon =
        Daemon::with_misbehave(&ConfigText::default().reaching(server.url()).daemon("shutdown_grace = \"1m\""));
    let job = daemon.enqueue("job", &get(&server), &[]);
    server.wait_for(1);
    daemon.signal(Signal::INT);
    daemon.wait_for_log("no further leases are taken");
    server.let_go();
    assert!(daemon.wait_for_exit().success());
    daemon.run();
    assert_eq!(attempts(&daemon, job), ended([("done", true)]));
    let job = daemon.enqueue("job", &get(&server), &[]);
    server.wait_for(2);
    daemon.signal(Signal::INT);
    daemon.wait_for_log_lines(2, "no further leases are taken");
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait_for_exit().code(), Some(130));
    daemon.database().check();
    daemon.run();
    server.wait_for(3);
    server.let_go();
    assert_eq!(daemon.wait(job), "done");
}

#[test]
fn q12_a_release_in_the_middle_of_a_step_does_not_count_and_leaves_the_step_in_doubt() {
    let server = holding();
    let config = ConfigText::default().reaching(server.url()).daemon("shutdown_grace = \"200ms\"").kind("attempts = 1");
    let mut daemon = Daemon::with_misbehave(&config);
    let step = json!({ "do": "step", "name": "send", "url": server.url() });
    let job = daemon.enqueue("job", &step, &[]);
    server.wait_for(1);
    assert!(daemon.terminate().success());
    daemon.database().check();
    daemon.run();
    server.wait_for(2);
    server.let_go();
    assert_eq!(daemon.wait(job), "done");
    assert_eq!(attempts(&daemon, job), ended([("released", false), ("done", true)]));
    let shown = daemon.job(job);
    assert_eq!(shown["attempts"][0]["in_doubt_steps"], json!(["send"]));
    assert_eq!(daemon.result(job)["result"]["in_doubt"], true);
    let keys: Vec<_> =
        server.received().iter().map(|request| request.header("idempotency-key").map(str::to_owned)).collect();
    assert!(keys.len() == 2 && keys[0] == keys[1] && keys[0].is_some(), "{keys:?}");
}

#[test]
fn q12_a_verdict_that_can_not_be_written_does_not_keep_the_daemon_from_stopping() {
    let mut daemon =
        Daemon::with_misbehave(&ConfigText::default().daemon("shutdown_grace = \"200ms\"").kind("attempts = 1"));
    daemon.kill();
    daemon.set_crash_points("dead_letter.write=return");
    daemon.run();
    let job = daemon.enqueue("job", &json!({ "do": "panic" }), &[]);
    daemon.wait_for_log("a settlement could not be written");
    assert!(daemon.terminate().success());
    daemon.set_crash_points("");
    daemon.run();
    assert_eq!(daemon.wait(job), "dead");
    daemon.database().check();
}
