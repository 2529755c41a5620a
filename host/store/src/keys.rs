//! The key file: what seals, and what indexes clients' keys. A key is made only together with a new database and is
//! never written beside an old one.

use std::{fs, io::Write, os::unix::fs::OpenOptionsExt, path::Path};

use hmac::{Hmac, Mac};
use leasehold_domain::redaction::FingerprintKey;
use rusqlite::{Connection, OptionalExtension, params};
use sha2::Sha256;
use zeroize::Zeroizing;

use crate::{Store, StoreError, random, seal::Sealer};

const HEADER: &str = "leasehold-key-1";

/// The two keys of a database: one seals, the other makes keyed digests and is left alone by a rotation.
pub struct Keys {
    pub(crate) key_id: [u8; 4],
    pub(crate) sealer: Sealer,
    seal_key: Zeroizing<[u8; 32]>,
    index_key: Zeroizing<[u8; 32]>,
}

/// Why there is no usable key. Reads go on; what seals is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyProblem {
    /// The file is not there.
    #[error("the key file {path} is missing; put back the one that was made with this database")]
    Missing {
        /// Where it should be.
        path: String,
    },
    /// The file can't be read as a key.
    #[error("the key file {path} can't be read as a key: {why}")]
    Unreadable {
        /// Where it is.
        path: String,
        /// What is wrong with it.
        why: String,
    },
    /// The file is another database's.
    #[error("the key file {path} belongs to another database; put back the one that was made with this database")]
    Wrong {
        /// Where it is.
        path: String,
    },
}

/// The keys, or why there are none.
pub enum KeyStatus {
    /// They are here and are this database's.
    Available(Box<Keys>),
    /// They are not.
    Unavailable(KeyProblem),
}

impl KeyStatus {
    pub(crate) fn get(&self) -> Result<&Keys, StoreError> {
        match self {
            Self::Available(keys) => Ok(keys),
            Self::Unavailable(problem) => Err(StoreError::KeyUnavailable(problem.to_string())),
        }
    }
}

impl Keys {
    fn new(key_id: [u8; 4], seal_key: [u8; 32], index_key: [u8; 32]) -> Self {
        let sealer = Sealer::new(key_id, &seal_key);
        Self { key_id, sealer, seal_key: Zeroizing::new(seal_key), index_key: Zeroizing::new(index_key) }
    }

    fn generate() -> Result<Self, StoreError> {
        let mut bytes = Zeroizing::new([0; 68]);
        random::fill(bytes.as_mut_slice())?;
        Ok(Self::from_bytes(&bytes))
    }

    fn from_bytes(bytes: &[u8; 68]) -> Self {
        let part = |from: usize| std::array::from_fn(|at| bytes[from + at]);
        Self::new(std::array::from_fn(|at| bytes[at]), part(4), part(36))
    }

    /// A keyed digest (HMAC-SHA256, RFC 2104) of parts, each of which is bound by its length.
    pub(crate) fn digest(&self, what: &str, parts: &[&[u8]]) -> [u8; 32] {
        let mut mac =
            Hmac::<Sha256>::new_from_slice(self.index_key.as_slice()).expect("HMAC takes a key of any length");
        for part in [what.as_bytes()].iter().chain(parts) {
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part);
        }
        mac.finalize().into_bytes().into()
    }

    /// Tells this key from another without telling anything of it.
    fn check_value(&self) -> [u8; 32] {
        let mut mac = Hmac::<Sha256>::new_from_slice(self.seal_key.as_slice()).expect("HMAC takes a key of any length");
        mac.update(b"leasehold key check\0");
        mac.update(self.index_key.as_slice());
        mac.finalize().into_bytes().into()
    }
}

impl Store {
    /// What fingerprints of masked values are made with; a rotation leaves it alone. Absent without the right key.
    #[must_use]
    pub fn fingerprint_key(&self) -> Option<FingerprintKey> {
        let keys = self.shared.keys.get().ok()?;
        Some(FingerprintKey::new(keys.digest("fingerprints of masked values", &[])))
    }
}

/// Reads the key file, or makes it when the database is new.
pub(crate) fn load_or_make(path: &Path, database_is_new: bool) -> Result<Result<Keys, KeyProblem>, StoreError> {
    let shown = path.display().to_string();
    match fs::read_to_string(path) {
        Ok(text) => {
            Ok(parse(&Zeroizing::new(text)).map_err(|why| KeyProblem::Unreadable { path: shown, why: why.into() }))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && database_is_new => {
            let keys = Keys::generate()?;
            Ok(write(path, &keys)
                .map(|()| keys)
                .map_err(|error| KeyProblem::Unreadable { path: shown, why: format!("it can't be written: {error}") }))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Err(KeyProblem::Missing { path: shown })),
        Err(error) => Ok(Err(KeyProblem::Unreadable { path: shown, why: error.to_string() })),
    }
}

fn parse(text: &str) -> Result<Keys, &'static str> {
    let rest = text.trim().strip_prefix(HEADER).ok_or("it does not begin with leasehold-key-1")?;
    let mut bytes = Zeroizing::new([0; 68]);
    hex::decode_to_slice(rest.trim(), bytes.as_mut_slice()).map_err(|_| "it is not 136 hexadecimal digits")?;
    Ok(Keys::from_bytes(&bytes))
}

/// Written whole and synced before the database that needs it exists: a crash in between leaves a key without a
/// database, which the next start takes up, and never a database without its key.
fn write(path: &Path, keys: &Keys) -> std::io::Result<()> {
    let bytes = [&keys.key_id[..], keys.seal_key.as_slice(), keys.index_key.as_slice()].concat();
    let text = Zeroizing::new(format!("{HEADER} {}\n", hex::encode(bytes)));
    let temporary = path.with_extension("key.tmp");
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::File::open(directory)?.sync_all()?;
    Ok(())
}

/// Compares the key with the check value in the database, or puts the value there when the database is new.
pub(crate) fn check(
    connection: &Connection,
    path: &Path,
    keys: Result<Keys, KeyProblem>,
) -> Result<KeyStatus, StoreError> {
    let stored: Option<Vec<u8>> =
        connection.query_row("SELECT value FROM meta WHERE name = 'key_check'", [], |row| row.get(0)).optional()?;
    let keys = match keys {
        Ok(keys) => keys,
        Err(problem) => return Ok(KeyStatus::Unavailable(problem)),
    };
    match stored {
        None => {
            connection.execute(
                "INSERT INTO meta (name, value) VALUES ('key_check', ?1), ('key_id', ?2)",
                params![keys.check_value(), keys.key_id],
            )?;
            Ok(KeyStatus::Available(Box::new(keys)))
        }
        Some(stored) if stored == keys.check_value() => Ok(KeyStatus::Available(Box::new(keys))),
        Some(_) => Ok(KeyStatus::Unavailable(KeyProblem::Wrong { path: path.display().to_string() })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d4_a_key_file_that_is_named_without_a_directory_is_written_where_the_process_stands() {
        // The file is there before, so that it goes with its handle.
        let file = tempfile::NamedTempFile::new_in(".").unwrap();
        let name = Path::new(file.path().file_name().unwrap());
        let keys = Keys::generate().unwrap();
        write(name, &keys).unwrap();
        let found = load_or_make(name, false).unwrap().unwrap_or_else(|problem| panic!("{problem}"));
        assert_eq!(found.check_value(), keys.check_value());
    }
}
