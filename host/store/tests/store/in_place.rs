//! O6 on the store: the database's file while it is open. Once it is not where it was, nothing is written any more; and at
//! the end the log is moved into it.

use std::{fs, os::unix::fs::symlink};

use leasehold_store::Store;

use crate::queue::{Queue, job, options};

/// Puts a job in, and tells with which code that was refused, if so.
async fn enqueue(store: &Store) -> Option<&'static str> {
    store.enqueue(vec![job("k")], "tests", 0, 1, 100).await.err().map(|error| error.code())
}

#[tokio::test]
async fn o6_nothing_is_written_any_more_once_the_databases_file_was_moved_away_or_replaced() {
    for (is_replaced, what) in [(false, "was moved away"), (true, "was replaced")] {
        let directory = tempfile::tempdir().unwrap();
        let database = options(directory.path()).database();
        let store = Store::open(&options(directory.path())).unwrap();
        assert_eq!(enqueue(&store).await, None);
        assert_eq!(store.damage(), None);
        assert!(store.write_problem().is_none());

        let aside = directory.path().join("aside");
        fs::rename(&database, &aside).unwrap();
        if is_replaced {
            fs::copy(&aside, &database).unwrap();
        }
        assert_eq!(enqueue(&store).await, Some("database_corrupt"));
        let what = format!("its file {} {what} while the daemon ran", database.display());
        assert_eq!(store.damage(), Some(what.as_str()));
        assert!(store.write_problem().unwrap().to_string().contains(&what));

        fs::rename(&aside, &database).unwrap();
        assert_eq!(enqueue(&store).await, Some("database_corrupt"), "what was written meanwhile is not known");
        let log = database.with_extension("db-wal");
        let before = fs::read(&log).unwrap();
        store.close();
        assert!(fs::read(&log).unwrap() == before, "what may be all that can be rescued was changed");
    }
}

#[tokio::test]
async fn o6_a_path_that_can_not_be_looked_at_for_a_while_is_no_damage() {
    let directory = tempfile::tempdir().unwrap();
    let (own, aside) = (directory.path().join("own"), directory.path().join("aside"));
    let store = Store::open(&options(&own)).unwrap();
    fs::rename(&own, &aside).unwrap();
    symlink(&own, &own).unwrap();
    assert_eq!(enqueue(&store).await, None);
    fs::remove_file(&own).unwrap();
    fs::rename(&aside, &own).unwrap();
    assert_eq!(enqueue(&store).await, None);
    assert_eq!(store.damage(), None);
}

#[tokio::test]
async fn q12_a_store_that_is_closed_has_moved_its_log_into_the_database_and_takes_no_more() {
    let queue = Queue::new().await;
    queue.enqueue_one(0).await;
    // SQLite would do it by itself when the last program closes the database.
    let onlooker = queue.database();
    let log = format!("{}-wal", onlooker.path().unwrap());
    let count = || onlooker.query_row("SELECT count(*) FROM jobs", [], |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!(count(), 1);
    assert!(fs::metadata(&log).unwrap().len() > 0);
    queue.store.close();
    assert_eq!(fs::metadata(&log).unwrap().len(), 0);
    assert_eq!(enqueue(&queue.store).await, Some("closed"));
    assert_eq!(queue.store.depths().await.unwrap_err().code(), "closed");
    assert_eq!(count(), 1);
}
