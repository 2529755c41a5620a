//! O6: a database whose bytes are not what was written. It is told, nothing more is written to it, and what can still be
//! read is.

use std::{
    fs::{self, OpenOptions},
    os::unix::fs::FileExt as _,
    path::PathBuf,
};

use rusqlite::{Connection, OpenFlags};

use crate::{
    support::{ConfigText, Daemon},
    told::{echo, get, holding_the_first, why_it_does_not_start},
};

const STOPPED: &str = "no further jobs are leased and nothing is written any more";

fn database(daemon: &Daemon) -> PathBuf {
    daemon.data().join("leasehold.db")
}

fn log_of_writes(daemon: &Daemon) -> PathBuf {
    daemon.data().join("leasehold.db-wal")
}

/// Overwrites bytes of a file.
fn overwrite(path: &PathBuf, at: u64, length: usize) {
    let file = OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(&vec![0xff; length], at).unwrap();
}

/// Overwrites every page of that kind of a table, as a disk does that returns other bytes than it took.
fn damage_pages(daemon: &Daemon, table: &str, page_type: &str) {
    let connection = Connection::open_with_flags(database(daemon), OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    let size: i64 = connection.query_row("PRAGMA page_size", [], |row| row.get(0)).unwrap();
    let mut statement =
        connection.prepare("SELECT pageno FROM dbstat WHERE name = ?1 AND pagetype = ?2 ORDER BY pageno").unwrap();
    let pages = statement.query_map([table, page_type], |row| row.get::<_, i64>(0)).unwrap();
    let pages: Vec<i64> = pages.collect::<Result<_, _>>().unwrap();
    assert!(!pages.is_empty(), "{table} has no such page");
    for page in pages {
        let at = u64::try_from((page - 1) * size).unwrap();
        overwrite(&database(daemon), at, usize::try_from(size).unwrap());
    }
}

/// A daemon that has stopped with jobs of a paused kind in its queue, one that is done, and copies of its files.
fn stopped_with_jobs() -> (Daemon, Vec<i64>, i64, Vec<u8>) {
    let mut daemon = Daemon::with_misbehave(&ConfigText::default().another_kind("later", ""));
    daemon.ask(&["kinds", "pause", "later"]);
    let waiting = (0..200).map(|_| daemon.enqueue("later", &echo(), &[])).collect();
    let done = daemon.enqueue("job", &echo(), &[]);
    assert_eq!(daemon.wait(done), "done");
    assert!(daemon.terminate().success());
    let sound = fs::read(database(&daemon)).unwrap();
    (daemon, waiting, done, sound)
}

#[test]
fn o6_damage_that_is_found_at_work_stops_all_writing_and_reads_go_on() {
    let (mut daemon, waiting, done, sound) = stopped_with_jobs();
    damage_pages(&daemon, "jobs", "leaf");
    let damaged = fs::read(database(&daemon)).unwrap();
    for start in 1..=2 {
        daemon.run();
        daemon.ask(&["kinds", "resume", "later"]);
        daemon.wait_for_log_lines(start, STOPPED);
        let told = daemon.log().lines().rfind(|line| line.contains(STOPPED)).unwrap().to_owned();
        assert!(told.contains("integrity_check") && told.contains("restore the backup"), "{told}");
        let refused = daemon.ask(&["enqueue", "job", "--payload", "{}"]);
        assert_eq!(refused.refusal(), "database_corrupt");
        assert!(refused.stderr.contains("restore the backup"), "{}", refused.stderr);
        assert!(daemon.readiness().unwrap_err().contains("nothing can be written"));
        assert!((daemon.metric("leasehold_database_damaged", &[]) - 1.0).abs() < 0.1);
        // What is not damaged is still there to be read.
        assert_eq!(daemon.job(done)["state"], "done");
        assert_eq!(daemon.ask(&["handlers", "ls"]).status, 0);
        assert!(daemon.terminate().success());
        assert!(fs::read(database(&daemon)).unwrap() == damaged, "the damaged file was written to");
    }
    assert_eq!(daemon.log().matches(STOPPED).count(), 2, "told once a start");
    // The log of writes that the damaged file's daemon left belongs to that file.
    let _ = fs::remove_file(log_of_writes(&daemon));
    fs::write(database(&daemon), sound).unwrap();
    daemon.run();
    daemon.ask(&["kinds", "resume", "later"]);
    for job in waiting {
        assert_eq!(daemon.wait(job), "done");
    }
    assert!(daemon.readiness().is_ok());
    daemon.database().check();
}

#[test]
fn o6_damage_that_is_found_by_a_reader_stops_all_writing() {
    let (mut daemon, _, done, _) = stopped_with_jobs();
    damage_pages(&daemon, "ended_jobs", "leaf");
    daemon.run();
    assert_eq!(daemon.ask(&["jobs", "show", &done.to_string()]).refusal(), "database_corrupt");
    daemon.wait_for_log(STOPPED);
    assert_eq!(daemon.ask(&["enqueue", "job", "--payload", "{}"]).refusal(), "database_corrupt");
    assert!(daemon.readiness().is_err());
    assert_eq!(daemon.ask(&["kinds", "ls"]).status, 0);
}

#[test]
fn o6_damage_under_a_lease_of_the_process_before_lets_the_daemon_serve_reads() {
    let server = holding_the_first(1);
    let config = ConfigText::default().reaching(server.url());
    let mut daemon = Daemon::with_misbehave(&config);
    let done = daemon.enqueue("job", &echo(), &[]);
    assert_eq!(daemon.wait(done), "done");
    for _ in 0..100 {
        daemon.enqueue("job", &echo(), &["--delay", "1h"]);
    }
    daemon.enqueue("job", &get(&server), &[]);
    server.wait_for(1);
    daemon.kill();
    // The log of writes goes into the file first, so that what is damaged there is what is read.
    Connection::open(database(&daemon)).unwrap().query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    damage_pages(&daemon, "jobs", "leaf");
    daemon.run();
    daemon.wait_for_log(STOPPED);
    assert!(daemon.readiness().is_err());
    assert_eq!(daemon.job(done)["state"], "done");
}

/// The daemon does not start, says why in one line, and leaves the database as it is.
#[track_caller]
fn assert_does_not_start(daemon: &mut Daemon, code: &str) {
    let before = fs::read(database(daemon)).unwrap();
    let line = why_it_does_not_start(daemon);
    assert!(line.ends_with(&format!("[{code}]")), "{line}");
    assert!(line.contains("restore the backup"), "{line}");
    assert!(fs::read(database(daemon)).unwrap() == before, "the damaged file was written to");
}

#[test]
fn o6_a_database_with_a_damaged_header_or_schema_is_left_as_it_is() {
    let (mut daemon, waiting, _, sound) = stopped_with_jobs();
    overwrite(&database(&daemon), 0, 16);
    assert_does_not_start(&mut daemon, "not_a_database");
    fs::write(database(&daemon), &sound).unwrap();
    // The first page's tree, which holds the schema.
    overwrite(&database(&daemon), 100, 200);
    assert_does_not_start(&mut daemon, "database_corrupt");
    fs::write(database(&daemon), &sound[..sound.len() / 2]).unwrap();
    daemon.spawn();
    // Half a database is told at the start or at the first use of what is missing, and is not written to.
    daemon.wait_for_log_lines(2, "database_corrupt");
    daemon.kill();
    assert!(fs::read(database(&daemon)).unwrap() == sound[..sound.len() / 2], "the damaged file was written to");
    for name in ["leasehold.db-wal", "leasehold.db-shm"] {
        let _ = fs::remove_file(daemon.data().join(name));
    }
    fs::write(database(&daemon), &sound).unwrap();
    daemon.run();
    daemon.ask(&["kinds", "resume", "later"]);
    assert_eq!(daemon.wait(waiting[0]), "done");
}

#[test]
fn o6_a_torn_end_of_the_log_of_writes_loses_nothing_and_a_cut_one_leaves_a_sound_database() {
    let mut daemon = Daemon::with_misbehave(&ConfigText::default().another_kind("later", ""));
    daemon.ask(&["kinds", "pause", "later"]);
    let jobs: Vec<_> = (0..20).map(|_| daemon.enqueue("later", &echo(), &[])).collect();
    daemon.kill();
    // As a write does that a power cut met.
    let mut bytes = fs::read(log_of_writes(&daemon)).unwrap();
    assert!(!bytes.is_empty());
    bytes.extend(vec![0x5a; 5_000]);
    fs::write(log_of_writes(&daemon), &bytes).unwrap();
    daemon.run();
    let kept: i64 = daemon.database().one("SELECT count(*) FROM jobs WHERE kind = 'later'");
    assert_eq!(kept, 20);
    daemon.database().check();
    let more: Vec<_> = (0..20).map(|_| daemon.enqueue("later", &echo(), &[])).collect();
    daemon.kill();
    // A disk that lied about what it had written: what it lost is lost, and the rest is whole.
    let bytes = fs::read(log_of_writes(&daemon)).unwrap();
    fs::write(log_of_writes(&daemon), &bytes[..bytes.len() / 2]).unwrap();
    daemon.run();
    daemon.database().check();
    let kept = daemon.database().all::<i64>("SELECT id FROM jobs WHERE kind = 'later' ORDER BY id");
    let all: Vec<_> = jobs.into_iter().chain(more).collect();
    assert!(all.starts_with(&kept), "{kept:?} are not the first of {all:?}");
    daemon.ask(&["kinds", "resume", "later"]);
    for job in kept {
        assert_eq!(daemon.wait(job), "done");
    }
    daemon.database().check();
}

#[test]
fn o6_a_database_that_is_moved_away_under_a_daemon_takes_no_jobs() {
    let mut daemon = Daemon::with_misbehave(&ConfigText::default());
    let before = daemon.enqueue("job", &echo(), &["--delay", "1s"]);
    let aside = daemon.data().join("aside");
    fs::rename(database(&daemon), &aside).unwrap();
    let refused = daemon.ask(&["enqueue", "job", "--payload", "{}"]);
    assert_eq!(refused.refusal(), "database_corrupt");
    assert!(refused.stderr.contains("was moved away while the daemon ran"), "{}", refused.stderr);
    assert!(!database(&daemon).exists(), "no other one was made in its place");
    daemon.kill();
    fs::rename(&aside, database(&daemon)).unwrap();
    daemon.run();
    assert_eq!(daemon.wait(before), "done");
    // Another file in its place is no better.
    fs::copy(database(&daemon), &aside).unwrap();
    fs::rename(&aside, database(&daemon)).unwrap();
    let refused = daemon.ask(&["enqueue", "job", "--payload", "{}"]);
    assert!(refused.stderr.contains("was replaced while the daemon ran"), "{}", refused.stderr);
}
