//! Q11: each way in which a dead letter can't be written. The verdict is held and written later; its handler does not run
//! again. The full disk has a file of its own.

use rusqlite::Connection;
use rustix::process::{Resource, Rlimit, prlimit};
use serde_json::json;

use crate::{
    support::{ConfigText, Daemon, Server},
    told::{UNWRITTEN, echo, ends, holding_the_first, send_and_break},
};

fn daemon_reaching(server: &Server) -> Daemon {
    let config = ConfigText::default()
        .reaching(server.url())
        .kind("attempts = 1")
        .kind("visibility_timeout = \"10m\"")
        .kind("deadline = \"5m\"");
    Daemon::with_misbehave(&config)
}

/// The job died of its one attempt, whose request was sent once.
#[track_caller]
fn assert_died_once(daemon: &Daemon, server: &Server, job: i64) {
    assert_eq!(daemon.wait(job), "dead");
    assert_eq!(ends(daemon, job), ["failed"]);
    assert_eq!(daemon.dead_letter(job)["cause"], "poison");
    assert_eq!(server.received().len(), 1);
    assert!(daemon.metric("leasehold_store_write_failures_total", &[]) >= 1.0);
    daemon.database().check();
}

#[test]
fn q11_a_dead_letter_that_a_constraint_refuses_is_held_until_it_can_be_written() {
    let server = holding_the_first(1);
    let daemon = daemon_reaching(&server);
    let other = Connection::open(daemon.data().join("leasehold.db")).unwrap();
    other
        .execute_batch(
            "CREATE TRIGGER refuses BEFORE INSERT ON dead_letters BEGIN SELECT RAISE(ABORT, 'no letters today'); END",
        )
        .unwrap();
    let job = daemon.enqueue("job", &send_and_break(&server), &[]);
    server.wait_for(1);
    server.let_go();
    daemon.wait_for_log_lines(3, UNWRITTEN);
    // The one transaction keeps nothing of it, and others are not held up.
    assert_eq!(daemon.job(job)["state"], "leased");
    assert_eq!(daemon.database().one::<i64>("SELECT count(*) FROM ended_jobs"), 0);
    let unrelated = daemon.enqueue("job", &echo(), &[]);
    assert_eq!(daemon.wait(unrelated), "done");
    other.execute_batch("DROP TRIGGER refuses").unwrap();
    assert_died_once(&daemon, &server, job);
}

/// Lets no write to any file through, as a failing disk does: each ends with an error that is not that of a full one.
fn fail_writes(daemon: &Daemon, fail: bool) {
    let limit = Rlimit { current: fail.then_some(0), maximum: None };
    prlimit(Some(daemon.process()), Resource::Fsize, limit).unwrap();
}

#[test]
fn q11_a_dead_letter_that_meets_an_io_error_is_held_until_it_can_be_written() {
    let server = holding_the_first(1);
    let daemon = daemon_reaching(&server);
    let before = daemon.enqueue("job", &echo(), &["--delay", "1h"]);
    let job = daemon.enqueue("job", &send_and_break(&server), &[]);
    server.wait_for(1);
    fail_writes(&daemon, true);
    let refused = daemon.ask(&["enqueue", "job", "--payload", "{}"]);
    assert_eq!(refused.refusal(), "database_io");
    assert!(refused.stderr.contains("see the system's log"), "{}", refused.stderr);
    server.let_go();
    daemon.wait_for_log_lines(2, UNWRITTEN);
    assert_eq!(daemon.job(job)["state"], "leased");
    assert!(daemon.readiness().is_err());
    fail_writes(&daemon, false);
    assert_died_once(&daemon, &server, job);
    assert!(daemon.readiness().is_ok());
    assert_eq!(daemon.job(before)["state"], json!("waiting"));
    let after = daemon.enqueue("job", &echo(), &[]);
    assert_eq!(daemon.wait(after), "done");
}
