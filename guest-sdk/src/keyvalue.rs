//! Stores of values by name, kept by the host. What is written becomes real with the job's success, and only then.

use crate::{
    Failure,
    host::{self, Bucket},
};

/// Why a store did not do as it was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// There is no store of that name.
    NoSuchStore,
    /// The handler was not granted this access to the store.
    AccessDenied,
    /// Anything else, in the host's words.
    Other(String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            // The operator mends these two in the configuration; the handler has no defect.
            Error::NoSuchStore => Self::rejected("keyvalue.denied", "there is no key-value store of that name"),
            Error::AccessDenied => {
                Self::rejected("keyvalue.denied", "the handler was not granted this access to a key-value store")
            }
            Error::Other(reason) => Self::retry("keyvalue.unavailable", format!("a key-value store failed: {reason}")),
        }
    }
}

/// Opens the store of that name.
pub fn open(name: &str) -> Result<Store, Error> {
    host::open_store(name).map(Store)
}

/// An open store.
pub struct Store(Bucket);

impl Store {
    /// The value under a key, if there is one.
    pub fn get(&self, key: &str) -> Result<Option<Vec<u8>>, Error> {
        self.0.get(key)
    }

    /// Puts a value under a key, in place of the one before it.
    pub fn set(&self, key: &str, value: &[u8]) -> Result<(), Error> {
        self.0.set(key, value)
    }

    /// Removes a key; one that is not there is no error.
    pub fn delete(&self, key: &str) -> Result<(), Error> {
        self.0.delete(key)
    }

    /// Whether there is a value under a key.
    pub fn exists(&self, key: &str) -> Result<bool, Error> {
        self.0.exists(key)
    }
}
