//! Stored components as files, by digest. A file is durable before anything names it, and is checked against its
//! digest whenever it is read. Nothing here knows names, versions or states.

use std::{
    fs,
    io::Write,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use leasehold_domain::Digest;

use crate::blocking::off_thread;

/// The directory of stored components.
#[derive(Debug, Clone)]
pub(crate) struct Artefacts {
    directory: PathBuf,
    /// Held while a file is written: two that store the same bytes at once would write the same temporary file.
    writing: Arc<Mutex<()>>,
}

/// Why a stored component can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ArtefactError {
    /// Its file is gone.
    #[error("the stored component {path} is missing; push the version again to put it back")]
    Missing {
        /// Where it should be.
        path: String,
    },
    /// Its bytes are not those that were stored.
    #[error("the stored component {path} does not have its digest; push the version again to put it right")]
    Damaged {
        /// Where it is.
        path: String,
    },
    /// Its file can't be read or written.
    #[error("the stored component {path}: {error}")]
    Io {
        /// Which file.
        path: String,
        /// Why.
        error: std::io::Error,
    },
}

impl Artefacts {
    /// Makes the directory if it is missing.
    pub(crate) fn open(directory: PathBuf) -> Result<Self, ArtefactError> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory).map_err(|error| io(&directory, error))?;
        Ok(Self { directory, writing: Arc::default() })
    }

    fn path(&self, digest: Digest) -> PathBuf {
        self.directory.join(format!("{digest}.wasm"))
    }

    /// Stores bytes under their digest, durably. A file that is there and whole is left alone.
    pub(crate) async fn put(&self, bytes: Bytes) -> Result<Digest, ArtefactError> {
        let artefacts = self.clone();
        off_thread(move || {
            fail::fail_point!("artefacts.put");
            artefacts.put_now(&bytes)
        })
        .await
    }

    /// The bytes of a digest, checked against it.
    pub(crate) async fn get(&self, digest: Digest) -> Result<Vec<u8>, ArtefactError> {
        let artefacts = self.clone();
        off_thread(move || {
            fail::fail_point!("artefacts.get");
            artefacts.get_now(digest)
        })
        .await
    }

    fn put_now(&self, bytes: &[u8]) -> Result<Digest, ArtefactError> {
        let digest = Digest::of(bytes);
        let _one_at_a_time = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        if self.get_now(digest).is_ok() {
            return Ok(digest);
        }
        let path = self.path(digest);
        self.write(&path, bytes).map_err(|error| io(&path, error))?;
        Ok(digest)
    }

    /// Written under another name, synced and renamed: a crash leaves no file that is not whole.
    fn write(&self, path: &Path, bytes: &[u8]) -> std::io::Result<()> {
        let temporary = path.with_extension("tmp");
        let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, path)?;
        fs::File::open(&self.directory)?.sync_all()
    }

    fn get_now(&self, digest: Digest) -> Result<Vec<u8>, ArtefactError> {
        let path = self.path(digest);
        let bytes = fs::read(&path).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => ArtefactError::Missing { path: path.display().to_string() },
            _ => io(&path, error),
        })?;
        if Digest::of(&bytes) == digest {
            Ok(bytes)
        } else {
            Err(ArtefactError::Damaged { path: path.display().to_string() })
        }
    }
}

fn io(path: &Path, error: std::io::Error) -> ArtefactError {
    ArtefactError::Io { path: path.display().to_string(), error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn h1_a_stored_component_is_checked_against_its_digest() {
        let directory = tempfile::tempdir().unwrap();
        let artefacts = Artefacts::open(directory.path().join("handlers")).unwrap();
        let digest = artefacts.put(Bytes::from_static(b"component")).await.unwrap();
        assert_eq!(artefacts.get(digest).await.unwrap(), b"component");
        fs::write(artefacts.path(digest), b"componenT").unwrap();
        assert!(matches!(artefacts.get(digest).await, Err(ArtefactError::Damaged { .. })));
        artefacts.put(Bytes::from_static(b"component")).await.unwrap();
        assert_eq!(artefacts.get(digest).await.unwrap(), b"component");
        fs::remove_file(artefacts.path(digest)).unwrap();
        assert!(matches!(artefacts.get(digest).await, Err(ArtefactError::Missing { .. })));
    }
}
