//! Looks into the database that a daemon owns, and checks what must hold in it at any moment.

use std::path::Path;

use rusqlite::{Connection, OpenFlags, types::FromSql};

use super::rules::NOBODY;

/// A read-only connection.
pub struct Database(Connection);

impl Database {
    /// Opens a database for reading.
    pub fn open(path: &Path) -> Self {
        let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
        connection.busy_timeout(super::daemon::PATIENCE).unwrap();
        Self(connection)
    }

    /// The one value that a question answers.
    #[track_caller]
    pub fn one<T: FromSql>(&self, sql: &str) -> T {
        self.0.query_row(sql, [], |row| row.get(0)).unwrap()
    }

    /// The first column of all rows.
    #[track_caller]
    pub fn all<T: FromSql>(&self, sql: &str) -> Vec<T> {
        let mut statement = self.0.prepare(sql).unwrap();
        let rows = statement.query_map([], |row| row.get(0)).unwrap();
        rows.collect::<Result<_, _>>().unwrap()
    }

    /// Checks what must hold at any moment.
    #[track_caller]
    pub fn check(&self) {
        assert_eq!(self.one::<String>("PRAGMA integrity_check"), "ok");
        assert!(self.all::<i64>("SELECT 1 FROM pragma_foreign_key_check").is_empty());
        for (what, sql) in NOBODY {
            let sql = format!("SELECT count(*) FROM ({sql})");
            assert_eq!(self.one::<i64>(&sql), 0, "{what}");
        }
    }
}
