//! Q13 and Q14: what a restart finds, who owns a database, and the queue's clock.

use std::{
    io::{BufRead as _, BufReader},
    process::Stdio,
    time::Duration,
};

use rusqlite::Connection;
use serde_json::json;

use crate::{
    support::{ConfigText, Daemon, Reply, Server},
    told::{attempts, echo, ended, get},
};

#[test]
fn q13_leases_of_a_killed_daemon_are_given_back_at_once_and_their_attempts_count() {
    let server = Server::answering(|_, number| match number {
        0 | 1 => Reply::Held(Box::new(Reply::status(200))),
        _ => Reply::status(200),
    });
    // By time alone these leases would hold for a day.
    let config =
        ConfigText::default().reaching(server.url()).kind("visibility_timeout = \"1d\"").kind("heartbeat = \"1h\"");
    let mut daemon = Daemon::with_misbehave(&config);
    let jobs = [(); 2].map(|()| daemon.enqueue("job", &get(&server), &[]));
    server.wait_for(2);
    daemon.kill_and_run();
    for job in jobs {
        assert_eq!(daemon.wait(job), "done");
        assert_eq!(attempts(&daemon, job), ended([("daemon_stopped", true), ("done", true)]));
        assert_eq!(daemon.job(job)["attempts_used"], 2);
    }
    daemon.database().check();
}

#[test]
fn q13_a_second_daemon_on_the_same_database_is_refused_and_changes_nothing() {
    let server = Server::answering(|_, _| Reply::Held(Box::new(Reply::status(200))));
    let daemon = Daemon::with_misbehave(&ConfigText::default().reaching(server.url()));
    let job = daemon.enqueue("job", &get(&server), &[]);
    server.wait_for(1);
    let mut second = daemon.command(&["serve"]).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut said = String::new();
    for line in BufReader::new(second.stderr.take().unwrap()).lines() {
        said += &line.unwrap();
        if said.contains("ready socket") {
            second.kill().unwrap();
        }
    }
    assert_eq!(second.wait().unwrap().code(), Some(1), "{said}");
    assert!(said.contains("database_locked") && said.contains("is owned by another daemon (process "), "{said}");
    server.let_go();
    assert_eq!(daemon.wait(job), "done");
    assert_eq!(attempts(&daemon, job), ended([("done", true)]));
}

#[test]
fn q14_a_restart_does_not_turn_the_queues_clock_back() {
    let mut daemon = Daemon::with_misbehave(&ConfigText::default());
    let before = daemon.enqueue("job", &echo(), &[]);
    assert_eq!(daemon.wait(before), "done");
    daemon.kill();
    let path = daemon.data().join("leasehold.db");
    let database = Connection::open(&path).unwrap();
    // The daemon has kept its time, to within the second that it may lag.
    let lag_ms: i64 = database
        .query_row(
            "SELECT (SELECT max(enqueued_at) FROM ended_jobs) - (SELECT value FROM meta WHERE name = 'queue_clock_ms')",
            [],
            |row| row.get(0),
        )
        .unwrap();
    assert!(lag_ms <= 1_000, "{lag_ms} ms");
    // As if the wall clock had been a day ahead before the restart.
    let kept_ms: i64 = database
        .query_row(
            "UPDATE meta SET value = value + 86400000 WHERE name = 'queue_clock_ms' RETURNING value",
            [],
            |row| row.get(0),
        )
        .unwrap();
    database.close().unwrap();
    daemon.run();
    let after = daemon.enqueue("job", &echo(), &[]);
    assert_eq!(daemon.wait(after), "done");
    let enqueued_at_ms: i64 = daemon.database().one(&format!("SELECT enqueued_at FROM ended_jobs WHERE id = {after}"));
    assert!((kept_ms..kept_ms + 600_000).contains(&enqueued_at_ms), "{enqueued_at_ms} after {kept_ms}");
}

#[test]
fn q14_a_delay_goes_on_where_it_was_when_the_wall_clock_was_ahead_before_a_restart() {
    let mut daemon = Daemon::with_misbehave(&ConfigText::default());
    let job = daemon.enqueue("job", &echo(), &["--delay", "1h"]);
    daemon.kill();
    let database = Connection::open(daemon.data().join("leasehold.db")).unwrap();
    // More than the delay has passed on the queue's clock, whatever the wall says.
    let changed =
        database.execute("UPDATE meta SET value = value + 7200000 WHERE name = 'queue_clock_ms'", []).unwrap();
    assert_eq!(changed, 1);
    database.close().unwrap();
    daemon.run();
    assert_eq!(daemon.wait(job), "done");
    assert_eq!(daemon.job(job)["attempts"].as_array().unwrap().len(), 1);
    assert_eq!(daemon.job(job)["state"], json!("done"));
}

#[test]
fn q14_a_daemon_that_stood_still_keeps_no_lease_that_ran_out_and_starts_nothing_twice() {
    let server = Server::answering(|_, number| match number {
        0 => Reply::Held(Box::new(Reply::status(200))),
        _ => Reply::status(200),
    });
    let config =
        ConfigText::default().reaching(server.url()).kind("visibility_timeout = \"1s\"").kind("heartbeat = \"200ms\"");
    let daemon = Daemon::with_misbehave(&config);
    let job = daemon.enqueue("job", &get(&server), &[]);
    server.wait_for(1);
    daemon.freeze(Duration::from_secs(3));
    assert_eq!(daemon.wait(job), "done");
    assert_eq!(attempts(&daemon, job), ended([("expired", true), ("done", true)]));
    assert_eq!(server.received().len(), 2);
    daemon.database().check();
}
