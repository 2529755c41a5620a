//! Randomness from the host, fit for cryptography.

use crate::host;

/// So many random bytes.
pub fn bytes(length: usize) -> Vec<u8> {
    host::random_bytes(length)
}
