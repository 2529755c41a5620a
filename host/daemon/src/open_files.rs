//! Files that hold secrets, and whether others can read them. It changes no file's mode: whose it is has to.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use crate::config::Config;

/// A file of secrets that not only its owner can reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OpenFile {
    pub(crate) path: PathBuf,
    /// Its permission bits.
    pub(crate) mode: u32,
}

impl std::fmt::Display for OpenFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let path = self.path.display();
        write!(f, "{path} has mode {:03o}, so that others than its owner can use it: `chmod 600 {path}`", self.mode)
    }
}

/// The key file and the secrets' files of a configuration that are open to others.
pub(crate) fn open_files(config: &Config) -> Vec<OpenFile> {
    let secrets = config.handlers.values().flat_map(|handler| &handler.secret_files).chain(&config.alerts.secret_files);
    [&config.daemon.key_file].into_iter().chain(secrets).filter_map(|path| open_file(path)).collect()
}

/// The file, if others can reach it; one that is missing is closed.
fn open_file(path: &Path) -> Option<OpenFile> {
    let mode = fs::metadata(path).ok()?.permissions().mode() & 0o777;
    (mode & 0o077 != 0).then(|| OpenFile { path: path.to_owned(), mode })
}

/// Warns of each in the daemon's log.
pub(crate) fn warn_of_open_files(config: &Config) {
    for open in open_files(config) {
        tracing::warn!(code = "file_open_to_others", "{open}");
    }
}
