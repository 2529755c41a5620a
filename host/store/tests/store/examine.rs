//! Looking at a database from outside, while a daemon owns it or not, and copying it.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use leasehold_domain::{Digest, HandlerVersion};
use leasehold_store::{
    KeyProblem, Store, StoredVersion,
    examine::{self, CopyError},
};
use rusqlite::Connection;
use tempfile::TempDir;

use crate::queue::{Queue, options};

/// A database in which a row breaks a rule of its table, as damage can leave one.
fn damaged() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("damaged.db");
    let sql = "CREATE TABLE t (a); INSERT INTO t VALUES (NULL); PRAGMA writable_schema = ON;
               UPDATE sqlite_master SET sql = 'CREATE TABLE t (a NOT NULL)'";
    Connection::open(&path).unwrap().execute_batch(sql).unwrap();
    (directory, path)
}

#[test]
fn q13_a_look_from_outside_tells_who_owns_a_database_and_takes_nothing_from_the_owner() {
    let directory = tempfile::tempdir().unwrap();
    assert_eq!(examine::owner(directory.path()).unwrap(), None, "there never was a daemon");
    let store = Store::open(&options(directory.path())).unwrap();
    for _ in 0..2 {
        assert_eq!(examine::owner(directory.path()).unwrap(), Some(std::process::id().to_string()));
    }
    store.close();
    drop(store);
    assert_eq!(examine::owner(directory.path()).unwrap(), None, "the daemon is gone");
    // What can't be looked at is not taken for free.
    assert!(examine::owner(&options(directory.path()).database()).is_err(), "this is no directory");
}

#[tokio::test]
async fn o6_a_quick_check_tells_what_is_wrong_and_nothing_of_a_database_that_is_whole() {
    let queue = Queue::new().await;
    queue.enqueue_one(0).await;
    let whole = examine::quick_check(queue.database().path().map(Path::new).unwrap()).unwrap();
    assert_eq!(whole, Vec::<String>::new());
    let (_directory, path) = damaged();
    assert_eq!(examine::quick_check(&path).unwrap(), ["NULL value in t.a"]);
}

#[tokio::test]
async fn o6_a_copy_of_a_database_in_use_is_whole_its_owners_alone_and_never_put_over_a_file() {
    let queue = Queue::new().await;
    queue.enqueue_one(0).await;
    let database = queue.database().path().map(PathBuf::from).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let into = directory.path().join("copy.db");
    examine::copy(&database, &into).unwrap();
    assert_eq!(fs::metadata(&into).unwrap().permissions().mode() & 0o777, 0o600);
    let copied: i64 =
        Connection::open(&into).unwrap().query_row("SELECT count(*) FROM jobs", [], |row| row.get(0)).unwrap();
    assert_eq!(copied, 1);

    let before = fs::read(&into).unwrap();
    let refused = examine::copy(&database, &into).unwrap_err();
    assert!(matches!(&refused, CopyError::Io { path, .. } if *path == into), "{refused}");
    assert_eq!(fs::read(&into).unwrap(), before);
}

#[test]
fn o6_a_copy_that_is_not_whole_is_said_to_be_none() {
    let (directory, path) = damaged();
    let refused = examine::copy(&path, &directory.path().join("copy.db")).unwrap_err();
    assert_eq!(refused.to_string(), "the copy is not whole: NULL value in t.a");
}

#[test]
fn d4_a_look_from_outside_tells_whether_the_key_opens_what_is_sealed_and_makes_none() {
    let directory = tempfile::tempdir().unwrap();
    let options = options(directory.path());
    drop(Store::open(&options).unwrap());
    let problem = || examine::key_problem(&options.database(), &options.key_file).unwrap();
    assert_eq!(problem(), None);
    fs::remove_file(&options.key_file).unwrap();
    assert_eq!(problem(), Some(KeyProblem::Missing { path: options.key_file.display().to_string() }));
    assert!(!options.key_file.exists(), "a key was made beside a database that exists");
}

#[tokio::test]
async fn h1_the_components_that_a_database_names_are_told_once_each() {
    let queue = Queue::new().await;
    for (version, component) in [("2.0.0", b"other"), ("3.0.0", b"other")] {
        let version = HandlerVersion::new("h", version).unwrap();
        let stored = StoredVersion { version, digest: Digest::of(component), size_bytes: 1 };
        queue.store.put_version(stored, "tests", 0).await.unwrap();
    }
    let mut expected = vec![Digest::of(b"h"), Digest::of(b"other")];
    expected.sort_by_key(|digest| *digest.as_bytes());
    assert_eq!(examine::components(queue.database().path().map(Path::new).unwrap()).unwrap(), expected);
}
