//! Looks into the database that a daemon owns, and checks what must hold in it at any moment.

use std::path::Path;

use rusqlite::{Connection, OpenFlags, types::FromSql};

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
        let nobody: [(&str, &str); 6] = [
            ("a job stands in two states", "SELECT id FROM jobs WHERE id IN (SELECT id FROM ended_jobs)"),
            (
                "attempt numbers have a gap",
                "SELECT job_id FROM attempts GROUP BY job_id HAVING count(*) <> max(number) OR min(number) <> 1",
            ),
            (
                "a job's attempt is not its last one",
                "SELECT id FROM jobs WHERE attempt <> coalesce((SELECT max(number) FROM attempts WHERE job_id = id), 0)",
            ),
            (
                "an attempt is open that holds no lease",
                "SELECT a.job_id FROM attempts a LEFT JOIN jobs j ON j.id = a.job_id AND j.attempt = a.number AND j.state = 2
                 WHERE a.ended_at IS NULL AND j.id IS NULL",
            ),
            (
                "a dead job has no open dead letter",
                "SELECT id FROM ended_jobs e WHERE state = 'dead'
                 AND NOT EXISTS (SELECT 1 FROM dead_letters d WHERE d.job_id = e.id AND d.state = 'open')",
            ),
            (
                "the depth is not the number of jobs",
                "SELECT kind FROM depths d WHERE depth <> (SELECT count(*) FROM jobs j WHERE j.kind = d.kind)",
            ),
        ];
        for (what, sql) in nobody {
            let sql = format!("SELECT count(*) FROM ({sql})");
            assert_eq!(self.one::<i64>(&sql), 0, "{what}");
        }
    }
}
