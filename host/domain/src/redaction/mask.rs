//! What stands in the place of a masked value: its kind, its length in powers of two, and for what identifies somebody a
//! fingerprint, so that equal values can be seen to be equal. It never shows a part of a value.
//!
//! A fingerprint is 40 bits of HMAC-SHA256 (RFC 2104) under a key of the installation, so it can't be computed without
//! that key. Whoever may enqueue could still have guesses fingerprinted; so only forms with many values get one (never a
//! card, a secret or a field without a form, such as a PIN), and only so many a job.

use std::{collections::BTreeSet, fmt};

use hmac::{Hmac, Mac};
use sha2::Sha256;

use super::Detector;

/// How many different values of one job get a fingerprint. Guesses that somebody enqueues to compare them with what a
/// dead letter shows cost a job for each sixteen.
const FINGERPRINTS_MAX: usize = 16;
/// A shorter value is no identifier that is worth telling from others.
const FINGERPRINT_MIN_BYTES: usize = 8;
/// Lengths up to this are not told apart.
const LENGTH_MIN: usize = 8;
/// RFC 4648 in lower case.
const BASE32: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// 40 bits of a keyed digest.
type Fingerprint = [u8; 5];

/// The secret that fingerprints are made with. Without it none are shown.
#[derive(Clone)]
pub struct FingerprintKey([u8; 32]);

impl FingerprintKey {
    /// A key that was derived for this purpose alone.
    #[must_use]
    pub const fn new(key: [u8; 32]) -> Self {
        Self(key)
    }

    /// The fingerprint of a value of a class, in any of its spellings.
    fn of(&self, class: Detector, value: &[u8]) -> Fingerprint {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes a key of any length");
        mac.update(class.as_str().as_bytes());
        mac.update(&[0]);
        mac.update(&spelt_one_way(class, value));
        let digest: [u8; 32] = mac.finalize().into_bytes().into();
        std::array::from_fn(|at| digest[at])
    }
}

impl fmt::Debug for FingerprintKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FingerprintKey")
    }
}

/// Addresses are compared whatever their case; numbers also whatever separates their digits.
fn spelt_one_way(class: Detector, value: &[u8]) -> Vec<u8> {
    let kept = value.iter().filter(|byte| class == Detector::Email || byte.is_ascii_alphanumeric());
    kept.map(u8::to_ascii_lowercase).collect()
}

/// What is shown of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mask {
    kind: &'static str,
    /// It has at most that many characters; absent where that would tell too much or nothing.
    characters_max: Option<usize>,
    fingerprint: Option<Fingerprint>,
}

impl Mask {
    /// A mask that tells a kind and nothing else.
    pub(super) const fn of_kind(kind: &'static str) -> Self {
        Self { kind, characters_max: None, fingerprint: None }
    }

    /// A mask that tells a kind and a class of lengths.
    pub(super) fn of_length(kind: &'static str, characters: usize) -> Self {
        let characters_max = characters.max(LENGTH_MIN).checked_next_power_of_two();
        Self { kind, characters_max, fingerprint: None }
    }

    pub(super) const fn kind(self) -> &'static str {
        self.kind
    }
}

impl fmt::Display for Mask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[redacted:{}", self.kind)?;
        if let Some(characters_max) = self.characters_max {
            write!(f, " ~{characters_max}")?;
        }
        if let Some(fingerprint) = self.fingerprint {
            f.write_str(" #")?;
            let bits = fingerprint.iter().fold(0_u64, |bits, &byte| bits << 8 | u64::from(byte));
            for place in (0..8).rev() {
                let digit = usize::try_from(bits >> (place * 5) & 31).unwrap_or(0);
                write!(f, "{}", char::from(BASE32[digit]))?;
            }
        }
        f.write_str("]")
    }
}

/// Makes the masks of one job, of which a bounded number tell values apart.
pub(super) struct Masks<'k> {
    key: Option<&'k FingerprintKey>,
    given: BTreeSet<Fingerprint>,
}

impl<'k> Masks<'k> {
    /// Masks with fingerprints, if there is a key.
    pub(super) const fn new(key: Option<&'k FingerprintKey>) -> Self {
        Self { key, given: BTreeSet::new() }
    }

    /// The mask of a value that looks like something.
    pub(super) fn of_finding(&mut self, class: Detector, value: &[u8]) -> Mask {
        let fingerprint = self.fingerprint(class, value);
        Mask { fingerprint, ..Mask::of_length(class.as_str(), characters(value)) }
    }

    fn fingerprint(&mut self, class: Detector, value: &[u8]) -> Option<Fingerprint> {
        let key = self.key.filter(|_| class.identifies_somebody() && value.len() >= FINGERPRINT_MIN_BYTES)?;
        let fingerprint = key.of(class, value);
        let is_shown = self.given.contains(&fingerprint) || self.given.len() < FINGERPRINTS_MAX;
        is_shown.then(|| {
            self.given.insert(fingerprint);
            fingerprint
        })
    }
}

/// How many characters a text has, or bytes when it is none.
pub(super) fn characters(value: &[u8]) -> usize {
    std::str::from_utf8(value).map_or(value.len(), |text| text.chars().count())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: FingerprintKey = FingerprintKey::new([7; 32]);

    fn shown(masks: &mut Masks<'_>, class: Detector, value: &str) -> String {
        masks.of_finding(class, value.as_bytes()).to_string()
    }

    #[test]
    fn d2_a_mask_tells_kind_length_and_whether_two_values_are_equal() {
        let mut masks = Masks::new(Some(&KEY));
        let first = shown(&mut masks, Detector::Email, "jo@example.org");
        assert!(first.starts_with("[redacted:email ~16 #") && first.len() == 30, "{first}");
        assert_eq!(shown(&mut masks, Detector::Email, "Jo@Example.org"), first);
        assert_ne!(shown(&mut masks, Detector::Email, "ja@example.org"), first);
        let [spaced, whole] = ["DE89 3704 0044 0532 0130 00", "de89370400440532013000"]
            .map(|number| shown(&mut masks, Detector::Iban, number));
        assert_eq!(spaced, whole, "the same number in two spellings");
        let other_key = FingerprintKey::new([8; 32]);
        assert_ne!(shown(&mut Masks::new(Some(&other_key)), Detector::Email, "jo@example.org"), first);
        assert_eq!(shown(&mut Masks::new(None), Detector::Email, "jo@example.org"), "[redacted:email ~16]");
    }

    #[test]
    fn d2_a_fingerprint_is_the_same_on_every_host_that_has_the_key() {
        // The first 40 bits of HMAC-SHA256 over the class, a zero byte and the value, in base32.
        let mut masks = Masks::new(Some(&KEY));
        for (class, value, expected) in [
            (Detector::Email, "jo@example.org", "[redacted:email ~16 #gs2aznvy]"),
            (Detector::Iban, "DE89 3704 0044 0532 0130 00", "[redacted:iban ~32 #muwwvwen]"),
            (Detector::Phone, "+1 415-555-2671", "[redacted:phone ~16 #53d4lgly]"),
        ] {
            assert_eq!(shown(&mut masks, class, value), expected);
        }
    }

    #[test]
    fn d2_a_debug_print_shows_nothing_of_the_key() {
        assert_eq!(format!("{KEY:?}"), "FingerprintKey");
    }

    #[test]
    fn d2_what_can_be_guessed_has_no_fingerprint_and_short_values_are_of_one_length() {
        let mut masks = Masks::new(Some(&KEY));
        for class in [Detector::Card, Detector::Jwt, Detector::Pem, Detector::ApiKey, Detector::Credential] {
            assert!(!shown(&mut masks, class, "4111111111111111").contains('#'), "{class}");
        }
        assert!(!shown(&mut masks, Detector::Email, "a@b.org").contains('#'));
        assert!(shown(&mut masks, Detector::Email, "ab@c.org").contains('#'));
        let lengths = [1, 8, 9, 16, 17].map(|length| Mask::of_length("text", length).to_string());
        let expected = ["~8", "~8", "~16", "~16", "~32"].map(|class| format!("[redacted:text {class}]"));
        assert_eq!(lengths, expected);
    }

    #[test]
    fn d2_one_job_tells_only_so_many_values_apart() {
        let mut masks = Masks::new(Some(&KEY));
        let guesses = |masks: &mut Masks<'_>| -> Vec<String> {
            (0..100).map(|number| shown(masks, Detector::Phone, &format!("+4935112345{number:02}"))).collect()
        };
        let first = guesses(&mut masks);
        assert_eq!(first.iter().filter(|mask| mask.contains('#')).count(), FINGERPRINTS_MAX);
        assert_eq!(guesses(&mut masks), first, "what is told stays told");
    }
}
