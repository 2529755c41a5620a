//! A transaction of the writer as its calls see it: the connection, and the count of the jobs that they move. What they
//! moved is written once, before the commit or the end of a savepoint, so that counts and rows are durable together. It
//! never counts rows itself: whoever moves a job says so.

use std::{cell::RefCell, collections::BTreeMap, ops::Deref};

use rusqlite::{Connection, params};

use crate::{StoreError, rows::Standing};

/// How many jobs came to where they stand, less those that left it, since it was written last.
#[derive(Debug, Default)]
pub(crate) struct Moved {
    /// By kind; in the order of [`Standing`].
    kinds: BTreeMap<String, [i64; 3]>,
    /// Ended jobs with their records.
    untrimmed: i64,
}

/// The writer's connection while a transaction is open on it.
pub(crate) struct Transaction<'a> {
    connection: &'a Connection,
    moved: &'a RefCell<Moved>,
}

impl Deref for Transaction<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.connection
    }
}

impl<'a> Transaction<'a> {
    pub(crate) const fn new(connection: &'a Connection, moved: &'a RefCell<Moved>) -> Self {
        Self { connection, moved }
    }

    /// A job came into the queue.
    pub(crate) fn came(&self, kind: &str, to: Standing) {
        self.add(kind, to, 1);
    }

    /// A job left the queue.
    pub(crate) fn left(&self, kind: &str, from: Standing) {
        self.add(kind, from, -1);
    }

    /// A job stands elsewhere in the queue.
    pub(crate) fn moved(&self, kind: &str, from: Standing, to: Standing) {
        self.left(kind, from);
        self.came(kind, to);
    }

    fn add(&self, kind: &str, standing: Standing, jobs: i64) {
        let mut moved = self.moved.borrow_mut();
        if !moved.kinds.contains_key(kind) {
            moved.kinds.insert(kind.to_owned(), [0; 3]);
        }
        if let Some(counts) = moved.kinds.get_mut(kind) {
            counts[standing as usize] += jobs;
        }
    }

    /// Records of ended jobs came, or went.
    pub(crate) fn count_untrimmed(&self, records: i64) {
        self.moved.borrow_mut().untrimmed += records;
    }

    /// How many jobs have not ended, those of this transaction included.
    pub(crate) fn depth(&self) -> Result<u64, StoreError> {
        let written: i64 =
            self.prepare_cached("SELECT coalesce(sum(depth), 0) FROM depths")?.query_row([], |row| row.get(0))?;
        let moved: i64 = self.moved.borrow().kinds.values().flatten().sum();
        Ok(u64::try_from(written + moved).unwrap_or(0))
    }

    /// How many ended jobs have their records, those of this transaction included.
    pub(crate) fn untrimmed(&self) -> Result<u64, StoreError> {
        let written: i64 = self
            .prepare_cached("SELECT value FROM meta WHERE name = 'untrimmed_jobs'")?
            .query_row([], |row| row.get(0))?;
        Ok(u64::try_from(written + self.moved.borrow().untrimmed).unwrap_or(0))
    }

    /// Writes what was moved into the transaction.
    pub(crate) fn write_counts(&self) -> Result<(), StoreError> {
        let moved = self.moved.take();
        for (kind, counts) in &moved.kinds {
            if *counts != [0; 3] {
                self.write_kind(kind, *counts)?;
            }
        }
        if moved.untrimmed != 0 {
            self.prepare_cached("UPDATE meta SET value = value + ?1 WHERE name = 'untrimmed_jobs'")?
                .execute([moved.untrimmed])?;
        }
        Ok(())
    }

    /// Not an upsert: its values would have to pass the checks as a row of their own, and a count may fall.
    fn write_kind(&self, kind: &str, [waiting, ready, leased]: [i64; 3]) -> Result<(), StoreError> {
        let depth = waiting + ready + leased;
        let counts = params![kind, depth, waiting, ready, leased];
        let known = self
            .prepare_cached(
                "UPDATE depths SET depth = depth + ?2, waiting = waiting + ?3, ready = ready + ?4, leased = leased + ?5
                 WHERE kind = ?1",
            )?
            .execute(counts)?;
        if known == 0 {
            self.prepare_cached(
                "INSERT INTO depths (kind, depth, waiting, ready, leased) VALUES (?1, ?2, ?3, ?4, ?5)",
            )?
            .execute(counts)?;
        }
        Ok(())
    }

    /// Forgets what was moved and is rolled back.
    pub(crate) fn forget_counts(&self) {
        self.moved.take();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;

    #[test]
    fn q17_what_a_transaction_has_moved_counts_before_and_after_it_is_written() {
        let (store, options, _directory) = fixtures::open();
        store.close();
        let connection = Connection::open(options.database()).unwrap();
        let moved = RefCell::default();
        let transaction = Transaction::new(&connection, &moved);
        let counts = || (transaction.depth().unwrap(), transaction.untrimmed().unwrap());
        for _ in 0..3 {
            transaction.came("k", Standing::Ready);
        }
        transaction.count_untrimmed(5);
        assert_eq!(counts(), (3, 5));
        transaction.write_counts().unwrap();
        assert_eq!(counts(), (3, 5));
        transaction.moved("k", Standing::Ready, Standing::Leased);
        transaction.came("l", Standing::Waiting);
        transaction.count_untrimmed(-1);
        assert_eq!(counts(), (4, 4));
        transaction.left("k", Standing::Leased);
        assert_eq!(counts(), (3, 4));
        transaction.forget_counts();
        assert_eq!(counts(), (3, 5));
    }
}
