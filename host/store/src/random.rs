//! Random bytes of the system, drawn in one call for all that one caller is about to use. It never keeps any for later: of
//! a machine that is copied while it runs, both copies would seal other values with the same ones.

use crate::StoreError;

/// Random bytes, each of which is given once.
pub(crate) struct Random {
    unused: Vec<u8>,
}

impl Random {
    /// Draws this many bytes.
    pub(crate) fn draw(count: usize) -> Result<Self, StoreError> {
        let mut unused = vec![0; count];
        fill(&mut unused)?;
        Ok(Self { unused })
    }

    /// Some of them; others are drawn when too few are left.
    pub(crate) fn take<const COUNT: usize>(&mut self) -> Result<[u8; COUNT], StoreError> {
        let mut bytes = [0; COUNT];
        match self.unused.split_last_chunk::<COUNT>() {
            Some((rest, last)) => {
                bytes = *last;
                self.unused.truncate(rest.len());
            }
            None => fill(&mut bytes)?,
        }
        Ok(bytes)
    }
}

/// Fills all of it with random bytes.
pub(crate) fn fill(bytes: &mut [u8]) -> Result<(), StoreError> {
    getrandom::fill(bytes).map_err(|error| StoreError::Unexpected(format!("the system gives no random bytes: {error}")))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn d4_no_random_bytes_are_given_twice_and_there_are_always_some() {
        let mut random = Random::draw(100).unwrap();
        let taken: BTreeSet<[u8; 24]> = (0..10).map(|_| random.take().unwrap()).collect();
        assert_eq!(taken.len(), 10);
        assert!(random.unused.len() < 24);
    }
}
