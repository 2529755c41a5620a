//! Sealing: authenticated encryption of whatever may hold personal data, bound to what it belongs to. It never sees a
//! database.
//!
//! XChaCha20-Poly1305 (draft-irtf-cfrg-xchacha) with a random nonce; the associated data names the purpose, the id and
//! the key, so that a sealed value that was moved to another row does not open. As that draft has it, each value is sealed
//! with ChaCha20-Poly1305 (RFC 8439) under a key that `HChaCha20` derives from the first 16 bytes of the nonce.

use chacha20::{cipher::consts::U10, hchacha};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use zeroize::Zeroizing;

use crate::{StoreError, random::Random};

const KEY_ID_BYTES: usize = 4;
pub(crate) const NONCE_BYTES: usize = 24;
const HEAD_BYTES: usize = KEY_ID_BYTES + NONCE_BYTES;
const TAG_BYTES: usize = 16;

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
    key: Zeroizing<[u8; 32]>,
}

impl Sealer {
    pub(crate) fn new(key_id: [u8; KEY_ID_BYTES], key: &[u8; 32]) -> Self {
        Self { key_id, key: Zeroizing::new(*key) }
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
        self.seal_with(&mut Random::draw(NONCE_BYTES)?, purpose, id, name, plain)
    }

    /// Seals bytes with a nonce of these random bytes.
    pub(crate) fn seal_with(
        &self,
        random: &mut Random,
        purpose: Purpose,
        id: i64,
        name: &str,
        plain: &[u8],
    ) -> Result<Vec<u8>, StoreError> {
        let nonce = random.take::<NONCE_BYTES>()?;
        let mut sealed = Vec::with_capacity(HEAD_BYTES + plain.len() + TAG_BYTES);
        sealed.extend_from_slice(&self.key_id);
        sealed.extend_from_slice(&nonce);
        sealed.extend_from_slice(plain);
        let tag = self
            .derived(&nonce)
            .and_then(|(key, nonce)| {
                let bound_to = Aad::from(self.bound_to(purpose, id, name));
                key.seal_in_place_separate_tag(nonce, bound_to, sealed.get_mut(HEAD_BYTES..)?).ok()
            })
            .ok_or_else(|| StoreError::Unexpected(format!("a {} could not be sealed", purpose.as_str())))?;
        sealed.extend_from_slice(tag.as_ref());
        Ok(sealed)
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
        let (nonce, ciphertext) = rest.split_first_chunk().ok_or_else(does_not_open)?;
        if key_id != self.key_id {
            return Err(does_not_open());
        }
        let (key, nonce) = self.derived(nonce).ok_or_else(does_not_open)?;
        let mut opened = Zeroizing::new(ciphertext.to_vec());
        let bound_to = Aad::from(self.bound_to(purpose, id, name));
        let length = key.open_in_place(nonce, bound_to, &mut opened).map_err(|_| does_not_open())?.len();
        opened.truncate(length);
        Ok(opened)
    }

    /// The key of one value, and what is left of its nonce for it.
    fn derived(&self, nonce: &[u8; NONCE_BYTES]) -> Option<(LessSafeKey, Nonce)> {
        let (first, last) = nonce.split_first_chunk::<16>()?;
        let derived = Zeroizing::new(<[u8; 32]>::from(hchacha::<U10>((&*self.key).into(), first.into())));
        let mut short = [0; 12];
        short[4..].copy_from_slice(last);
        let key = UnboundKey::new(&CHACHA20_POLY1305, derived.as_slice()).ok()?;
        Some((LessSafeKey::new(key), Nonce::assume_unique_for_key(short)))
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

    /// Appendix A.3.1 of draft-irtf-cfrg-xchacha-03.
    #[test]
    fn d4_values_are_sealed_as_the_draft_has_it() {
        let key: [u8; 32] = std::array::from_fn(|index| 0x80 + u8::try_from(index).unwrap());
        let nonce: [u8; NONCE_BYTES] = std::array::from_fn(|index| 0x40 + u8::try_from(index).unwrap());
        let aad = hex::decode("50515253c0c1c2c3c4c5c6c7").unwrap();
        let mut text = b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the future, \
            sunscreen would be it."
            .to_vec();
        let (key, nonce) = Sealer::new(*b"key1", &key).derived(&nonce).unwrap();
        let tag = key.seal_in_place_separate_tag(nonce, Aad::from(aad), &mut text).unwrap();
        assert_eq!(hex::encode(&text[..16]), "bd6d179d3e83d43b9576579493c0e939");
        assert_eq!(hex::encode(tag.as_ref()), "c0875924c1c7987947deafd8780acf49");
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
