//! One entry for all of a job's sinks: what operators may see of its payload, key, metadata and texts. It never shows a
//! part of what it masks, such as a length or an ending.

use super::{
    Miss, REDACTED, Rules, TextMasker,
    detect::{Detector, for_each_finding},
    misses::{Unlisted, named},
    payload::{mask_view, whole},
};
use crate::policy::PayloadFormat;

/// What is known of a job before it is masked.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    /// The payload as it was sent.
    pub payload: &'a [u8],
    /// How the payload's kind is checked.
    pub format: PayloadFormat,
    /// The key that a client gave; none when the host made it, since it tells nothing then.
    pub key: Option<&'a str>,
    /// Names and values.
    pub metadata: &'a [(String, String)],
}

/// Masks everything of one job. It is made once for an attempt and holds the values that have to be found.
pub struct Masker {
    payload_view: String,
    metadata: Vec<(String, String)>,
    text: TextMasker,
    misses: Vec<Miss>,
}

impl Masker {
    /// Learns what is to be masked from a policy, a job and the secrets that its handler was granted.
    pub fn new(rules: &Rules, subject: Subject<'_>, secrets: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Self {
        let redacted = rules.redact_payload(subject.payload, subject.format);
        let is_named = |(name, _): &&(String, String)| rules.is_masked_name(&name.to_lowercase());
        let mut values = redacted.values;
        values.extend(subject.key.map(|key| key.as_bytes().to_vec()));
        values.extend(subject.metadata.iter().filter(is_named).map(|(_, value)| value.as_bytes().to_vec()));
        values.extend(secrets.into_iter().map(|secret| secret.as_ref().to_vec()));
        let unlisted = if rules.detects() { Unlisted::in_view(&redacted.view) } else { Unlisted::default() };
        let mut detected = unlisted.values;
        if rules.detects() {
            detect_in_metadata(subject.metadata, &mut detected);
        }
        let known = values.into_iter().map(|value| (value, None));
        let detected = detected.into_iter().map(|(value, class)| (value, Some(class)));
        let text = TextMasker::of(known.chain(detected), rules.detects());
        let metadata = subject.metadata.iter().map(|entry| {
            let value = if is_named(&entry) { REDACTED.into() } else { text.mask(&entry.1) };
            (text.mask(&entry.0).into_owned(), value.into_owned())
        });
        let metadata = metadata.collect();
        let payload_view = view_without_values(&redacted.view, subject.payload, &text);
        Self { payload_view, metadata, misses: named(unlisted.places, &text), text }
    }

    /// The payload for operators: well-formed JSON in which the policy's fields are masked, and their values and the
    /// secrets wherever else they stand.
    pub fn payload_view(&self) -> &str {
        &self.payload_view
    }

    /// The metadata for operators.
    pub fn metadata(&self) -> &[(String, String)] {
        &self.metadata
    }

    /// A text of the job for operators: an error message, a line of a guest's log, the reason of a trap.
    pub fn text(&self, text: &str) -> String {
        self.text.mask(text).into_owned()
    }

    /// Another document of the job for operators, such as a request's body or a step's result: well-formed JSON, masked by
    /// these rules and by what is known of the job. One that is no JSON is masked whole.
    pub fn document(&self, rules: &Rules, document: &[u8], format: PayloadFormat) -> String {
        let subject = Subject { payload: document, format, key: None, metadata: &[] };
        view_without_values(Self::new(rules, subject, [""; 0]).payload_view(), document, &self.text)
    }

    /// A value under a name for operators, such as a header or a parameter of a URL.
    pub fn named(&self, rules: &Rules, name: &str, value: &str) -> String {
        if rules.is_masked_name(&name.to_lowercase()) { REDACTED.into() } else { self.text(value) }
    }

    /// What detectors found in fields of the payload that the policy does not list: at most 100, each path once a class.
    pub fn misses(&self) -> &[Miss] {
        &self.misses
    }

    /// The key for operators, which is nothing of it.
    #[allow(clippy::unused_self, reason = "sinks ask the masker for everything, whatever it takes to mask it")]
    pub const fn key(&self) -> &'static str {
        REDACTED
    }
}

/// Adds what detectors find in metadata to what is masked elsewhere.
fn detect_in_metadata(metadata: &[(String, String)], detected: &mut Vec<(Vec<u8>, Detector)>) {
    for text in metadata.iter().flat_map(|(name, value)| [name, value]) {
        for_each_finding(text, |finding, value| detected.push((value.to_vec(), finding.class)));
    }
}

/// A view in which values can't be looked for is masked whole.
fn view_without_values(view: &str, payload: &[u8], text: &TextMasker) -> String {
    let whole = |reason: &str| whole(payload, &format!("{} bytes, {reason}", payload.len())).view;
    if text.masks_all() {
        return whole("with too many values to mask");
    }
    mask_view(view, text).unwrap_or_else(|_| whole("not JSON"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redaction::{documents::json_text, is_well_formed};
    use proptest::prelude::*;

    fn masker(payload: &str, metadata: &[(String, String)]) -> Masker {
        let rules = Rules::new(["email".to_owned()], []);
        let subject =
            Subject { payload: payload.as_bytes(), format: PayloadFormat::Json, key: Some("order-4711"), metadata };
        Masker::new(&rules, subject, ["api-key-canary"])
    }

    #[test]
    fn d2_a_policy_value_is_masked_wherever_else_it_stands_in_the_payload() {
        let masker = masker(
            r#"{"email":"jo@example.org","note":"write to \u006ao@example.org\n","by":{"jo@example.org":12},"id":5}"#,
            &[],
        );
        assert_eq!(
            masker.payload_view(),
            r#"{"email":"[redacted]","note":"write to [redacted]\n","by":{"[redacted]":12},"id":5}"#
        );
    }

    #[test]
    fn d2_a_number_that_holds_a_value_is_masked_whole() {
        assert_eq!(
            masker(r#"{"email":12345678,"other":[1123456780,1.5]}"#, &[]).payload_view(),
            r#"{"email":"[redacted]","other":["[redacted]",1.5]}"#
        );
    }

    #[test]
    fn d2_key_secrets_and_values_are_masked_in_texts() {
        let masker = masker(r#"{"email":"jo@example.org"}"#, &[]);
        let text = "order-4711: 401 for jo%40example.org with api-key-canary";
        assert_eq!(masker.text(text), "[redacted]: 401 for [redacted] with [redacted]");
        assert_eq!(masker.key(), REDACTED);
    }

    #[test]
    fn d2_metadata_is_masked_by_name_and_by_value() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let masker =
            masker("{}", &[pair("Email", "jo@example.org"), pair("trace", "for jo@example.org"), pair("a", "b")]);
        assert_eq!(masker.metadata(), [pair("Email", REDACTED), pair("trace", "for [redacted]"), pair("a", "b")]);
        assert_eq!(masker.text("jo@example.org"), REDACTED);
    }

    #[test]
    fn d2_another_document_is_masked_by_its_own_fields_and_by_the_jobs_values() {
        let masker = masker(r#"{"email":"jo@example.org"}"#, &[]);
        let rules = Rules::new(["email".to_owned()], []);
        assert_eq!(
            masker.document(
                &rules,
                br#"{"to":"jo@example.org","email":"al@example.net","note":"al@example.net","n":5}"#,
                PayloadFormat::Json
            ),
            r#"{"to":"[redacted:email]","email":"[redacted]","note":"[redacted]","n":5}"#
        );
        assert_eq!(masker.document(&rules, b"to=jo", PayloadFormat::Json), r#""[redacted: 5 bytes, not JSON]""#);
        assert_eq!(masker.named(&rules, "Email", "anything"), REDACTED);
        assert_eq!(masker.named(&rules, "x-note", "for jo@example.org"), "for [redacted]");
    }

    #[test]
    fn d2_a_payload_of_bytes_is_masked_whole_also_in_texts() {
        let subject = Subject { payload: b"\x00\xffraw bytes", format: PayloadFormat::Bytes, key: None, metadata: &[] };
        let masker = Masker::new(&Rules::default(), subject, [""; 0]);
        assert_eq!(masker.payload_view(), r#""[redacted: 11 bytes]""#);
        assert_eq!(masker.text("got 00FF726177206279746573"), "got [redacted]");
    }

    #[test]
    fn d2_too_many_values_mask_the_payload_whole() {
        let emails: Vec<String> = (0..60_000).map(|n| format!("\"jo-{n}@example.org\"")).collect();
        let payload = format!(r#"{{"email":[{}],"note":"jo-1@example.org"}}"#, emails.join(","));
        let masker = masker(&payload, &[]);
        assert!(masker.payload_view().ends_with(" bytes, with too many values to mask]\""));
    }

    proptest! {
        #[test]
        fn d2_every_view_is_well_formed(payload in json_text()) {
            let rules = Rules::new(["password".to_owned()], []);
            let subject = Subject { payload: payload.as_bytes(), format: PayloadFormat::Json, key: None, metadata: &[] };
            prop_assert!(is_well_formed(Masker::new(&rules, subject, ["true"]).payload_view().as_bytes()).is_ok());
        }
    }
}
