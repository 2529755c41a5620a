//! O6 on the store: once damage was found, nothing more is written, and reads go on.

use std::{fs, path::Path};

use crate::queue::{Queue, job};

#[tokio::test]
async fn o6_a_database_that_was_moved_away_takes_no_write_until_a_start_on_sound_files() {
    let queue = Queue::new().await;
    queue.enqueue_one(0).await;
    assert_eq!(queue.store.damage(), None);
    assert!(queue.store.write_problem().is_none());
    let path = queue.database().path().unwrap().to_owned();
    let away = Path::new(&path).with_extension("away");
    fs::rename(&path, &away).unwrap();
    let what = format!("its file {path} was moved away while the daemon ran");
    let told = format!(
        "the database does not pass as intact ({what}), so nothing more is written to it and no job is leased. Stop the \
         daemon, keep its files aside, see with SQLite's `PRAGMA integrity_check` what is wrong with them, restore the \
         backup and start again"
    );
    let enqueue = || queue.store.enqueue(vec![job("k")], "tests", 1, 1, 10);
    assert_eq!(enqueue().await.unwrap_err().to_string(), told);
    // Back in its place, but whatever was written meanwhile may be missing from it.
    fs::rename(&away, &path).unwrap();
    assert_eq!(enqueue().await.unwrap_err().to_string(), told);
    assert_eq!(queue.store.damage(), Some(what.as_str()));
    assert_eq!(queue.store.write_problem().unwrap().to_string(), told);
    assert_eq!(queue.store.depths().await.unwrap()[0].ready, 1, "it can still be read");
    let queue = queue.reopen();
    assert_eq!(queue.store.damage(), None);
    queue.enqueue_one(2).await;
}
