//! A look at a database from outside: whether a daemon owns it, whether it is whole, and a copy of it. Nothing here changes
//! it, and all of it may happen while a daemon works.

use std::{
    fs::{self, File, OpenOptions},
    io::Read as _,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use leasehold_domain::Digest;
use rusqlite::{Connection, OpenFlags};
use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};

use crate::{
    StoreError,
    keys::{self, KeyProblem, KeyStatus},
    lock::LOCK_FILE,
    open::BUSY_TIMEOUT,
};

/// The process id of the daemon that owns the database of this directory, as it wrote it down; none when nobody owns it.
pub fn owner(directory: &Path) -> std::io::Result<Option<String>> {
    let mut file = match File::open(directory.join(LOCK_FILE)) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    // A shared lock is refused while a daemon holds its own, and let go at once.
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Ok(None),
        Err(Errno::WOULDBLOCK) => {
            let mut owner = String::new();
            file.read_to_string(&mut owner)?;
            Ok(Some(owner.trim().to_owned()))
        }
        Err(error) => Err(error.into()),
    }
}

/// What SQLite's quick check finds wrong with a database; nothing when it is whole. It reads the whole file.
pub fn quick_check(database: &Path) -> Result<Vec<String>, StoreError> {
    let connection = open(database)?;
    let mut statement = connection.prepare("PRAGMA quick_check(5)")?;
    let lines = statement.query_map([], |row| row.get::<_, String>(0))?.collect::<Result<Vec<_>, _>>()?;
    Ok(lines.into_iter().filter(|line| line != "ok").collect())
}

/// Copies a database as it stands at one moment into a new file of its owner alone, and checks the copy. It is durable
/// when this returns.
pub fn copy(database: &Path, into: &Path) -> Result<(), CopyError> {
    let failed = |error: std::io::Error| CopyError::Io { path: into.to_owned(), error };
    // The mode is set before the first byte is in the file; SQLite takes an empty file for a new database.
    let file = OpenOptions::new().write(true).create_new(true).open(into).map_err(failed)?;
    file.set_permissions(fs::Permissions::from_mode(0o600)).map_err(failed)?;
    let target = into.to_str().ok_or_else(|| CopyError::Path { path: into.to_owned() })?;
    open(database)?.execute("VACUUM INTO ?1", [target])?;
    let found = quick_check(into)?;
    if !found.is_empty() {
        return Err(CopyError::Damaged { found });
    }
    // SQLite does not sync what it vacuums into.
    file.sync_all().map_err(failed)
}

/// Why the key file does not open what is sealed in a database; nothing when it does. The key is never made here.
pub fn key_problem(database: &Path, key_file: &Path) -> Result<Option<KeyProblem>, StoreError> {
    let keys = keys::load_or_make(key_file, false)?;
    Ok(match keys::check(&open(database)?, key_file, keys)? {
        KeyStatus::Available(_) => None,
        KeyStatus::Unavailable(problem) => Some(problem),
    })
}

/// The digests of all components that a database names.
pub fn components(database: &Path) -> Result<Vec<Digest>, StoreError> {
    let connection = open(database)?;
    let mut statement = connection.prepare("SELECT DISTINCT digest FROM handler_versions ORDER BY digest")?;
    let digests = statement.query_map([], |row| Ok(Digest::from_bytes(row.get(0)?)))?;
    Ok(digests.collect::<Result<_, _>>()?)
}

/// Why a database could not be copied.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// The new file can't be used.
    #[error("{path}: {error}", path = path.display())]
    Io {
        /// Which one.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// SQLite takes names in UTF-8 alone.
    #[error("{path:?} is not UTF-8; choose another name")]
    Path {
        /// The name.
        path: PathBuf,
    },
    /// The copy is not whole, and so its source may not be either.
    #[error("the copy is not whole: {}", found.join("; "))]
    Damaged {
        /// What SQLite found.
        found: Vec<String>,
    },
    /// The database can't be read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<rusqlite::Error> for CopyError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Store(error.into())
    }
}

fn open(database: &Path) -> Result<Connection, StoreError> {
    let connection =
        Connection::open_with_flags(database, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    Ok(connection)
}
