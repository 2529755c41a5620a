//! An application's outbox table, in a database of its own: rows to relay are read in their order and marked once their
//! jobs are durable. It never writes anything but the mark and, where there is a column for it, why a row was refused.

use std::{path::PathBuf, time::Duration};

use rusqlite::{Connection, ErrorCode, OpenFlags, params, types::ValueRef};

/// How long another program's lock is waited for.
const BUSY_TIMEOUT: Duration = Duration::from_secs(2);
/// How many bytes of payloads are read at once, but for what the last row has beyond that.
const PAYLOADS_MAX_BYTES: usize = 1 << 20;

/// Where an outbox is and what its columns are called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboxMapping {
    /// The database's file.
    pub database: PathBuf,
    /// The table.
    pub table: String,
    /// A column whose values are never used again; part of each job's key.
    pub id: String,
    /// The column of the mark: null until the row is relayed, then milliseconds since 1970.
    pub relayed_at: String,
    /// The column of the kind.
    pub kind: String,
    /// The column of the payload, text or bytes.
    pub payload: String,
    /// The column of the lane.
    pub lane: Option<String>,
    /// The column of the priority.
    pub priority: Option<String>,
    /// The column that takes why a row can't be a job; such rows are left out until it is null again.
    pub error: Option<String>,
}

/// One row that is to be relayed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboxRow {
    /// Where it stands in the table's order.
    pub position: i64,
    /// The value of the column that is never used again, as text.
    pub id: String,
    /// The kind.
    pub kind: String,
    /// The payload, byte for byte.
    pub payload: Vec<u8>,
    /// The lane.
    pub lane: Option<String>,
    /// The priority.
    pub priority: i32,
}

/// Why an outbox can't be relayed from. Its rows stay where they are.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OutboxError {
    /// The file is not there.
    #[error("{database} is missing; it is looked for again")]
    Missing {
        /// The file.
        database: String,
    },
    /// Another program holds it.
    #[error("{database} is locked by another program; it is tried again")]
    Locked {
        /// The file.
        database: String,
    },
    /// The table is not as the configuration says.
    #[error("{database}: {what}")]
    Schema {
        /// The file.
        database: String,
        /// What is wrong, and what is allowed.
        what: String,
    },
    /// Anything else that SQLite says.
    #[error("{database}: {error}")]
    Sqlite {
        /// The file.
        database: String,
        /// Why.
        error: String,
    },
}

impl OutboxError {
    /// The stable code of the error.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Missing { .. } => "outbox_missing",
            Self::Locked { .. } => "outbox_locked",
            Self::Schema { .. } => "outbox_schema",
            Self::Sqlite { .. } => "outbox_failed",
        }
    }
}

/// An open outbox.
pub struct OutboxSource {
    mapping: OutboxMapping,
    connection: Connection,
    select: String,
}

impl OutboxSource {
    /// Opens the database and checks the table against the mapping.
    pub fn open(mapping: &OutboxMapping) -> Result<Self, OutboxError> {
        let shown = mapping.database.display().to_string();
        if !mapping.database.is_file() {
            return Err(OutboxError::Missing { database: shown });
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection =
            Connection::open_with_flags(&mapping.database, flags).map_err(|error| failed(&shown, &error))?;
        connection.busy_timeout(BUSY_TIMEOUT).map_err(|error| failed(&shown, &error))?;
        check_schema(&connection, mapping)?;
        Ok(Self { select: select(mapping), mapping: mapping.clone(), connection })
    }

    /// Rows that are not relayed, in their order, from behind a position: so many at the most, and no further one once their
    /// payloads have a megabyte together.
    pub fn rows_after(&self, position: i64, max: usize) -> Result<Vec<OutboxRow>, OutboxError> {
        self.read_rows(position, i64::try_from(max).unwrap_or(i64::MAX)).map_err(|error| self.failed(&error))
    }

    fn read_rows(&self, position: i64, max: i64) -> rusqlite::Result<Vec<OutboxRow>> {
        let mut statement = self.connection.prepare_cached(&self.select)?;
        let rows = statement.query_map([position, max], |row| {
            Ok(OutboxRow {
                position: row.get(0)?,
                id: row.get(1)?,
                kind: row.get::<_, Option<String>>(2)?.unwrap_or_default(),
                payload: match row.get_ref(3)? {
                    ValueRef::Blob(bytes) | ValueRef::Text(bytes) => bytes.to_vec(),
                    ValueRef::Integer(number) => number.to_string().into_bytes(),
                    ValueRef::Real(number) => number.to_string().into_bytes(),
                    ValueRef::Null => Vec::new(),
                },
                lane: row.get(4)?,
                priority: row.get(5)?,
            })
        })?;
        let (mut taken, mut payloads_bytes) = (Vec::new(), 0);
        for row in rows {
            let row = row?;
            payloads_bytes += row.payload.len();
            taken.push(row);
            if payloads_bytes >= PAYLOADS_MAX_BYTES {
                break;
            }
        }
        Ok(taken)
    }

    /// Marks rows as relayed, in one transaction. A row that is gone needs no mark.
    pub fn mark(&self, ids: &[String], at_ms: i64) -> Result<(), OutboxError> {
        let sql = format!(
            "UPDATE {} SET {} = ?2 WHERE {} = ?1",
            quoted(&self.mapping.table),
            quoted(&self.mapping.relayed_at),
            quoted(&self.mapping.id)
        );
        let marked = self.connection.unchecked_transaction().and_then(|transaction| {
            for id in ids {
                transaction.prepare_cached(&sql)?.execute(params![id, at_ms])?;
            }
            transaction.commit()
        });
        marked.map_err(|error| self.failed(&error))
    }

    /// Writes down why a row can't be a job, where there is a column for it. True when there is.
    pub fn note_refusal(&self, id: &str, why: &str) -> Result<bool, OutboxError> {
        let Some(error) = &self.mapping.error else { return Ok(false) };
        let sql = format!(
            "UPDATE {} SET {} = ?2 WHERE {} = ?1",
            quoted(&self.mapping.table),
            quoted(error),
            quoted(&self.mapping.id)
        );
        let noted = self.connection.prepare_cached(&sql).and_then(|mut statement| statement.execute(params![id, why]));
        noted.map(|_| true).map_err(|error| self.failed(&error))
    }

    fn failed(&self, error: &rusqlite::Error) -> OutboxError {
        failed(&self.mapping.database.display().to_string(), error)
    }
}

fn failed(database: &str, error: &rusqlite::Error) -> OutboxError {
    let database = database.to_owned();
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => OutboxError::Locked { database },
        Some(ErrorCode::CannotOpen) => OutboxError::Missing { database },
        _ => OutboxError::Sqlite { database, error: error.to_string() },
    }
}

/// An identifier in SQL. What is inside quotes is a name and nothing else.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn select(mapping: &OutboxMapping) -> String {
    let column =
        |name: &Option<String>, without: &str| name.as_ref().map_or_else(|| without.to_owned(), |name| quoted(name));
    let without_error =
        mapping.error.as_ref().map_or_else(String::new, |error| format!(" AND {} IS NULL", quoted(error)));
    format!(
        "SELECT rowid, CAST({id} AS TEXT), CAST({kind} AS TEXT), {payload}, CAST({lane} AS TEXT), coalesce({priority}, 0)
         FROM {table} WHERE {relayed_at} IS NULL{without_error} AND rowid > ?1 ORDER BY rowid LIMIT ?2",
        id = quoted(&mapping.id),
        kind = quoted(&mapping.kind),
        payload = quoted(&mapping.payload),
        lane = column(&mapping.lane, "NULL"),
        priority = column(&mapping.priority, "0"),
        table = quoted(&mapping.table),
        relayed_at = quoted(&mapping.relayed_at),
    )
}

/// One column as SQLite describes it.
struct Column {
    name: String,
    declared: String,
    primary: i64,
}

fn check_schema(connection: &Connection, mapping: &OutboxMapping) -> Result<(), OutboxError> {
    let database = mapping.database.display().to_string();
    let wrong = |what: String| OutboxError::Schema { database: database.clone(), what };
    let columns = columns(connection, &mapping.table).map_err(|error| failed(&database, &error))?;
    if columns.is_empty() {
        return Err(wrong(format!("there is no table {:?}", mapping.table)));
    }
    let optional = [&mapping.lane, &mapping.priority, &mapping.error];
    let needed = [&mapping.id, &mapping.relayed_at, &mapping.kind, &mapping.payload];
    for name in needed.into_iter().chain(optional.into_iter().flatten()) {
        if !columns.iter().any(|column| column.name.eq_ignore_ascii_case(name)) {
            return Err(wrong(format!("table {:?} has no column {name:?}", mapping.table)));
        }
    }
    match ids_are_used_once(connection, mapping, &columns) {
        Ok(true) => Ok(()),
        Ok(false) => Err(wrong(format!(
            "column {:?} may take a value again after its row is deleted; use an INTEGER PRIMARY KEY with AUTOINCREMENT, \
             or a UNIQUE column of ids that are never used again",
            mapping.id
        ))),
        Err(error) => Err(failed(&database, &error)),
    }
}

fn columns(connection: &Connection, table: &str) -> rusqlite::Result<Vec<Column>> {
    let mut statement = connection.prepare("SELECT name, type, pk FROM pragma_table_info(?1)")?;
    let rows = statement
        .query_map([table], |row| Ok(Column { name: row.get(0)?, declared: row.get(1)?, primary: row.get(2)? }))?;
    rows.collect()
}

/// A rowid comes back after its row was the highest and is deleted, unless the table says AUTOINCREMENT.
fn ids_are_used_once(connection: &Connection, mapping: &OutboxMapping, columns: &[Column]) -> rusqlite::Result<bool> {
    let is_alone = columns.iter().filter(|column| column.primary > 0).count() == 1;
    let of_id = columns.iter().find(|column| column.name.eq_ignore_ascii_case(&mapping.id));
    let is_rowid =
        of_id.is_some_and(|column| column.primary == 1 && is_alone && column.declared.eq_ignore_ascii_case("INTEGER"));
    if is_rowid {
        let sql: String = connection.query_row(
            "SELECT sql FROM sqlite_master WHERE type = 'table' AND name = ?1 COLLATE NOCASE",
            [&mapping.table],
            |row| row.get(0),
        )?;
        return Ok(sql.to_ascii_uppercase().contains("AUTOINCREMENT"));
    }
    let mut statement = connection.prepare(
        "SELECT 1 FROM pragma_index_list(?1) list WHERE list.\"unique\" = 1 AND list.partial = 0
         AND (SELECT count(*) FROM pragma_index_info(list.name)) = 1
         AND (SELECT name FROM pragma_index_info(list.name)) = ?2 COLLATE NOCASE",
    )?;
    statement.exists([&mapping.table, &mapping.id])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(database: PathBuf) -> OutboxMapping {
        OutboxMapping {
            database,
            table: "outbox".into(),
            id: "id".into(),
            relayed_at: "relayed_at".into(),
            kind: "kind".into(),
            payload: "payload".into(),
            lane: None,
            priority: None,
            error: None,
        }
    }

    fn open(id: &str) -> Result<OutboxSource, OutboxError> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("app.db");
        let sql = format!("CREATE TABLE outbox ({id}, kind TEXT, payload TEXT, relayed_at INTEGER)");
        Connection::open(&path).unwrap().execute_batch(&sql).unwrap();
        OutboxSource::open(&mapping(path))
    }

    #[test]
    fn f2_ids_that_can_come_back_are_refused() {
        for id in ["id INTEGER PRIMARY KEY", "id INTEGER", "id TEXT", "id integer primary key"] {
            assert_eq!(open(id).err().map(|error| error.code()), Some("outbox_schema"), "{id}");
        }
        for id in ["id INTEGER PRIMARY KEY AUTOINCREMENT", "id TEXT PRIMARY KEY", "id TEXT UNIQUE", "id INT UNIQUE"] {
            assert!(open(id).is_ok(), "{id}");
        }
    }

    #[test]
    fn f2_a_column_that_is_missing_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("app.db");
        let sql = "CREATE TABLE outbox (id INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT, payload TEXT)";
        Connection::open(&path).unwrap().execute_batch(sql).unwrap();
        let error = OutboxSource::open(&mapping(path)).err().unwrap();
        assert!(error.to_string().contains("no column \"relayed_at\""), "{error}");
    }

    #[test]
    fn f2_a_missing_file_is_said_and_not_made() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("app.db");
        assert_eq!(OutboxSource::open(&mapping(path.clone())).err().unwrap().code(), "outbox_missing");
        assert!(!path.exists());
    }

    #[test]
    fn f2_names_are_names_and_never_sql() {
        assert_eq!(quoted("a\"; DROP TABLE outbox; --"), "\"a\"\"; DROP TABLE outbox; --\"");
    }

    /// An outbox with every column that there can be, and rows.
    fn filled() -> (OutboxSource, Connection, tempfile::TempDir) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("app.db");
        let application = Connection::open(&path).unwrap();
        application
            .execute_batch(
                "CREATE TABLE outbox (id INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT, payload, lane TEXT,
                                      priority INTEGER, error TEXT, relayed_at INTEGER);
                 INSERT INTO outbox (kind, payload, lane, priority, error, relayed_at) VALUES
                     ('k', '{}',    'a',  2,    NULL,  NULL),
                     ('k', x'00ff', NULL, NULL, NULL,  NULL),
                     ('k', '{}',    NULL, NULL, NULL,  5),
                     ('k', '{}',    NULL, NULL, 'bad', NULL),
                     ('k', 7,       NULL, NULL, NULL,  NULL),
                     ('k', 0.5,     NULL, NULL, NULL,  NULL),
                     (NULL, NULL,   NULL, NULL, NULL,  NULL);",
            )
            .unwrap();
        let column = |name: &str| Some(name.to_owned());
        let mapping = OutboxMapping {
            lane: column("lane"),
            priority: column("priority"),
            error: column("error"),
            ..mapping(path)
        };
        (OutboxSource::open(&mapping).unwrap(), application, directory)
    }

    fn row(position: i64, kind: &str, payload: &[u8]) -> OutboxRow {
        OutboxRow {
            position,
            id: position.to_string(),
            kind: kind.into(),
            payload: payload.into(),
            lane: None,
            priority: 0,
        }
    }

    #[test]
    fn f2_rows_are_read_in_order_from_behind_a_position_without_those_that_are_relayed_or_refused() {
        let (source, _application, _directory) = filled();
        let first = OutboxRow { lane: Some("a".into()), priority: 2, ..row(1, "k", b"{}") };
        assert_eq!(source.rows_after(0, 2), Ok(vec![first, row(2, "k", &[0, 0xff])]));
        let rest = vec![row(5, "k", b"7"), row(6, "k", b"0.5"), row(7, "", b"")];
        assert_eq!(source.rows_after(2, 10), Ok(rest));
    }

    #[test]
    fn f2_no_further_row_is_read_once_there_is_a_megabyte_of_payloads() {
        let (source, application, _directory) = filled();
        application
            .execute_batch(
                "DELETE FROM outbox;
                 INSERT INTO outbox (id, kind, payload)
                 VALUES (1, 'k', zeroblob(600000)), (2, 'k', zeroblob(448576)), (3, 'k', x'00'), (4, 'k', x'00')",
            )
            .unwrap();
        let positions =
            |after| -> Vec<_> { source.rows_after(after, 10).unwrap().iter().map(|row| row.position).collect() };
        assert_eq!(positions(0), [1, 2]);
        assert_eq!(positions(1), [2, 3, 4]);
    }

    #[test]
    fn f2_a_row_is_marked_with_the_time_and_one_that_is_gone_needs_no_mark() {
        let (source, application, _directory) = filled();
        source.mark(&["1".into(), "4711".into(), "6".into()], 99).unwrap();
        let mut statement = application.prepare("SELECT relayed_at FROM outbox ORDER BY id").unwrap();
        let marks: Vec<Option<i64>> =
            statement.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap();
        assert_eq!(marks, [Some(99), None, Some(5), None, None, Some(99), None]);
    }

    #[test]
    fn f2_why_a_row_was_refused_is_written_beside_it_where_there_is_a_column_for_it() {
        let (source, application, _directory) = filled();
        assert_eq!(source.note_refusal("7", "it has no kind"), Ok(true));
        let noted: String =
            application.query_row("SELECT error FROM outbox WHERE id = 7", [], |row| row.get(0)).unwrap();
        assert_eq!(noted, "it has no kind");
        let without = open("id INTEGER PRIMARY KEY AUTOINCREMENT").unwrap();
        assert_eq!(without.note_refusal("7", "it has no kind"), Ok(false));
    }

    #[test]
    fn f2_a_lock_and_a_missing_file_are_told_from_other_failures() {
        let failure = |code| rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), None);
        let database = || "app.db".to_owned();
        for code in [rusqlite::ffi::SQLITE_BUSY, rusqlite::ffi::SQLITE_LOCKED] {
            assert_eq!(failed("app.db", &failure(code)), OutboxError::Locked { database: database() });
        }
        let missing = failed("app.db", &failure(rusqlite::ffi::SQLITE_CANTOPEN));
        assert_eq!(missing, OutboxError::Missing { database: database() });
        let full = failure(rusqlite::ffi::SQLITE_FULL);
        let other = OutboxError::Sqlite { database: database(), error: full.to_string() };
        assert_eq!(failed("app.db", &full), other);
    }
}
