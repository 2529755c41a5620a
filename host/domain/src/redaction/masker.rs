//! One entry for all of a job's sinks: what operators may see of its payload, key, metadata and texts. It never shows a
//! part of what it masks, such as an ending.

use super::{
    FingerprintKey, Miss, Rules, TextMasker,
    detect::{Detector, for_each_finding},
    mask::{Mask, Masks},
    misses::{Unlisted, named},
    payload::{RedactedPayload, mask_view, whole},
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
    key: String,
    metadata: Vec<(String, String)>,
    text: TextMasker,
    misses: Vec<Miss>,
}

impl Masker {
    /// Learns what is to be masked from a policy, a job and the secrets that its handler was granted. With a key, masks
    /// of what identifies somebody tell equal values from others.
    pub fn new(
        rules: &Rules,
        subject: Subject<'_>,
        secrets: impl IntoIterator<Item = impl AsRef<[u8]>>,
        fingerprints: Option<&FingerprintKey>,
    ) -> Self {
        let mut masks = Masks::new(fingerprints);
        let mut redacted = rules.redact_payload(subject.payload, subject.format, &mut masks);
        let key = subject.key.map(|key| rules.mask_of_listed("text", key, &mut masks));
        let listed = listed_metadata(rules, subject.metadata, &mut masks);
        let mut values = std::mem::take(&mut redacted.values);
        values.extend(subject.key.zip(key).map(|(key, mask)| (key.as_bytes().to_vec(), mask)));
        let named_metadata = subject.metadata.iter().zip(&listed);
        values.extend(named_metadata.filter_map(|((_, value), mask)| Some((value.as_bytes().to_vec(), (*mask)?))));
        values.extend(secrets.into_iter().map(|secret| (secret.as_ref().to_vec(), Mask::of_kind("secret"))));

        let unlisted = if rules.detects() { Unlisted::in_view(&redacted.view) } else { Unlisted::default() };
        let mut detected = unlisted.values;
        if rules.detects() {
            detect_in_metadata(subject.metadata, &mut detected);
        }
        let detected = detected.into_iter().map(|(value, class)| {
            let mask = masks.of_finding(class, &value);
            (value, mask)
        });
        let text = TextMasker::of(values.into_iter().chain(detected), rules.detects());
        let metadata = subject.metadata.iter().zip(&listed).map(|((name, value), mask)| {
            let value = mask.map_or_else(|| text.mask(value).into_owned(), |mask| mask.to_string());
            (text.mask(name).into_owned(), value)
        });
        let metadata = metadata.collect();
        let payload_view = view_without_values(&redacted, subject.payload, &text);
        let key = key.unwrap_or(Mask::of_kind("text")).to_string();
        Self { payload_view, key, metadata, misses: named(unlisted.places, &text), text }
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
        let view = Self::new(rules, subject, [""; 0], None).payload_view;
        view_without_values(&RedactedPayload { view, masks_at: Vec::new(), values: Vec::new() }, document, &self.text)
    }

    /// A value under a name for operators, such as a header or a parameter of a URL.
    pub fn named(&self, rules: &Rules, name: &str, value: &str) -> String {
        if rules.is_masked_name(&name.to_lowercase()) {
            rules.mask_of_listed("text", value, &mut Masks::new(None)).to_string()
        } else {
            self.text(value)
        }
    }

    /// What detectors found in fields of the payload that the policy does not list: at most 100, each path once a class.
    pub fn misses(&self) -> &[Miss] {
        &self.misses
    }

    /// The key for operators, which is its mask.
    pub fn key(&self) -> &str {
        &self.key
    }
}

/// For each entry the mask of its value, if the policy names it.
fn listed_metadata(rules: &Rules, metadata: &[(String, String)], masks: &mut Masks<'_>) -> Vec<Option<Mask>> {
    let mask = |(name, value): &(String, String)| {
        rules.is_masked_name(&name.to_lowercase()).then(|| rules.mask_of_listed("text", value, masks))
    };
    metadata.iter().map(mask).collect()
}

/// Adds what detectors find in metadata to what is masked elsewhere.
fn detect_in_metadata(metadata: &[(String, String)], detected: &mut Vec<(Vec<u8>, Detector)>) {
    for text in metadata.iter().flat_map(|(name, value)| [name, value]) {
        for_each_finding(text, |finding, value| detected.push((value.to_vec(), finding.class)));
    }
}

/// A view in which values can't be looked for is masked whole.
fn view_without_values(redacted: &RedactedPayload, payload: &[u8], text: &TextMasker) -> String {
    let whole = |reason: &str| whole(payload, &format!("{} bytes, {reason}", payload.len())).view;
    if text.masks_all() {
        return whole("with too many values to mask");
    }
    mask_view(redacted, text).unwrap_or_else(|_| whole("not JSON"))
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
        Masker::new(&rules, subject, ["api-key-canary"], None)
    }

    #[test]
    fn d2_a_policy_value_is_masked_wherever_else_it_stands_in_the_payload() {
        let masker = masker(
            r#"{"email":"jo@example.org","note":"write to \u006ao@example.org\n","by":{"jo@example.org":12},"id":5}"#,
            &[],
        );
        assert_eq!(
            masker.payload_view(),
            r#"{"email":"[redacted:email ~16]","note":"write to [redacted:email ~16]\n","by":{"[redacted:email ~16]":12},"id":5}"#
        );
    }

    #[test]
    fn d2_a_number_that_holds_a_value_is_masked_whole() {
        assert_eq!(
            masker(r#"{"email":12345678,"other":[1123456780,123456780,112345678,12345678,1.5]}"#, &[]).payload_view(),
            r#"{"email":"[redacted:number ~8]","other":["[redacted]","[redacted]","[redacted]","[redacted:number ~8]",1.5]}"#
        );
    }

    #[test]
    fn d2_key_secrets_and_values_are_masked_in_texts() {
        let masker = masker(r#"{"email":"jo@example.org"}"#, &[]);
        let text = "order-4711: 401 for jo%40example.org with api-key-canary";
        assert_eq!(masker.text(text), "[redacted:text ~16]: 401 for [redacted:email ~16] with [redacted:secret]");
        assert_eq!(masker.key(), "[redacted:text ~16]");
    }

    #[test]
    fn d2_metadata_is_masked_by_name_and_by_value() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let masker =
            masker("{}", &[pair("Email", "jo@example.org"), pair("trace", "for jo@example.org"), pair("a", "b")]);
        let mask = "[redacted:email ~16]";
        assert_eq!(masker.metadata(), [pair("Email", mask), pair("trace", &format!("for {mask}")), pair("a", "b")]);
        assert_eq!(masker.text("jo@example.org"), mask);
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
            r#"{"to":"[redacted:email ~16]","email":"[redacted:email ~16]","note":"[redacted:email ~16]","n":5}"#
        );
        assert_eq!(masker.document(&rules, b"to=jo", PayloadFormat::Json), r#""[redacted: 5 bytes, not JSON]""#);
        assert_eq!(masker.named(&rules, "Email", "anything"), "[redacted:text ~8]");
        assert_eq!(masker.named(&rules, "x-note", "for jo@example.org"), "for [redacted:email ~16]");
    }

    #[test]
    fn d2_a_payload_of_bytes_is_masked_whole_also_in_texts() {
        let subject = Subject { payload: b"\x00\xffraw bytes", format: PayloadFormat::Bytes, key: None, metadata: &[] };
        let masker = Masker::new(&Rules::default(), subject, [""; 0], None);
        assert_eq!(masker.payload_view(), r#""[redacted: 11 bytes]""#);
        assert_eq!(masker.text("got 00FF726177206279746573"), "got [redacted:payload]");
    }

    #[test]
    fn d2_equal_values_are_seen_to_be_equal_wherever_and_however_they_stand() {
        let rules = Rules::new(["email".to_owned()], []);
        let payload = br#"{"email":"jo@example.org","note":"bob@example.org","again":"from Jo@Example.org"}"#;
        let subject = Subject { payload, format: PayloadFormat::Json, key: Some("jo@example.org"), metadata: &[] };
        let key = FingerprintKey::new([7; 32]);
        let masker = Masker::new(&rules, subject, [""; 0], Some(&key));
        let view: serde_json::Value = serde_json::from_str(masker.payload_view()).unwrap();
        let jo = view["email"].as_str().unwrap();
        assert!(jo.starts_with("[redacted:email ~16 #"), "{jo}");
        assert_eq!((masker.key(), &view["again"]), (jo, &serde_json::json!(format!("from {jo}"))));
        assert_eq!(masker.text("for am9AZXhhbXBsZS5vcmc="), format!("for {jo}="));
        assert_ne!(view["note"], jo);
        // What only a text holds is not told apart: it would let a guest tell as much as it likes.
        assert_eq!(masker.text("amy@example.org"), "[redacted:email ~16]");
    }

    #[test]
    fn d2_a_mask_is_not_masked_again() {
        let masker = masker(r#"{"email":["list","redacted","text"],"note":"redacted text"}"#, &[]);
        let view = r#"{"email":"[redacted:list]","note":"[redacted:text ~8] [redacted:text ~8]"}"#;
        assert_eq!(masker.payload_view(), view);
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
            prop_assert!(is_well_formed(Masker::new(&rules, subject, ["true"], None).payload_view().as_bytes()).is_ok());
        }
    }
}
