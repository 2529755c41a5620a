//! D2 under arbitrary input: whatever the payload, the policy and the text, masking ends, its view is JSON, and no value
//! that the policy names is left in either.
//!
//! Inputs that were worth keeping lie in `tests/corpus/redaction`, one payload a file, and are replayed against every
//! policy here. Put one that fails there, under a name that says what it is.

use std::{fs, path::Path};

use leasehold_domain::{
    policy::PayloadFormat,
    redaction::{FingerprintKey, Masker, Rules, Subject, is_well_formed},
};
use proptest::prelude::*;

const KEY: FingerprintKey = FingerprintKey::new([7; 32]);
/// Fields that the policies name.
const NAMES: [&str; 4] = ["password", "e", "", "naïve \"name\""];
const PATHS: [&str; 6] = ["$", "$..password", "$.*", "$[*].e", "$.a.**.b", "$[0][1]"];

fn masker(rules: &Rules, payload: &[u8], format: PayloadFormat) -> Masker {
    let metadata = [("password".to_owned(), "m3tadata".to_owned()), ("trace".to_owned(), "4711".to_owned())];
    let subject = Subject { payload, format, key: Some("order-4711"), metadata: &metadata };
    Masker::new(rules, subject, ["s3cret"], Some(&KEY))
}

fn policies() -> Vec<Rules> {
    let by_name = NAMES.iter().map(|&name| Rules::new([name.to_owned()], []));
    let by_path = PATHS.iter().map(|path| Rules::new([], [path.parse().unwrap()]));
    by_name.chain(by_path).flat_map(|rules| [rules.clone(), rules.with_detectors(false)]).collect()
}

/// What is left beside the masks, each of which leaves a gap.
fn beside_masks(text: &str) -> String {
    let mut parts = text.split("[redacted");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |left, part| left + "\u{0}" + part.split_once(']').map_or("", |(_, after)| after))
}

/// The strings and numbers of a document, and the names of its fields; nothing of one that nests too deep for a parser
/// that recurses.
fn strings(json: &str) -> Vec<String> {
    fn collect(value: &serde_json::Value, found: &mut Vec<String>) {
        match value {
            serde_json::Value::String(text) => found.push(text.clone()),
            serde_json::Value::Array(items) => items.iter().for_each(|item| collect(item, found)),
            serde_json::Value::Object(fields) => fields.iter().for_each(|(name, value)| {
                found.push(name.clone());
                collect(value, found);
            }),
            _ => {}
        }
    }
    let mut found = Vec::new();
    if let Ok(value) = serde_json::from_str(json) {
        collect(&value, &mut found);
    }
    found
}

/// The values of every field of that name, as far as they are looked for elsewhere.
fn values_of(json: &str, name: &str) -> Vec<String> {
    fn collect(value: &serde_json::Value, name: &str, is_named: bool, found: &mut Vec<String>) {
        match value {
            serde_json::Value::String(text) if is_named => found.push(text.trim_ascii().to_owned()),
            serde_json::Value::Array(items) => items.iter().for_each(|item| collect(item, name, is_named, found)),
            serde_json::Value::Object(fields) => fields
                .iter()
                .for_each(|(field, value)| collect(value, name, is_named || field.to_lowercase() == name, found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    if let Ok(value) = serde_json::from_str(json) {
        collect(&value, name, false, &mut found);
    }
    found.retain(|value| value.chars().count() >= 4);
    found
}

fn check(payload: &[u8]) -> Result<(), TestCaseError> {
    for rules in policies() {
        for format in [PayloadFormat::Json, PayloadFormat::Bytes] {
            let masker = masker(&rules, payload, format);
            prop_assert!(is_well_formed(masker.payload_view().as_bytes()).is_ok(), "{}", masker.payload_view());
            masker.text(&String::from_utf8_lossy(payload));
        }
    }
    for name in NAMES {
        let rules = Rules::new([name.to_owned()], []);
        check_values(&rules, &String::from_utf8_lossy(payload), name)?;
    }
    Ok(())
}

fn check_values(rules: &Rules, payload: &str, name: &str) -> Result<(), TestCaseError> {
    let masker = masker(rules, payload.as_bytes(), PayloadFormat::Json);
    for value in values_of(payload, name) {
        for shown in strings(masker.payload_view()) {
            prop_assert!(!beside_masks(&shown).contains(&value), "{value:?} in {}", masker.payload_view());
        }
        let text = masker.text(&format!("before {value} after"));
        prop_assert!(!beside_masks(&text).contains(&value), "{value:?} in {text}");
    }
    Ok(())
}

/// Documents whose fields are often those of the policies, and whose values often stand in more than one place.
fn documents() -> impl Strategy<Value = String> {
    let word =
        || prop_oneof!["[a-c]{1,6}", "[a-c %+\\\\\"é=]{4,8}", Just("jo@example.org".to_owned()), any::<String>()];
    let quoted = |text: String| serde_json::to_string(&text).unwrap();
    let leaf = prop_oneof![
        Just("null".to_owned()),
        any::<i64>().prop_map(|number| number.to_string()),
        Just("-0.0e-400".to_owned()),
        word().prop_map(quoted),
    ];
    let name = prop_oneof![prop::sample::select(&NAMES[..]).prop_map(str::to_owned), word()];
    leaf.prop_recursive(5, 40, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(|items| format!("[{}]", items.join(","))),
            prop::collection::vec((name.clone(), inner), 0..5).prop_map(move |fields| {
                let field = |(name, value): &(String, String)| format!("{}:{value}", quoted(name.clone()));
                format!("{{{}}}", fields.iter().map(field).collect::<Vec<_>>().join(", "))
            }),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn d2_no_value_of_the_policy_is_left_of_any_document(payload in documents()) {
        check(payload.as_bytes())?;
    }

    #[test]
    fn d2_any_bytes_are_masked_to_json(payload in prop::collection::vec(any::<u8>(), 0..200)) {
        check(&payload)?;
    }

    #[test]
    fn d2_any_text_of_likely_beginnings_is_masked_to_json(
        text in r#"([\[\]{}:,"\\ 0-9a-f@.%+/=-]|eyJ|://|key=|Basic |Bearer |DE89|\\ud800|"password":|-----BEGIN ){0,60}"#
    ) {
        check(text.as_bytes())?;
    }
}

#[test]
fn d2_what_was_found_once_is_masked_for_good() {
    let corpus = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/corpus/redaction"));
    let files: Vec<_> = fs::read_dir(corpus).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() >= 10, "the corpus is missing: {files:?}");
    for file in files {
        check(&fs::read(&file).unwrap()).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    }
}
