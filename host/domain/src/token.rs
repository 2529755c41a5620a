//! Tokens of API callers: their form, their names, and whether one is in force. It draws no random numbers and keeps
//! nothing.

use std::fmt;

use crate::TimestampMs;

/// What every token begins with, so that people and scanners of secrets recognise one.
pub const PREFIX: &str = "lh_";
/// How many characters of base62 follow the prefix: 43 hold 256 bits.
pub const SECRET_CHARACTERS: usize = 43;
const LETTERS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// The token that these random bytes make; none when too few of them can be used. A byte above the largest multiple of
/// 62 is passed over, so that each character is equally likely.
#[must_use]
pub fn from_random(bytes: &[u8]) -> Option<String> {
    let fair = bytes.iter().filter(|byte| **byte < 248).map(|byte| char::from(LETTERS[usize::from(byte % 62)]));
    let secret: String = fair.take(SECRET_CHARACTERS).collect();
    (secret.len() == SECRET_CHARACTERS).then(|| format!("{PREFIX}{secret}"))
}

/// Whether the text has the form of a token, so that what can't be one is not looked up.
#[must_use]
pub fn is_well_formed(text: &str) -> bool {
    text.strip_prefix(PREFIX)
        .is_some_and(|secret| secret.len() == SECRET_CHARACTERS && secret.bytes().all(|byte| LETTERS.contains(&byte)))
}

/// A token's name: `[a-z][a-z0-9._-]{0,63}`. It begins with a letter, so that it is never taken for an id.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenName(String);

/// The text is no token's name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no name of a token; allowed is a letter from a to z, then up to 63 of a to z, 0 to 9, '.', '_' and '-'"
)]
pub struct TokenNameError(String);

impl TokenName {
    /// The name, or why it is none.
    pub fn new(text: &str) -> Result<Self, TokenNameError> {
        let belongs = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._-".contains(&byte);
        let begins = text.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase());
        if begins && text.len() <= 64 && text.bytes().all(belongs) {
            Ok(Self(text.to_owned()))
        } else {
            Err(TokenNameError(text.chars().take(80).collect()))
        }
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Who a caller with this token is, where the configuration says nothing else.
    #[must_use]
    pub fn actor(&self) -> String {
        format!("token:{}", self.0)
    }
}

impl fmt::Display for TokenName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether a token opens anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenState {
    /// It does.
    Active,
    /// Its time is over.
    Expired,
    /// Somebody took it back.
    Revoked,
}

impl TokenState {
    /// Where a token stands. Being revoked goes before being expired: it was an act.
    #[must_use]
    pub const fn at(
        now_ms: TimestampMs,
        expires_at_ms: Option<TimestampMs>,
        revoked_at_ms: Option<TimestampMs>,
    ) -> Self {
        match (revoked_at_ms, expires_at_ms) {
            (Some(_), _) => Self::Revoked,
            (None, Some(expires_at_ms)) if now_ms >= expires_at_ms => Self::Expired,
            (None, _) => Self::Active,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn o5_a_token_is_made_of_random_bytes_and_known_by_its_form() {
        let bytes: Vec<u8> = (0..=255).rev().collect();
        let token = from_random(&bytes).unwrap();
        assert!(is_well_formed(&token), "{token}");
        assert_eq!(token.len(), 46);
        let letters: Vec<u8> = (0..248).chain([61; 43]).collect();
        assert_eq!(from_random(&letters).unwrap(), "lh_0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefg");
        assert_eq!(from_random(&letters[60..]).unwrap(), "lh_yz0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcde");
        assert_eq!(from_random(&letters[247..]).unwrap(), format!("lh_{}", "z".repeat(43)));
        assert!(from_random(&bytes[..50]).is_none(), "bytes that are not fair were used");
        for other in ["", "lh_", &token[..45], &format!("{token}0"), &token.replace("lh_", "gh_"), "lh_é"] {
            assert!(!is_well_formed(other), "{other}");
        }
    }

    #[test]
    fn o5_a_name_of_a_token_is_never_an_id() {
        for name in ["ci", "ci-2", "a.b_c"] {
            let token = TokenName::new(name).unwrap();
            assert_eq!((token.as_str(), token.to_string().as_str()), (name, name));
            assert_eq!(token.actor(), format!("token:{name}"));
        }
        for name in ["", "7", "-a", "Ci", "a b", "a/b", &"a".repeat(65), "é"] {
            assert!(TokenName::new(name).is_err(), "{name}");
        }
    }

    #[test]
    fn o5_a_token_ends_at_its_time_or_by_an_act() {
        assert_eq!(TokenState::at(9, Some(10), None), TokenState::Active);
        assert_eq!(TokenState::at(10, Some(10), None), TokenState::Expired);
        assert_eq!(TokenState::at(99, None, None), TokenState::Active);
        assert_eq!(TokenState::at(10, Some(10), Some(5)), TokenState::Revoked);
    }
}
