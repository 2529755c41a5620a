//! Sealing: authenticated encryption of whatever may hold personal data, bound to what it belongs to. It never sees a
//! database.
//!
//! XChaCha20-Poly1305 (draft-irtf-cfrg-xchacha) with a random nonce; the associated data names the purpose, the id and
//! the key, so that a sealed value that was moved to another row does not open.

use chacha20poly1305::{
    Key, XChaCha20Poly1305, XNonce,
    aead::{Aead, KeyInit, Payload},
};
use zeroize::Zeroizing;

use crate::StoreError;

const KEY_ID_BYTES: usize = 4;
const NONCE_BYTES: usize = 24;

/// What a sealed value is; part of what it is bound to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Payload,
    Extras,
    JobResult,
    StepResult,
    StepEffect,
    ValueKey,
    Value,
}

impl Purpose {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Payload => "payload",
            Self::Extras => "key and metadata",
            Self::JobResult => "result",
            Self::StepResult => "step result",
            Self::StepEffect => "step effect",
            Self::ValueKey => "value key",
            Self::Value => "value",
        }
    }
}

/// Seals and opens with one key.
pub(crate) struct Sealer {
    key_id: [u8; KEY_ID_BYTES],
    cipher: XChaCha20Poly1305,
}

impl Sealer {
    pub(crate) fn new(key_id: [u8; KEY_ID_BYTES], key: &[u8; 32]) -> Self {
        Self { key_id, cipher: XChaCha20Poly1305::new(Key::from_slice(key)) }
    }

    /// Seals bytes for one purpose and one id.
    pub(crate) fn seal(&self, purpose: Purpose, id: i64, plain: &[u8]) -> Result<Vec<u8>, StoreError> {
        self.seal_named(purpose, id, "", plain)
    }

    /// Seals bytes for one purpose and one name within an id, such as a step of a job.
    pub(crate) fn seal_named(
        &self,
        purpose: Purpose,
        id: i64,
        name: &str,
        plain: &[u8],
    ) -> Result<Vec<u8>, StoreError> {
        let mut nonce = [0; NONCE_BYTES];
        getrandom::fill(&mut nonce)
            .map_err(|error| StoreError::Unexpected(format!("the system gives no random bytes: {error}")))?;
        let bound_to = self.bound_to(purpose, id, name);
        let ciphertext = self
            .cipher
            .encrypt(XNonce::from_slice(&nonce), Payload { msg: plain, aad: &bound_to })
            .map_err(|_| StoreError::Unexpected(format!("a {} could not be sealed", purpose.as_str())))?;
        Ok([&self.key_id[..], &nonce, &ciphertext].concat())
    }

    /// Opens what was sealed for this purpose and this id.
    pub(crate) fn open(&self, purpose: Purpose, id: i64, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, StoreError> {
        self.open_named(purpose, id, "", sealed)
    }

    /// Opens what was sealed for this purpose and this name within an id.
    pub(crate) fn open_named(
        &self,
        purpose: Purpose,
        id: i64,
        name: &str,
        sealed: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, StoreError> {
        let does_not_open = || StoreError::DoesNotOpen { purpose: purpose.as_str(), id };
        let (key_id, rest) = sealed.split_at_checked(KEY_ID_BYTES).ok_or_else(does_not_open)?;
        let (nonce, ciphertext) = rest.split_at_checked(NONCE_BYTES).ok_or_else(does_not_open)?;
        if key_id != self.key_id {
            return Err(does_not_open());
        }
        let bound_to = self.bound_to(purpose, id, name);
        self.cipher
            .decrypt(XNonce::from_slice(nonce), Payload { msg: ciphertext, aad: &bound_to })
            .map(Zeroizing::new)
            .map_err(|_| does_not_open())
    }

    fn bound_to(&self, purpose: Purpose, id: i64, name: &str) -> Vec<u8> {
        [b"leasehold\0", purpose.as_str().as_bytes(), &[0], &id.to_be_bytes(), &self.key_id, name.as_bytes()].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealer() -> Sealer {
        Sealer::new(*b"key1", &[7; 32])
    }

    #[test]
    fn d4_what_is_sealed_opens_only_for_what_it_belongs_to() {
        let sealed = sealer().seal(Purpose::Payload, 7, b"card 4242").unwrap();
        assert_eq!(sealer().open(Purpose::Payload, 7, &sealed).unwrap().as_slice(), b"card 4242");
        assert!(sealer().open(Purpose::Payload, 8, &sealed).is_err());
        assert!(sealer().open(Purpose::JobResult, 7, &sealed).is_err());
        assert!(Sealer::new(*b"key2", &[7; 32]).open(Purpose::Payload, 7, &sealed).is_err());
        assert!(Sealer::new(*b"key1", &[8; 32]).open(Purpose::Payload, 7, &sealed).is_err());
    }

    #[test]
    fn d4_a_flipped_bit_does_not_open_and_nothing_is_in_the_clear() {
        let sealed = sealer().seal(Purpose::Payload, 7, b"card 4242").unwrap();
        assert!(!sealed.windows(4).any(|window| window == b"4242"));
        for position in 0..sealed.len() {
            let mut flipped = sealed.clone();
            flipped[position] ^= 1;
            assert!(sealer().open(Purpose::Payload, 7, &flipped).is_err(), "byte {position}");
        }
        assert!(sealer().open(Purpose::Payload, 7, &sealed[..10]).is_err());
    }
}
