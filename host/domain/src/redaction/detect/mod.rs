//! Finds what looks like personal data or a secret by its form alone. It finds common forms, never everything: a name or
//! a postal address has no form. Each detector passes over a text once.

mod credentials;
mod payment;
mod personal;
mod secrets;
#[cfg(test)]
mod tests;

use std::{fmt, ops::Range};

use super::decode::{Decoded, for_each_plain_reading};

/// A form that is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Detector {
    /// An e-mail address.
    Email,
    /// The number of a payment card.
    Card,
    /// An international bank account number.
    Iban,
    /// A phone number in international form.
    Phone,
    /// A JSON web token.
    Jwt,
    /// A block of PEM: a key or a certificate.
    Pem,
    /// A key of a service that marks its keys.
    ApiKey,
    /// What follows `Bearer` or `Basic`, and a password or a token in a URL.
    Credential,
}

impl Detector {
    /// Its name in views, logs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Email => "email",
            Self::Card => "card",
            Self::Iban => "iban",
            Self::Phone => "phone",
            Self::Jwt => "jwt",
            Self::Pem => "pem",
            Self::ApiKey => "api-key",
            Self::Credential => "credential",
        }
    }

    /// Whether equal values are worth knowing and so many are possible that guessing one is work.
    pub(super) const fn identifies_somebody(self) -> bool {
        matches!(self, Self::Email | Self::Iban | Self::Phone)
    }
}

impl fmt::Display for Detector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Something that a detector found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The bytes of the text, from one character's first to another's last.
    pub range: Range<usize>,
    /// What it looks like.
    pub class: Detector,
}

/// Finds what looks like personal data or a secret in a text as it stands, in its order; findings may overlap.
pub fn detect(text: &str) -> impl Iterator<Item = Finding> + use<> {
    let mut findings = find(text.as_bytes());
    findings.sort_by_key(|finding| finding.range.start);
    findings.into_iter()
}

/// What a value looks like from its first to its last byte.
pub(super) fn class_of_whole(value: &str) -> Option<Detector> {
    let findings = find(value.trim_ascii().as_bytes());
    findings.into_iter().find(|finding| finding.range.len() == value.trim_ascii().len()).map(|finding| finding.class)
}

/// Visits the findings in a text as it stands, with escapes resolved and in what is base64 of a text: where they stand in
/// the text, and what they are in the clear.
pub(super) fn for_each_finding(text: &str, mut visit: impl FnMut(Finding, &[u8])) {
    for finding in find(text.as_bytes()) {
        let value = &text.as_bytes()[finding.range.clone()];
        visit(finding.clone(), value);
    }
    for_each_plain_reading(text, |reading: &Decoded| {
        for Finding { range, class } in find(&reading.bytes) {
            let (start, end) = reading.source(range.start, range.end - 1);
            visit(Finding { range: start..end, class }, &reading.bytes[range]);
        }
    });
}

/// Runs every detector. No range is empty.
fn find(text: &[u8]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let detectors = [
        personal::emails,
        personal::phone_numbers,
        payment::cards,
        payment::ibans,
        secrets::json_web_tokens,
        secrets::pem_blocks,
        secrets::api_keys,
        secrets::webhooks,
        credentials::in_headers,
        credentials::in_authorities,
        credentials::in_queries,
        credentials::in_settings,
    ];
    for detector in detectors {
        detector(text, &mut |class, range| {
            if !range.is_empty() {
                findings.push(Finding { range, class });
            }
        });
    }
    findings
}

/// Takes what a detector finds.
type Report<'a> = &'a mut dyn FnMut(Detector, Range<usize>);

/// Whether the byte before this place belongs to a word that would go on here.
fn follows_word(text: &[u8], at: usize) -> bool {
    at > 0 && text[at - 1].is_ascii_alphanumeric()
}

/// Whether the byte at this place belongs to a word.
fn is_word_at(text: &[u8], at: usize) -> bool {
    text.get(at).is_some_and(u8::is_ascii_alphanumeric)
}

/// Where the run of bytes that begins at this place ends.
fn run_end(text: &[u8], start: usize, belongs: impl Fn(u8) -> bool) -> usize {
    text[start..].iter().position(|&byte| !belongs(byte)).map_or(text.len(), |length| start + length)
}

/// The places at which these bytes stand.
fn places<'t>(text: &'t [u8], wanted: &'t [u8]) -> impl Iterator<Item = usize> + 't {
    text.windows(wanted.len()).enumerate().filter(move |(_, window)| *window == wanted).map(|(at, _)| at)
}
