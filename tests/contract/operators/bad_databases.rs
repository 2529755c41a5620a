//! Files in the place of the database that can't be it: said in one line before anything is changed.

use std::{collections::BTreeMap, fs, path::Path};

use rusqlite::Connection;
use serde_json::json;

use crate::{
    letters::config,
    support::{ConfigText, Daemon},
};

/// Every file of a directory with its bytes, but the lock, which tells its owner.
fn files(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(directory).unwrap().map(Result::unwrap);
    let files = entries.filter(|entry| entry.file_type().unwrap().is_file() && entry.file_name() != "leasehold.lock");
    files.map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap())).collect()
}

/// The daemon does not start, says why in one line, and leaves every file as it was.
#[track_caller]
fn assert_does_not_start(daemon: &mut Daemon, code: &str, why: &str) {
    let before = files(&daemon.data());
    let seen = daemon.log().lines().count();
    daemon.spawn();
    daemon.wait_for_log(&format!("[{code}]"));
    assert_eq!(daemon.wait_for_exit().code(), Some(1), "{}", daemon.log());
    let log = daemon.log();
    let said: Vec<_> = log.lines().skip(seen).collect();
    let [line] = said[..] else { panic!("not one line: {said:#?}") };
    assert!(line.starts_with("error: ") && line.contains(why) && line.ends_with(&format!("[{code}]")), "{line}");
    assert_eq!(files(&daemon.data()).keys().collect::<Vec<_>>(), before.keys().collect::<Vec<_>>());
    assert!(files(&daemon.data()) == before, "a file was changed");
}

#[test]
fn q13_a_second_daemon_on_the_same_database_is_refused_and_the_first_goes_on() {
    let mut first = Daemon::with_misbehave(&config());
    let data_dir = format!("data_dir = {}", json!(first.data().to_str().unwrap()));
    let mut second = Daemon::prepare(&ConfigText::default().daemon(&data_dir));
    second.spawn();
    second.wait_for_log("[database_locked]");
    assert_eq!(second.wait_for_exit().code(), Some(1));
    let log = second.log();
    assert_eq!(log.lines().count(), 1, "{log}");
    assert!(log.contains("owned by another daemon (process ") && log.ends_with("[database_locked]"), "{log}");
    let job = first.enqueue("job", &json!({ "do": "echo" }), &[]);
    assert_eq!(first.wait(job), "done");
    // The lock is the process's, so that a kill frees it.
    first.kill();
    second.spawn();
    second.wait_for_log("ready socket");
    assert_eq!(first.job(job)["state"], "done");
}

#[test]
fn o6_a_database_of_a_newer_schema_is_left_as_it_is() {
    let mut daemon = Daemon::start(&config());
    let job = daemon.enqueue("job", &json!({ "do": "echo" }), &[]);
    daemon.terminate();
    let set_version = |version: i64| {
        let connection = Connection::open(daemon.data().join("leasehold.db")).unwrap();
        connection.pragma_update(None, "user_version", version).unwrap();
        // Out of the log and into the file, so that the two can be compared as bytes.
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    };
    let connection = Connection::open(daemon.data().join("leasehold.db")).unwrap();
    let known: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap();
    drop(connection);
    set_version(known + 1);
    assert_does_not_start(&mut daemon, "newer_schema", &format!("has schema {}", known + 1));
    let connection = Connection::open(daemon.data().join("leasehold.db")).unwrap();
    connection.pragma_update(None, "user_version", known).unwrap();
    drop(connection);
    daemon.run();
    assert_eq!(daemon.job(job)["state"], "ready");
}

#[test]
fn o6_a_file_that_is_no_database_of_leasehold_is_left_as_it_is_and_gets_no_key() {
    let mut daemon = Daemon::prepare(&config());
    let path = daemon.data().join("leasehold.db");
    fs::write(&path, "my notes, which are older than any queue\n".repeat(100)).unwrap();
    assert_does_not_start(&mut daemon, "not_a_database", "is not an SQLite database");
    fs::remove_file(&path).unwrap();
    let connection = Connection::open(&path).unwrap();
    connection.execute_batch("CREATE TABLE orders (id INTEGER PRIMARY KEY); INSERT INTO orders VALUES (1);").unwrap();
    drop(connection);
    assert_does_not_start(&mut daemon, "foreign_database", "a database of another program");
    fs::remove_file(&path).unwrap();
    daemon.run();
    daemon.enqueue("job", &json!({ "do": "echo" }), &[]);
}

#[test]
fn o6_what_stands_in_the_place_of_the_data_directory_or_the_socket_is_left_as_it_is() {
    let mut daemon = Daemon::prepare(&config().daemon("data_dir = \"notes\""));
    fs::write(daemon.directory().join("notes"), "my notes").unwrap();
    daemon.spawn();
    daemon.wait_for_log("[data_directory]");
    assert_eq!(daemon.wait_for_exit().code(), Some(1));
    assert_eq!(fs::read_to_string(daemon.directory().join("notes")).unwrap(), "my notes");

    let mut daemon = Daemon::prepare(&config().daemon("socket = \"notes\""));
    fs::write(daemon.directory().join("notes"), "my notes").unwrap();
    daemon.spawn();
    daemon.wait_for_log("no socket is in its place");
    assert_eq!(daemon.wait_for_exit().code(), Some(1));
    assert_eq!(fs::read_to_string(daemon.directory().join("notes")).unwrap(), "my notes");
}
