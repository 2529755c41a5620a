//! The token of a preview: what was shown, bound by a keyed digest, so that a start replays that and nothing else. It
//! holds no secret and is kept nowhere.

use leasehold_domain::{TimestampMs, VersionId};

use super::select::BulkSettings;
use crate::{StoreError, keys::Keys};

/// For how long a preview can be started from, in milliseconds: fifteen minutes.
pub const PREVIEW_VALID_MS: i64 = 15 * 60_000;

const FACTS_BYTES: usize = 32;
/// Half of the digest: nobody can try more than a few before one is noticed.
const MAC_BYTES: usize = 16;

/// What a preview saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) expires_at_ms: TimestampMs,
    /// The last of the dead letters. With the selection it fixes the set: ids only grow, and what is closed stays closed.
    pub(super) through: i64,
    pub(super) count: u64,
    pub(super) target: VersionId,
}

/// Why nothing can be started from a token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenRefusal {
    /// It is none, or another preview's.
    #[error(
        "the token is not of a preview of this selection, version and override_reason; preview what is to be replayed and send the token of that"
    )]
    Mismatch,
    /// It is too old.
    #[error("the preview is older than 15 minutes; look at a new one")]
    Expired,
    /// The handler's current version is another one by now.
    #[error(
        "the handler's current version is not the one of the preview any more; it is {current} now: look at a new preview"
    )]
    TargetChanged {
        /// The current version.
        current: String,
    },
}

impl TokenRefusal {
    /// The stable code of the refusal.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Mismatch => "preview_mismatch",
            Self::Expired => "preview_expired",
            Self::TargetChanged { .. } => "preview_target_changed",
        }
    }
}

impl Seen {
    pub(super) fn token(&self, keys: &Keys, settings: &BulkSettings) -> Result<String, StoreError> {
        let facts = self.to_bytes();
        Ok(hex::encode([&facts[..], &mac(keys, &facts, settings)?].concat()))
    }

    /// What the preview saw that the token is of, if it was one of these settings.
    pub(super) fn read(token: &str, keys: &Keys, settings: &BulkSettings) -> Result<Option<Self>, StoreError> {
        let mut bytes = [0; FACTS_BYTES + MAC_BYTES];
        if hex::decode_to_slice(token, &mut bytes).is_err() {
            return Ok(None);
        }
        let (facts, given) = bytes.split_at(FACTS_BYTES);
        let expected = mac(keys, facts, settings)?;
        // Every byte is compared, so that the time it takes tells nothing of where a guess went wrong.
        let differs = expected.iter().zip(given).fold(0, |differs, (one, other)| differs | (one ^ other));
        Ok((differs == 0).then(|| Self::from_bytes(facts)))
    }

    fn to_bytes(self) -> [u8; FACTS_BYTES] {
        let parts = [
            self.expires_at_ms.to_be_bytes(),
            self.through.to_be_bytes(),
            self.count.to_be_bytes(),
            self.target.0.to_be_bytes(),
        ];
        let mut bytes = [0; FACTS_BYTES];
        bytes.copy_from_slice(&parts.concat());
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Self {
        let part = |number: usize| std::array::from_fn(|at| bytes[number * 8 + at]);
        Self {
            expires_at_ms: i64::from_be_bytes(part(0)),
            through: i64::from_be_bytes(part(1)),
            count: u64::from_be_bytes(part(2)),
            target: VersionId(i64::from_be_bytes(part(3))),
        }
    }
}

fn mac(keys: &Keys, facts: &[u8], settings: &BulkSettings) -> Result<[u8; MAC_BYTES], StoreError> {
    let asked = (&settings.selection, &settings.version, &settings.override_reason);
    let asked = serde_json::to_vec(&asked).map_err(|error| StoreError::Unexpected(error.to_string()))?;
    let digest = keys.digest("bulk replay preview", &[facts, &asked]);
    Ok(std::array::from_fn(|at| digest[at]))
}
