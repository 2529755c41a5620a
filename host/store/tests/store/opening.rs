//! How a database is opened: who owns it, which ones are refused and left as they are, and the clock that it keeps.

use std::{fs, path::Path};

use leasehold_store::{OpenError, Store};
use rusqlite::Connection;
use tempfile::TempDir;

use crate::queue::{Queue, job, options};

/// A directory whose database was made by somebody else.
fn directory(make: impl FnOnce(&Path)) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    make(&options(directory.path()).database());
    directory
}

/// Opens the database, which has to be refused without a change.
#[track_caller]
fn refused(directory: &TempDir) -> OpenError {
    let database = options(directory.path()).database();
    let before = fs::read(&database).unwrap();
    let Err(error) = Store::open(&options(directory.path())) else { panic!("the database was opened") };
    assert!(fs::read(&database).unwrap() == before, "the file was changed");
    assert!(!options(directory.path()).key_file.exists(), "a key was made beside a database that exists");
    error
}

fn execute(path: &Path, sql: &str) {
    Connection::open(path).unwrap().execute_batch(sql).unwrap();
}

#[tokio::test]
async fn q13_a_database_has_one_owner() {
    let queue = Queue::new().await;
    let path = queue.database().path().map(Path::new).unwrap().parent().unwrap().to_owned();
    let Err(error) = Store::open(&options(&path)) else { panic!("a second owner") };
    assert_eq!(error.code(), "database_locked");
    assert!(error.to_string().contains(&format!("process {}", std::process::id())), "{error}");
    queue.store.close();
    drop(queue.store);
    assert!(Store::open(&options(&path)).is_ok());
}

#[test]
fn o6_a_database_of_a_newer_version_is_refused_and_left_as_it_is() {
    let directory = directory(|path| execute(path, "CREATE TABLE meta (name); PRAGMA user_version = 999"));
    let error = refused(&directory);
    assert_eq!(error.code(), "newer_schema");
    assert!(error.to_string().contains("has schema 999"), "{error}");
}

#[test]
fn o6_a_database_of_another_program_is_refused_and_left_as_it_is() {
    for sql in [
        "CREATE TABLE bookmarks (url)",
        "CREATE TABLE bookmarks (url); PRAGMA user_version = 1",
        // The name of one table says little, and neither does a low number.
        "CREATE TABLE meta (key, value); CREATE TABLE bookmarks (url); PRAGMA user_version = 1",
    ] {
        assert_eq!(refused(&directory(|path| execute(path, sql))).code(), "foreign_database", "{sql}");
    }
}

#[test]
fn o6_a_file_that_is_no_database_is_refused_and_left_as_it_is() {
    let directory =
        directory(|path| fs::write(path, "A letter to somebody, longer than any header.".repeat(100)).unwrap());
    assert_eq!(refused(&directory).code(), "not_a_database");
}

#[test]
fn d4_a_start_that_was_cut_off_before_its_first_table_is_taken_up() {
    let directory = tempfile::tempdir().unwrap();
    drop(Store::open(&options(directory.path())).unwrap());
    // The key is made before the database, so a cut in between leaves it alone or beside an empty file.
    for left in [None, Some(())] {
        fs::remove_file(options(directory.path()).database()).unwrap();
        if left.is_some() {
            fs::write(options(directory.path()).database(), "").unwrap();
        }
        let store = Store::open(&options(directory.path())).unwrap();
        assert!(store.key_problem().is_none());
        store.close();
    }
}

#[tokio::test]
async fn d4_without_its_own_key_a_database_is_read_and_takes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    drop(Store::open(&options(directory.path())).unwrap());
    let key_file = options(directory.path()).key_file;
    let own = fs::read(&key_file).unwrap();
    let other = tempfile::tempdir().unwrap();
    drop(Store::open(&options(other.path())).unwrap());
    fs::remove_file(&key_file).unwrap();
    for replacement in [None, Some(fs::read(options(other.path()).key_file).unwrap()), Some(b"nonsense".to_vec())] {
        if let Some(replacement) = replacement {
            fs::write(&key_file, replacement).unwrap();
        }
        let store = Store::open(&options(directory.path())).unwrap();
        assert!(store.key_problem().is_some());
        let refused = store.enqueue(vec![job("k")], "tests", 0, 1, 10).await.unwrap_err();
        assert_eq!(refused.code(), "key_unavailable");
        assert!(store.depths().await.unwrap().is_empty());
    }
    fs::write(&key_file, own).unwrap();
    assert!(Store::open(&options(directory.path())).unwrap().key_problem().is_none());
}

#[tokio::test]
async fn q14_the_latest_time_is_kept_over_a_restart_to_within_a_second() {
    let mut queue = Queue::new().await;
    for now_ms in [1_000_000, 1_000_500, 9_000_000, 8_000_000] {
        queue.enqueue_one(now_ms).await;
    }
    queue = queue.reopen();
    assert_eq!(queue.store.persisted_clock_ms(), 9_000_000);
    // Less than a second further may be lost, and nothing of what was kept.
    queue.enqueue_one(9_000_999).await;
    queue = queue.reopen();
    assert!((9_000_000..=9_000_999).contains(&queue.store.persisted_clock_ms()));
    queue.enqueue_one(9_002_500).await;
    queue = queue.reopen();
    assert_eq!(queue.store.persisted_clock_ms(), 9_002_500);
}
