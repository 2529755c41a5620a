//! O6: files that another program has locked.

use std::fs::OpenOptions;

use rusqlite::Connection;
use rustix::fs::{FlockOperation, flock};
use serde_json::json;

use crate::{
    support::{ConfigText, Daemon},
    told::{echo, ends, get, holding_the_first},
};

#[test]
fn o6_a_lock_that_another_process_holds_is_told_with_that_process() {
    let mut daemon = Daemon::start(&ConfigText::default());
    daemon.terminate();
    let path = daemon.data().join("leasehold.lock");
    let lock = OpenOptions::new().write(true).truncate(true).open(&path).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    // As a daemon does that holds it.
    std::fs::write(&path, format!("{}\n", std::process::id())).unwrap();
    let seen = daemon.log().lines().count();
    daemon.spawn();
    assert_eq!(daemon.wait_for_exit().code(), Some(1));
    let log = daemon.log();
    let said: Vec<_> = log.lines().skip(seen).collect();
    let [line] = said[..] else { panic!("not one line: {said:#?}") };
    assert!(
        line.contains(&format!("(process {})", std::process::id())) && line.ends_with("[database_locked]"),
        "{line}"
    );
    drop(lock);
    daemon.run();
}

#[test]
fn o6_a_database_that_another_program_locks_for_a_while_loses_no_lease_and_goes_on() {
    let server = holding_the_first(2);
    let config = ConfigText::default()
        .reaching(server.url())
        .kind("visibility_timeout = \"2m\"")
        .kind("heartbeat = \"200ms\"")
        .kind("deadline = \"5m\"");
    let daemon = Daemon::with_misbehave(&config);
    let ends_meanwhile = daemon.enqueue("job", &get(&server), &[]);
    server.wait_for(1);
    let runs_on = daemon.enqueue("job", &json!({ "do": "step", "name": "send", "url": server.url() }), &[]);
    server.wait_for(2);

    let other = Connection::open(daemon.data().join("leasehold.db")).unwrap();
    other.busy_timeout(std::time::Duration::from_secs(30)).unwrap();
    other.execute_batch("BEGIN EXCLUSIVE").unwrap();
    // They are answered with a code when SQLite gives up waiting for the lock: those that wait together, together.
    let refused: Vec<_> = std::thread::scope(|scope| {
        let asks: Vec<_> = (0..6).map(|_| scope.spawn(|| daemon.ask(&["enqueue", "job", "--payload", "{}"]))).collect();
        asks.into_iter().map(|ask| ask.join().unwrap()).collect()
    });
    for answer in refused {
        assert_eq!(answer.refusal(), "database_busy");
        assert!(answer.stderr.contains("another program holds its lock"), "{}", answer.stderr);
    }
    let refusals = daemon.log().matches("a transaction could not begin").count();
    assert!(refusals <= 3, "{refusals} transactions for calls that waited together");
    // Both guests come to a write while the lock is held.
    server.let_go();
    assert_eq!(daemon.job(ends_meanwhile)["state"], "leased", "readers go on");
    other.execute_batch("ROLLBACK").unwrap();
    assert_eq!((daemon.wait(ends_meanwhile), daemon.wait(runs_on)), ("done".into(), "done".into()));
    assert_eq!(
        (ends(&daemon, ends_meanwhile), ends(&daemon, runs_on)),
        (vec!["done".to_owned()], vec!["done".to_owned()])
    );
    assert_eq!(server.received().len(), 2);
    let after = daemon.enqueue("job", &echo(), &[]);
    assert_eq!(daemon.wait(after), "done");
    assert!(daemon.metric("leasehold_lease_expiries_total", &[]).abs() < 0.1);
    daemon.database().check();
}
