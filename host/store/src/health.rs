//! Whether the database takes writes, and whether it has shown that it is damaged.
//!
//! From the first damage on nothing is written: a write on top of damage spreads it, and what is there may be all that can
//! be rescued. Reads go on as far as they can. Nothing is repaired here.

use std::sync::{Mutex, OnceLock, PoisonError};

use crate::StoreError;

#[derive(Debug, Default)]
pub(crate) struct Health {
    /// The damage that was found first, for the life of the process: only a start on sound files forgets it.
    damage: OnceLock<String>,
    /// Why the last transaction failed as a whole, if it did.
    failing: Mutex<Option<StoreError>>,
}

impl Health {
    /// What is damaged, if damage was found.
    pub(crate) fn damage(&self) -> Option<&str> {
        self.damage.get().map(String::as_str)
    }

    /// Why no write goes well at the moment, if so.
    pub(crate) fn problem(&self) -> Option<StoreError> {
        let failing = || self.failing.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.refusal().or_else(failing)
    }

    /// The answer to every further write, once damage was found.
    pub(crate) fn refusal(&self) -> Option<StoreError> {
        self.damage().map(|what| StoreError::Damaged { what: what.to_owned() })
    }

    /// Notes how a transaction ended.
    pub(crate) fn note_transaction(&self, ended: &Result<(), StoreError>) {
        *self.failing.lock().unwrap_or_else(PoisonError::into_inner) = ended.as_ref().err().cloned();
    }

    /// Looks at an error on its way out. The first one that tells of damage is remembered and told.
    pub(crate) fn noted(&self, error: StoreError) -> StoreError {
        if !error.is_damage() {
            return error;
        }
        let what = self.damage.get_or_init(|| {
            let what = error.what_is_damaged();
            let told = StoreError::Damaged { what: what.clone() };
            tracing::error!(code = told.code(), error = %told, "no further jobs are leased and nothing is written any more");
            what
        });
        StoreError::Damaged { what: what.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn o6_a_transaction_that_failed_is_a_problem_until_one_goes_well() {
        let health = Health::default();
        assert!(health.problem().is_none());
        health.note_transaction(&Err(StoreError::Unexpected("a row".into())));
        let problem = health.problem().unwrap();
        assert_eq!(problem.to_string(), "the database holds an unexpected value: a row");
        assert!(health.refusal().is_none(), "the next write may go well");
        health.note_transaction(&Ok(()));
        assert!(health.problem().is_none());
    }
}
