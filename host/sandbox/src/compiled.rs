//! Keeps compiled components, so that a restart does not compile again.
//!
//! The engine checks no checksum when it loads one, so each file begins with the digest of the rest and is loaded from
//! the very bytes that were checked. A file is written aside, synced and renamed, in a directory of the owner alone. A
//! file that is stale, damaged, cut off or unreadable is a miss, never an error.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, Permissions},
    hash::{Hash, Hasher},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::PathBuf,
};

use leasehold_domain::Digest;
use sha2::{Digest as _, Sha256};
use wasmtime::{Engine, component::Component};

use crate::SandboxError;

const DIGEST_BYTES: usize = 32;

/// The directory of compiled components, for one engine.
#[derive(Debug, Clone)]
pub(crate) struct CompiledFiles {
    directory: PathBuf,
    engine_digest: Digest,
}

impl CompiledFiles {
    /// Makes the directory and takes everybody else's access to it away.
    pub(crate) fn open(directory: PathBuf, engine: &Engine) -> Result<Self, SandboxError> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&directory);
        let closed = made.and_then(|()| fs::set_permissions(&directory, Permissions::from_mode(0o700)));
        match closed {
            Ok(()) => Ok(Self { directory, engine_digest: digest_of_engine(engine) }),
            Err(source) => Err(SandboxError::Directory { path: directory, source }),
        }
    }

    /// The compiled component, when a sound file of it is there.
    pub(crate) fn load(&self, engine: &Engine, component: Digest) -> Option<Component> {
        let bytes = fs::read(self.path(component)).ok()?;
        let (digest, compiled) = bytes.split_at_checked(DIGEST_BYTES)?;
        if Digest::of(compiled).as_bytes() != digest {
            tracing::warn!(component = %component.short(), "a compiled component is damaged and is compiled again");
            return None;
        }
        deserialize(engine, compiled)
    }

    /// Keeps a compiled component and forgets those of other engines. Failing costs a compilation later on.
    pub(crate) fn store(&self, component: Digest, compiled: &[u8]) {
        if let Err(error) = self.write(component, compiled) {
            tracing::warn!(%error, component = %component.short(), "a compiled component could not be kept");
            return;
        }
        self.forget_others(component);
    }

    fn write(&self, component: Digest, compiled: &[u8]) -> io::Result<()> {
        let path = self.path(component);
        let aside = path.with_extension("part");
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&aside)?;
        file.write_all(Digest::of(compiled).as_bytes())?;
        file.write_all(compiled)?;
        file.sync_all()?;
        fs::rename(&aside, &path)?;
        File::open(&self.directory)?.sync_all()
    }

    fn forget_others(&self, component: Digest) {
        let kept = self.path(component);
        let prefix = component.to_string();
        let Ok(entries) = fs::read_dir(&self.directory) else { return };
        for path in entries.flatten().map(|entry| entry.path()) {
            let is_of_component =
                path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(&prefix));
            if is_of_component && path != kept {
                // A file that can't be removed is only in the way of space.
                let _ = fs::remove_file(path);
            }
        }
    }

    fn path(&self, component: Digest) -> PathBuf {
        self.directory.join(format!("{component}-{}.cwasm", self.engine_digest.short()))
    }
}

#[allow(unsafe_code)]
fn deserialize(engine: &Engine, compiled: &[u8]) -> Option<Component> {
    // SAFETY: these are machine code and metadata that this engine's own serializer wrote. They have just been checked
    // against the digest that was written with them, and the directory is accessible to the daemon's user alone, who
    // could run any code as the daemon anyway.
    match unsafe { Component::deserialize(engine, compiled) } {
        Ok(component) => Some(component),
        Err(error) => {
            tracing::info!(%error, "a compiled component is of another engine and is compiled again");
            None
        }
    }
}

fn digest_of_engine(engine: &Engine) -> Digest {
    struct Sha(Sha256);
    impl Hasher for Sha {
        fn write(&mut self, bytes: &[u8]) {
            self.0.update(bytes);
        }
        fn finish(&self) -> u64 {
            0
        }
    }
    let mut hasher = Sha(Sha256::new());
    engine.precompile_compatibility_hash().hash(&mut hasher);
    Digest::from_bytes(hasher.0.finalize().into())
}
