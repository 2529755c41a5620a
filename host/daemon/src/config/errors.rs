//! What is wrong with a configuration, all of it at once. It never says more of a secret than its name.

use std::{
    fmt,
    path::{Path, PathBuf},
};

/// One thing that is wrong: where, with what, and what is allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// The line, from 1; absent when the file could not be read.
    pub line: Option<usize>,
    /// The key with its sections, as in `kinds."email.send".heartbeat`; empty when no key is concerned.
    pub key: String,
    /// What is wrong and what is allowed.
    pub message: String,
}

/// Everything that is wrong with one configuration file, in the order of its lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigErrors {
    path: PathBuf,
    errors: Vec<ConfigError>,
}

impl ConfigErrors {
    pub(super) fn new(path: &Path, mut errors: Vec<ConfigError>) -> Self {
        errors.sort_by_key(|error| error.line);
        Self { path: path.to_owned(), errors }
    }

    /// The file could not be read.
    pub(super) fn unreadable(path: &Path, error: &std::io::Error) -> Self {
        let message = format!("the configuration can't be read: {error}; name it with --config or LEASEHOLD_CONFIG");
        Self::new(path, vec![ConfigError { line: None, key: String::new(), message }])
    }

    /// The errors.
    pub fn errors(&self) -> &[ConfigError] {
        &self.errors
    }

    /// The file they are in.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.errors.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{}", self.path.display())?;
            if let Some(line) = error.line {
                write!(f, ":{line}")?;
            }
            if !error.key.is_empty() {
                write!(f, ": {}", error.key)?;
            }
            write!(f, ": {}", error.message)?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}
