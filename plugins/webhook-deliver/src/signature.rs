//! The signature of the Standard Webhooks scheme: HMAC-SHA256 over id, time and body. The secret never leaves this module.

use base64::{
    Engine,
    alphabet::STANDARD as ALPHABET,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use hmac::{Hmac, Mac};
use leasehold_guest::Failure;
use sha2::Sha256;

/// What marks a secret that is given in base64.
const ENCODED_PREFIX: &str = "whsec_";

/// Writes padding as the scheme asks for it, and reads secrets whose padding was lost on the way.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &ALPHABET,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A signing secret.
pub(crate) struct Secret(Hmac<Sha256>);

impl Secret {
    /// Reads the setting. A secret that can't be read is the operator's to mend.
    pub(crate) fn parse(setting: &str) -> Result<Self, Failure> {
        let setting = setting.trim();
        let key = match setting.strip_prefix(ENCODED_PREFIX) {
            Some(encoded) => BASE64.decode(encoded).ok(),
            None => Some(setting.as_bytes().to_vec()),
        };
        key.filter(|key| !key.is_empty())
            .and_then(|key| Hmac::new_from_slice(&key).ok())
            .map(Self)
            .ok_or_else(|| Failure::rejected("settings.invalid", "setting `signing_secret` is empty or not of base64"))
    }

    /// The value of `webhook-signature`.
    pub(crate) fn sign(&self, id: &str, timestamp: u64, body: &str) -> String {
        let mut mac = self.0.clone();
        for part in [id, ".", &timestamp.to_string(), ".", body] {
            mac.update(part.as_bytes());
        }
        format!("v1,{}", BASE64.encode(mac.finalize().into_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signature_is_that_of_the_published_example() {
        let secret =
            Secret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap_or_else(|failure| panic!("{failure:?}"));
        assert_eq!(
            secret.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, r#"{"test": 2432232314}"#),
            "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
        );
    }

    #[test]
    fn a_plain_secret_is_the_key_itself() {
        let plain = Secret::parse("plain-secret").unwrap_or_else(|failure| panic!("{failure:?}"));
        let encoded = Secret::parse(&format!("whsec_{}", BASE64.encode("plain-secret")))
            .unwrap_or_else(|failure| panic!("{failure:?}"));
        assert_eq!(plain.sign("a", 1, "{}"), encoded.sign("a", 1, "{}"));
        assert_ne!(plain.sign("a", 1, "{}"), plain.sign("a", 2, "{}"));
    }

    #[test]
    fn an_unreadable_secret_is_refused_without_being_named() {
        for setting in ["", "whsec_", "whsec_%%%"] {
            let Err(failure) = Secret::parse(setting) else { panic!("accepted {setting:?}") };
            assert!(matches!(&failure, Failure::Rejected(problem) if !problem.message.contains('%')), "{failure:?}");
        }
    }
}
