//! Payloads, metadata and delays as they are given on the command line. It never changes a byte of a payload.

use std::{fs, io, io::Read as _, str::FromStr};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use leasehold_api::Timestamp;
use serde_json::value::RawValue;

use super::Failure;

/// Where a payload comes from: the argument itself, `@file`, or `-` for the standard input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PayloadSource {
    /// The argument itself.
    Argument(String),
    /// A file.
    File(String),
    /// The standard input.
    StandardInput,
}

impl FromStr for PayloadSource {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text.strip_prefix('@') {
            Some(path) => Self::File(path.to_owned()),
            None if text == "-" => Self::StandardInput,
            None => Self::Argument(text.to_owned()),
        })
    }
}

/// A payload as it travels: as JSON, or in base64.
#[derive(Debug)]
pub enum Payload {
    /// Well-formed JSON, byte for byte.
    Json(Box<RawValue>),
    /// Any bytes.
    Base64(String),
}

impl PayloadSource {
    /// Reads the payload, as JSON or as any bytes.
    pub fn read(&self, as_bytes: bool) -> Result<Payload, Failure> {
        let bytes = self.bytes()?;
        if as_bytes {
            return Ok(Payload::Base64(BASE64_STANDARD.encode(bytes)));
        }
        serde_json::from_slice(&bytes).map(Payload::Json).map_err(|error| Failure::Usage {
            code: "payload_invalid",
            message: format!("{} is no well-formed JSON: {error}; other bytes are sent with --bytes", self.name()),
        })
    }

    fn bytes(&self) -> Result<Vec<u8>, Failure> {
        let read = match self {
            Self::Argument(text) => Ok(text.clone().into_bytes()),
            Self::File(path) => fs::read(path),
            Self::StandardInput => read_standard_input(),
        };
        read.map_err(|error| Failure::unreadable(self.name(), &error))
    }

    fn name(&self) -> String {
        match self {
            Self::Argument(_) => "the payload".to_owned(),
            Self::File(path) => format!("the payload in {path}"),
            Self::StandardInput => "the payload on the standard input".to_owned(),
        }
    }
}

/// A payload in place of a dead letter's own, as it travels: JSON, or base64.
#[allow(clippy::type_complexity, reason = "the two fields of a request that takes one of them")]
pub fn corrected(
    source: Option<PayloadSource>,
    as_bytes: bool,
) -> Result<(Option<Box<RawValue>>, Option<String>), Failure> {
    Ok(match source.map(|source| source.read(as_bytes)).transpose()? {
        Some(Payload::Json(json)) => (Some(json), None),
        Some(Payload::Base64(base64)) => (None, Some(base64)),
        None => (None, None),
    })
}

fn read_standard_input() -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    io::stdin().lock().read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads `name=value`.
pub fn name_and_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("metadata is written name=value".to_owned()),
    }
}

/// Reads a span of time such as `90s`, `5m` or `1h30m`, in milliseconds; a day has 24 hours.
pub fn duration_ms(text: &str) -> Result<u64, String> {
    let expected = || "a span of time is written like 500ms, 90s, 5m, 1h30m or 2d".to_owned();
    let span: jiff::Span = text.parse().map_err(|_| expected())?;
    let duration = span.to_duration(jiff::SpanRelativeTo::days_are_24_hours()).map_err(|_| expected())?;
    u64::try_from(duration.as_millis()).map_err(|_| expected())
}

/// Reads a time such as `2026-03-01T09:30:00Z`, or a span of time such as `24h`, which is that long ago.
pub fn time_or_ago(text: &str) -> Result<Timestamp, String> {
    if let Ok(time) = text.parse() {
        return Ok(time);
    }
    let ago_ms = duration_ms(text)
        .map_err(|_| "a time is written like 2026-03-01T09:30:00Z, or like 24h for that long ago".to_owned())?;
    let now_ms = jiff::Timestamp::now().as_millisecond();
    Ok(Timestamp::from_ms(now_ms.saturating_sub_unsigned(ago_ms)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f1_a_payload_comes_from_the_argument_a_file_or_the_input() {
        assert_eq!("-".parse(), Ok(PayloadSource::StandardInput));
        assert_eq!("@a.json".parse(), Ok(PayloadSource::File("a.json".to_owned())));
        assert_eq!("{}".parse(), Ok(PayloadSource::Argument("{}".to_owned())));
    }

    #[test]
    fn q17_a_json_payload_is_checked_and_kept_byte_for_byte() {
        let Ok(Payload::Json(json)) = PayloadSource::Argument("{ \"a\": 1.0 }".to_owned()).read(false) else {
            panic!("well-formed JSON was refused")
        };
        assert_eq!(json.get(), "{ \"a\": 1.0 }");
        let refused = PayloadSource::Argument("{a}".to_owned()).read(false).unwrap_err();
        assert_eq!((refused.code(), refused.exit_code()), ("payload_invalid", 2));
        let bytes = PayloadSource::Argument("{a}".to_owned()).read(true);
        assert!(matches!(bytes, Ok(Payload::Base64(text)) if text == "e2F9"));
    }

    #[test]
    fn spans_of_time_are_read_with_their_units() {
        assert_eq!(duration_ms("5m"), Ok(300_000));
        assert_eq!(duration_ms("1h30m"), Ok(5_400_000));
        assert_eq!(duration_ms("2d"), Ok(172_800_000));
        for wrong in ["", "5", "-5m", "1 month", "soon"] {
            assert!(duration_ms(wrong).is_err(), "{wrong}");
        }
    }
}
