//! Opening a database: directory, lock, connection, migrations, keys. It never makes a key beside an old database.

use std::{
    fs,
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicI64},
    time::Duration,
};

use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, config::DbConfig};
use rusqlite_migration::{M, Migrations};

use crate::{
    Shared, Store, StoreError,
    health::Health,
    job_ids::JobIds,
    keys::{self, KeyProblem, KeyStatus},
    lock,
    readers::Readers,
    writer::Writer,
};

/// In the order in which they are applied; what has been released is never changed.
pub(crate) const MIGRATIONS: &[&str] = &[
    include_str!("../migrations/0001_queue.sql"),
    include_str!("../migrations/0002_bulk_replays.sql"),
    include_str!("../migrations/0003_incidents.sql"),
    include_str!("../migrations/0004_job_notes.sql"),
    include_str!("../migrations/0005_tokens.sql"),
    include_str!("../migrations/0006_originals.sql"),
    include_str!("../migrations/0007_queue_mends.sql"),
    include_str!("../migrations/0008_wall_clock.sql"),
    include_str!("../migrations/0009_counts.sql"),
];
/// How long SQLite waits for another program's lock before a call fails with `database_busy`.
pub(crate) const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
const READERS: usize = 4;
/// How long a caller's question may take.
const TIME_BOX: Duration = Duration::from_secs(5);
/// Connections for what the daemon itself has to know, which no caller's question keeps waiting.
const OWN_READERS: usize = 2;

/// What a commit means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// A commit survives power loss (`synchronous=FULL`).
    Full,
    /// A commit survives a crash of the process; power loss can take back the last ones (`synchronous=NORMAL`).
    Normal,
}

/// How a database is opened.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    /// The directory of the database, made when it is missing.
    pub directory: PathBuf,
    /// The key file.
    pub key_file: PathBuf,
    /// What a commit means.
    pub durability: Durability,
    /// At how many pages the write-ahead log is moved into the database.
    pub wal_autocheckpoint_pages: u32,
    /// How long one transaction may take calls in, so that a heartbeat never waits long behind a flood of enqueues. The
    /// only time of the clock on which the order of writes depends: a test that repeats an order takes the greatest.
    pub batch_time: Duration,
}

impl StoreOptions {
    /// What `batch_time` is in a daemon.
    pub const BATCH_TIME: Duration = Duration::from_millis(20);

    /// The database's file.
    #[must_use]
    pub fn database(&self) -> PathBuf {
        self.directory.join("leasehold.db")
    }
}

/// Why a database can't be opened. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process owns it.
    #[error("the database in {directory} is owned by another daemon (process {owner}); stop that one first")]
    Locked {
        /// The directory.
        directory: String,
        /// The owner's process id, as it wrote it down.
        owner: String,
    },
    /// The directory lies on a network file system.
    #[error("{directory} lies on {name}, whose locks and syncs can't be relied on; use a local disk")]
    NetworkFileSystem {
        /// The directory.
        directory: String,
        /// The file system.
        name: String,
    },
    /// The directory lies on a file system that can't be written to.
    #[error(
        "{path} can't be written to, because its file system is read-only; mount it writable or name another data \
         directory (data_dir under [daemon])"
    )]
    ReadOnly {
        /// The file or directory.
        path: String,
    },
    /// The file is no database.
    #[error(
        "{path} is not an SQLite database, or its header is damaged. If it was Leasehold's, keep it aside and restore the \
         backup; else move it away or name another data directory"
    )]
    NotADatabase {
        /// The file.
        path: String,
    },
    /// The database is damaged.
    #[error(
        "{path} is damaged ({what}) and was left as it is. See with SQLite's `PRAGMA integrity_check` what is wrong with \
         it, keep it aside and restore the backup"
    )]
    Damaged {
        /// The file.
        path: String,
        /// What was found.
        what: String,
    },
    /// The database was written by a newer Leasehold.
    #[error(
        "{path} has schema {found}, this Leasehold knows schemas up to {known}; run the newer Leasehold that wrote it"
    )]
    NewerSchema {
        /// The file.
        path: String,
        /// The schema that it has.
        found: i64,
        /// The newest schema that this program knows.
        known: usize,
    },
    /// The file is a database of another program.
    #[error("{path} is a database of another program; name another data directory")]
    Foreign {
        /// The file.
        path: String,
    },
    /// A file or directory can't be used.
    #[error("{path}: {error}")]
    Io {
        /// Which one.
        path: String,
        /// Why.
        error: std::io::Error,
    },
    /// Anything else that SQLite says.
    #[error("{path}: {error}")]
    Store {
        /// The database's file.
        path: String,
        /// Why.
        error: StoreError,
    },
}

impl OpenError {
    /// The stable code of the error.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Locked { .. } => "database_locked",
            Self::NetworkFileSystem { .. } => "network_file_system",
            Self::NotADatabase { .. } => "not_a_database",
            Self::Damaged { .. } => "database_corrupt",
            Self::NewerSchema { .. } => "newer_schema",
            Self::Foreign { .. } => "foreign_database",
            Self::Io { .. } | Self::ReadOnly { .. } => "data_directory",
            Self::Store { error, .. } => error.code(),
        }
    }
}

impl OpenError {
    /// A file or directory that can't be used, and what to do about it where that is clear.
    pub(crate) fn io(path: &Path, error: std::io::Error) -> Self {
        let path = path.display().to_string();
        if error.kind() == std::io::ErrorKind::ReadOnlyFilesystem {
            Self::ReadOnly { path }
        } else {
            Self::Io { path, error }
        }
    }
}

impl Store {
    /// Opens the database of a directory, or makes it. Takes the lock for the life of the handle.
    pub fn open(options: &StoreOptions) -> Result<Self, OpenError> {
        make_directory(&options.directory)?;
        let lock = lock::take(&options.directory)?;
        let path = options.database();
        let (connection, keys) = open_database(options, &path).map_err(|problem| problem.at(&path))?;
        let store = |error: StoreError| OpenError::Store { path: path.display().to_string(), error };
        let latest_ms = Arc::new(AtomicI64::new(persisted_clock_ms(&connection).map_err(store)?.unwrap_or(0)));
        let writer_connection = WriterConnection::new(connection, options, &path);
        let health = Arc::<Health>::default();
        let thread = |error| OpenError::Io { path: path.display().to_string(), error };
        Ok(Self {
            shared: Arc::new(Shared {
                writer: Writer::start(
                    writer_connection,
                    Arc::clone(&latest_ms),
                    Arc::clone(&health),
                    options.batch_time,
                )
                .map_err(thread)?,
                readers: Readers::new(path.clone(), READERS, Some(TIME_BOX), Arc::clone(&health)),
                own_readers: Readers::new(path.clone(), OWN_READERS, None, Arc::clone(&health)),
                health,
                keys: Arc::new(keys),
                job_ids: JobIds::default(),
                latest_ms,
                _lock: lock,
            }),
        })
    }

    /// The last time that was persisted on the queue's clock, or 0 in a new database.
    #[must_use]
    pub fn persisted_clock_ms(&self) -> i64 {
        self.shared.latest_ms.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Why nothing can be sealed or opened, if that is so.
    #[must_use]
    pub fn key_problem(&self) -> Option<&KeyProblem> {
        match &*self.shared.keys {
            KeyStatus::Available(_) => None,
            KeyStatus::Unavailable(problem) => Some(problem),
        }
    }

    /// What is damaged about the database, if damage was found. Nothing is written then.
    #[must_use]
    pub fn damage(&self) -> Option<&str> {
        self.shared.health.damage()
    }

    /// Why no write goes well at the moment, if so: damage, a full disk, a lock of another program's.
    #[must_use]
    pub fn write_problem(&self) -> Option<StoreError> {
        self.shared.health.problem()
    }

    /// Runs what waits, moves the log into the database and closes it.
    pub fn close(&self) {
        self.shared.readers.close();
        self.shared.own_readers.close();
        self.shared.writer.close();
    }

    /// Notes the queue's time, which the writer persists with what it commits next.
    pub(crate) fn note_time(&self, now_ms: i64) {
        self.shared.latest_ms.fetch_max(now_ms, std::sync::atomic::Ordering::Relaxed);
    }
}

fn make_directory(directory: &Path) -> Result<(), OpenError> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(|error| OpenError::io(directory, error))
}

/// Why the database's file could not be opened, before its path is joined to it.
enum Problem {
    Newer(i64),
    Foreign,
    Store(StoreError),
}

impl<E: Into<StoreError>> From<E> for Problem {
    fn from(error: E) -> Self {
        Self::Store(error.into())
    }
}

impl Problem {
    fn at(self, path: &Path) -> OpenError {
        let path = path.display().to_string();
        match self {
            Self::Newer(found) => OpenError::NewerSchema { path, found, known: MIGRATIONS.len() },
            Self::Foreign => OpenError::Foreign { path },
            Self::Store(StoreError::Sqlite(error)) if error.sqlite_error_code() == Some(ErrorCode::NotADatabase) => {
                OpenError::NotADatabase { path }
            }
            Self::Store(error) if error.is_damage() => OpenError::Damaged { path, what: error.what_is_damaged() },
            Self::Store(error) => OpenError::Store { path, error },
        }
    }
}

fn open_database(options: &StoreOptions, path: &Path) -> Result<(Connection, KeyStatus), Problem> {
    let is_new = fs::metadata(path).map_or(true, |metadata| metadata.len() == 0);
    if !is_new {
        refuse_unknown_schema(path)?;
    }
    let keys = keys::load_or_make(&options.key_file, is_new)?;
    if is_new && let Err(problem) = keys {
        return Err(Problem::Store(StoreError::KeyUnavailable(problem.to_string())));
    }
    let mut connection = open_connection(path, options, is_new)?;
    migrate(&mut connection)?;
    let status = keys::check(&connection, &options.key_file, keys)?;
    Ok((connection, status))
}

/// Looks before anything is written: a database of a newer version or of another program is left as it is.
fn refuse_unknown_schema(path: &Path) -> Result<(), Problem> {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    let has_log = fs::metadata(log).is_ok_and(|metadata| metadata.len() > 0);
    let connection =
        Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    // Closing it would else move a log that is there into the file. Without one it takes the files away that it made.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, has_log)?;
    let found: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    if usize::try_from(found).map_or(true, |found| found > MIGRATIONS.len()) {
        return Err(Problem::Newer(found));
    }
    let tables: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_master WHERE type = 'table'", [], |row| row.get(0))?;
    let own: i64 = connection.query_row(
        "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name IN ('meta', 'jobs', 'ended_jobs', 'job_keys')",
        [],
        |row| row.get(0),
    )?;
    if tables > 0 && (own < 4 || found == 0) { Err(Problem::Foreign) } else { Ok(()) }
}

fn open_connection(path: &Path, options: &StoreOptions, is_new: bool) -> Result<Connection, StoreError> {
    let create = if is_new { OpenFlags::SQLITE_OPEN_CREATE } else { OpenFlags::empty() };
    let connection = Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | create,
    )?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(128);
    let synchronous = match options.durability {
        Durability::Full => "FULL",
        Durability::Normal => "NORMAL",
    };
    if is_new {
        // Only before the first table is made. Later it would change nothing and write all the same, which a full disk
        // refuses.
        connection.execute_batch("PRAGMA auto_vacuum = INCREMENTAL")?;
    }
    // The page cache is small: at each commit that moved pages SQLite walks over all of it, and what it lacks is mostly in
    // the system's.
    connection.execute_batch(&format!(
        "PRAGMA journal_mode = WAL;
         PRAGMA synchronous = {synchronous};
         PRAGMA wal_autocheckpoint = {};
         PRAGMA journal_size_limit = 67108864;
         PRAGMA temp_store = MEMORY;
         PRAGMA cache_size = -8192;
         PRAGMA foreign_keys = ON;",
        options.wal_autocheckpoint_pages
    ))?;
    Ok(connection)
}

fn migrate(connection: &mut Connection) -> Result<(), StoreError> {
    let migrations: Migrations<'_> = MIGRATIONS.iter().copied().map(M::up).collect();
    migrations.to_latest(connection).map_err(|error| match error {
        rusqlite_migration::Error::RusqliteError { err, .. } => err.into(),
        other => StoreError::Unexpected(format!("the schema could not be brought up to date: {other}")),
    })
}

fn persisted_clock_ms(connection: &Connection) -> Result<Option<i64>, StoreError> {
    Ok(connection.query_row("SELECT value FROM meta WHERE name = 'queue_clock_ms'", [], |row| row.get(0)).optional()?)
}

/// The writer's connection, which can be opened anew after an I/O error.
pub(crate) struct WriterConnection {
    connection: Result<Connection, StoreError>,
    /// The connection that failed, until another is open.
    before: Option<Connection>,
    options: StoreOptions,
    path: PathBuf,
    /// Which file was opened first, by device and inode. None where that can't be told.
    file: Option<(u64, u64)>,
}

impl WriterConnection {
    fn new(connection: Connection, options: &StoreOptions, path: &Path) -> Self {
        let file = identity(path).ok();
        Self { connection: Ok(connection), before: None, options: options.clone(), path: path.to_owned(), file }
    }

    /// Whether the database's path still leads to the file that was opened. What is written to one that was moved away,
    /// or that another was put in the place of, is gone with the process.
    pub(crate) fn check_in_place(&self) -> Result<(), StoreError> {
        let what = match (identity(&self.path), self.file) {
            (Ok(found), Some(opened)) if found != opened => "was replaced",
            (Err(error), _) if error.kind() == std::io::ErrorKind::NotFound => "was moved away",
            _ => return Ok(()),
        };
        Err(StoreError::Damaged { what: format!("its file {} {what} while the daemon ran", self.path.display()) })
    }

    pub(crate) fn get(&self) -> Result<&Connection, StoreError> {
        self.connection.as_ref().map_err(Clone::clone)
    }

    /// Opens another connection and closes this one: after an I/O error at a commit nobody knows what SQLite still holds
    /// in memory, so the state is read anew. In this order, because the log may hold the commit whole although its sync
    /// failed: the next connection after the last one was closed would recover the log from its file and take that commit
    /// for done, and its calls would be run a second time.
    pub(crate) fn reopen(&mut self) {
        if let Ok(connection) = std::mem::replace(&mut self.connection, Err(StoreError::Closed)) {
            self.before = Some(connection);
        }
        // Never made anew: an empty database in the place of one that is gone would answer for it.
        self.connection = open_connection(&self.path, &self.options, false);
        match &self.connection {
            Ok(_) => self.before = None,
            Err(error) => {
                tracing::error!(%error, path = %self.path.display(), "the database could not be opened again");
            }
        }
    }

    pub(crate) fn begin(&self) -> Result<(), StoreError> {
        self.get()?.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        Ok(())
    }

    pub(crate) fn ensure_open(&mut self) {
        if self.connection.is_err() {
            self.reopen();
        }
    }

    /// Moves the log into the database and closes it. The files of a damaged one are left as they are.
    pub(crate) fn close(&mut self, is_damaged: bool) {
        if let Ok(connection) = std::mem::replace(&mut self.connection, Err(StoreError::Closed)) {
            // A failed checkpoint leaves the log, which the next start reads.
            let _ = if is_damaged {
                connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map(drop)
            } else {
                connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")
            };
            let _ = connection.close();
        }
    }
}

fn identity(path: &Path) -> std::io::Result<(u64, u64)> {
    fs::metadata(path).map(|metadata| (metadata.dev(), metadata.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;

    #[test]
    fn o6_a_read_only_file_system_is_named_with_what_to_do_about_it() {
        let error = OpenError::io(Path::new("/data"), std::io::ErrorKind::ReadOnlyFilesystem.into());
        assert_eq!(error.code(), "data_directory");
        assert_eq!(
            error.to_string(),
            "/data can't be written to, because its file system is read-only; mount it writable or name another data \
             directory (data_dir under [daemon])"
        );
    }

    /// A writer's connection to a database that nobody else has open.
    fn writer(options: &StoreOptions) -> WriterConnection {
        let path = options.database();
        WriterConnection::new(open_connection(&path, options, false).unwrap(), options, &path)
    }

    fn is_in_transaction(writer: &WriterConnection) -> bool {
        !writer.get().unwrap().is_autocommit()
    }

    #[test]
    fn o6_a_connection_that_is_opened_anew_has_nothing_of_the_transaction_that_failed() {
        let (store, options, _directory) = fixtures::open();
        store.close();
        let mut writer = writer(&options);
        writer.begin().unwrap();
        writer.ensure_open();
        assert!(is_in_transaction(&writer), "one that is open is left alone");
        writer.reopen();
        assert!(!is_in_transaction(&writer));
    }

    #[test]
    fn o6_a_database_that_can_not_be_opened_again_is_tried_again_and_never_made_anew() {
        let (store, options, directory) = fixtures::open();
        store.close();
        let mut writer = writer(&options);
        let (path, aside) = (options.database(), directory.path().join("aside"));
        fs::rename(&path, &aside).unwrap();
        writer.reopen();
        assert_eq!(writer.get().unwrap_err().code(), "database_io");
        assert!(!path.exists(), "an empty database was made in the place of one that is gone");
        fs::rename(&aside, &path).unwrap();
        writer.ensure_open();
        assert_eq!(persisted_clock_ms(writer.get().unwrap()).unwrap(), None);
    }
}
