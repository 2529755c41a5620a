//! How a database is opened: who owns it, which ones are refused and left as they are, and the clock that it keeps.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use leasehold_store::{KeyProblem, OpenError, Store};
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

/// The write-ahead log of a directory's database.
fn log(directory: &Path) -> PathBuf {
    options(directory).database().with_extension("db-wal")
}

#[test]
fn d4_the_directory_of_a_new_database_is_made_for_its_owner_alone() {
    let directory = tempfile::tempdir().unwrap();
    let own = directory.path().join("state").join("queue");
    Store::open(&options(&own)).unwrap().close();
    for made in [own.parent().unwrap(), &own] {
        assert_eq!(fs::metadata(made).unwrap().permissions().mode() & 0o777, 0o700, "{}", made.display());
    }
}

#[test]
fn o6_a_directory_that_can_not_be_made_is_named_with_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    let below = file.join("queue");
    let Err(error) = Store::open(&options(&below)) else { panic!("a directory below a file") };
    assert_eq!(error.code(), "data_directory");
    assert_eq!(error.to_string(), format!("{}: Not a directory (os error 20)", below.display()));
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
fn o6_a_damaged_database_is_refused_and_left_as_it_is() {
    let directory = directory(|path| {
        execute(path, "CREATE TABLE meta (name)");
        let mut bytes = fs::read(path).unwrap();
        // Behind the header of the file, where the kind of its first page stands.
        bytes[100] = 0;
        fs::write(path, bytes).unwrap();
    });
    let error = refused(&directory);
    assert_eq!(error.code(), "database_corrupt");
    let path = options(directory.path()).database();
    let begins = format!("{} is damaged (database disk image is malformed) and was left as it is.", path.display());
    assert!(error.to_string().starts_with(&begins), "{error}");
}

#[test]
fn o6_a_database_that_can_not_be_opened_is_not_called_damaged() {
    let directory = directory(|path| fs::create_dir(path).unwrap());
    let Err(error) = Store::open(&options(directory.path())) else { panic!("a directory was opened") };
    assert_eq!(error.code(), "database_io");
}

#[test]
fn o6_a_refused_database_keeps_its_log_and_gets_no_file_beside_it() {
    let sql = "CREATE TABLE bookmarks (url); PRAGMA journal_mode = WAL";
    for left in [None, Some("")] {
        let directory = directory(|path| execute(path, sql));
        if let Some(left) = left {
            fs::write(log(directory.path()), left).unwrap();
        }
        assert_eq!(refused(&directory).code(), "foreign_database");
        let mut names: Vec<_> =
            fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["leasehold.db", "leasehold.lock"], "{left:?}");
    }

    // A log as a crash leaves it: its program had no time to move it into the file.
    let crashed = directory(|path| execute(path, sql));
    let program = Connection::open(options(crashed.path()).database()).unwrap();
    program.execute_batch("INSERT INTO bookmarks VALUES ('example.org')").unwrap();
    let directory = directory(|path| {
        fs::copy(options(crashed.path()).database(), path).unwrap();
    });
    fs::copy(log(crashed.path()), log(directory.path())).unwrap();
    assert_eq!(refused(&directory).code(), "foreign_database");
    assert!(fs::read(log(directory.path())).unwrap() == fs::read(log(crashed.path())).unwrap(), "the log was changed");
}

#[test]
fn d4_a_start_that_was_cut_off_before_its_first_table_is_taken_up() {
    let directory = tempfile::tempdir().unwrap();
    drop(Store::open(&options(directory.path())).unwrap());
    let database = options(directory.path()).database();
    // The key is made before the database, so a cut in between leaves it alone, beside an empty file or beside one that
    // holds its header alone.
    for leave in [|_| {}, |path| fs::write(path, "").unwrap(), |path| execute(path, "PRAGMA journal_mode = WAL")] {
        fs::remove_file(&database).unwrap();
        leave(&database);
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
    let path = key_file.display().to_string();
    let unreadable = |why: &str| KeyProblem::Unreadable { path: path.clone(), why: why.into() };
    for (replacement, problem) in [
        (None, KeyProblem::Missing { path: path.clone() }),
        (Some(fs::read(options(other.path()).key_file).unwrap()), KeyProblem::Wrong { path: path.clone() }),
        (Some(b"nonsense".to_vec()), unreadable("it does not begin with leasehold-key-1")),
        (Some(b"leasehold-key-1 00".to_vec()), unreadable("it is not 136 hexadecimal digits")),
    ] {
        if let Some(replacement) = &replacement {
            fs::write(&key_file, replacement).unwrap();
        }
        let store = Store::open(&options(directory.path())).unwrap();
        assert_eq!(store.key_problem(), Some(&problem));
        assert!(store.fingerprint_key().is_none(), "{problem}");
        let refused = store.enqueue(vec![job("k")], "tests", 0, 1, 10).await.unwrap_err();
        assert_eq!(refused.code(), "key_unavailable");
        assert!(store.depths().await.unwrap().is_empty());
        assert_eq!(fs::read(&key_file).ok(), replacement, "the key file was changed");
    }
    fs::write(&key_file, own).unwrap();
    let store = Store::open(&options(directory.path())).unwrap();
    assert_eq!(store.key_problem(), None);
    assert!(store.fingerprint_key().is_some());
}

#[test]
fn d4_a_key_file_that_can_not_be_read_is_never_made_anew() {
    let directory = tempfile::tempdir().unwrap();
    let options = options(directory.path());
    fs::create_dir(&options.key_file).unwrap();
    let Err(error) = Store::open(&options) else { panic!("a directory was taken for a key") };
    let problem =
        format!("the key file {} can't be read as a key: Is a directory (os error 21)", options.key_file.display());
    let database = options.database();
    assert_eq!(error.to_string(), format!("{}: the sealing key is not available: {problem}", database.display()));
    assert!(!database.exists(), "a database was made without a key");
    fs::remove_dir(&options.key_file).unwrap();
    Store::open(&options).unwrap().close();
    fs::remove_file(&options.key_file).unwrap();
    fs::create_dir(&options.key_file).unwrap();
    let store = Store::open(&options).unwrap();
    assert_eq!(store.key_problem().unwrap().to_string(), problem);
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
