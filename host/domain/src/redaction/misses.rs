//! What detectors find in fields that no policy lists, and where, so that the policy can be mended. It never masks anything
//! itself.

use std::collections::BTreeSet;

use super::{
    TextMasker,
    detect::{Detector, for_each_finding},
    json::{self, Scanner, TokenKind},
};

/// How many misses of one payload are told.
const MISSES_MAX: usize = 100;
/// A path that is longer begins at any depth.
const SEGMENTS_MAX: usize = 32;
/// Of a longer name no path is told.
const NAME_MAX_BYTES: usize = 256;

/// A detector found something in a field that the policy does not list.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Miss {
    /// Where, as a policy's path is written; a name that holds personal data itself is any field.
    pub path: String,
    /// What it looks like.
    pub class: Detector,
}

/// A step of a path, as it stands in the payload.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Field(String),
    Element,
}

/// Where something was found: the steps to it, and what it looks like.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    steps: Vec<Step>,
    is_cut_off: bool,
    class: Detector,
}

/// What detectors find in what the policy left of a payload.
#[derive(Default)]
pub(super) struct Unlisted {
    /// To be masked wherever else they stand.
    pub(super) values: Vec<(Vec<u8>, Detector)>,
    pub(super) places: BTreeSet<Place>,
}

impl Unlisted {
    /// Looks through the strings, numbers and names of a view, which is JSON.
    pub(super) fn in_view(view: &str) -> Self {
        let mut unlisted = Self::default();
        let Ok(mut scanner) = Scanner::new(view.as_bytes()) else { return unlisted };
        let mut steps = Vec::new();
        while let Ok(Some(token)) = scanner.next() {
            let raw = &view[token.range];
            match token.kind {
                TokenKind::ArrayStart => steps.push(Step::Element),
                TokenKind::ObjectStart => steps.push(Step::Field(String::new())),
                TokenKind::ArrayEnd | TokenKind::ObjectEnd => drop(steps.pop()),
                TokenKind::Name => {
                    let name = json::unescape(raw);
                    if let Some(step) = steps.last_mut() {
                        *step = Step::Field(if name.len() > NAME_MAX_BYTES { String::new() } else { name.to_string() });
                    }
                    unlisted.look(&name, &steps);
                }
                TokenKind::String => unlisted.look(&json::unescape(raw), &steps),
                TokenKind::Number => unlisted.look(raw, &steps),
                TokenKind::Literal => {}
            }
        }
        unlisted
    }

    fn look(&mut self, text: &str, steps: &[Step]) {
        for_each_finding(text, |finding, value| {
            self.values.push((value.to_vec(), finding.class));
            if self.places.len() < MISSES_MAX {
                let first = steps.len().saturating_sub(SEGMENTS_MAX);
                let place = Place { steps: steps[first..].to_vec(), is_cut_off: first > 0, class: finding.class };
                self.places.insert(place);
            }
        });
    }
}

/// Writes the places as paths. A name that would be masked in a text is any field.
pub(super) fn named(places: impl IntoIterator<Item = Place>, text_masker: &TextMasker) -> Vec<Miss> {
    let misses = places.into_iter().map(|place| Miss { path: path(&place, text_masker), class: place.class });
    misses.collect::<BTreeSet<_>>().into_iter().collect()
}

fn path(place: &Place, text_masker: &TextMasker) -> String {
    let mut path = String::from(if place.is_cut_off { "$.**" } else { "$" });
    for step in &place.steps {
        match step {
            Step::Element => path += "[*]",
            Step::Field(name) if text_masker.mask(name) != *name => path += ".*",
            Step::Field(name) => push_field(&mut path, name),
        }
    }
    path
}

/// Writes a name so that it can be read again as a step of a path; one that can't be is any field.
fn push_field(path: &mut String, name: &str) {
    let is_plain =
        !name.is_empty() && name.chars().all(|character| character.is_alphanumeric() || "_-".contains(character));
    let quote = ['\'', '"'].into_iter().find(|&quote| !name.contains(quote));
    match quote {
        _ if is_plain => {
            path.push('.');
            *path += name;
        }
        Some(quote) if !name.is_empty() && !name.contains(char::is_control) => {
            path.push('[');
            path.push(quote);
            *path += name;
            path.push(quote);
            path.push(']');
        }
        _ => *path += ".*",
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        policy::PayloadFormat,
        redaction::{Masker, Rules, Subject},
    };

    fn masker(rules: &Rules, payload: &str, metadata: &[(String, String)]) -> Masker {
        let subject = Subject { payload: payload.as_bytes(), format: PayloadFormat::Json, key: None, metadata };
        Masker::new(rules, subject, [""; 0], None)
    }

    fn misses(payload: &str) -> Vec<String> {
        let rules = Rules::new(["email".to_owned()], []);
        let masker = masker(&rules, payload, &[]);
        masker.misses().iter().map(|miss| format!("{} {}", miss.path, miss.class)).collect()
    }

    #[test]
    fn d3_a_finding_in_a_field_that_is_not_listed_is_masked_with_its_kind() {
        let payload = r#"{"email":"jo@example.org","note":"from jo@example.org to bob@example.com","pan":4111111111111111,"a":["+14155552671",-4111111111111111],"id":4711}"#;
        let masker = masker(&Rules::new(["email".to_owned()], []), payload, &[]);
        assert_eq!(
            masker.payload_view(),
            r#"{"email":"[redacted:email ~16]","note":"from [redacted:email ~16] to [redacted:email ~16]","pan":"[redacted:card ~16]","a":["[redacted:phone ~16]","[redacted]"],"id":4711}"#
        );
        // What was found in the payload is masked in texts in every form, like a value of the policy.
        let text = "626f62406578616d706c652e636f6d, amy@example.com, NDExMTExMTExMTExMTExMQ==, 4711";
        assert_eq!(masker.text(text), "[redacted:email ~16], [redacted:email ~16], [redacted:card ~16]==, 4711");
    }

    #[test]
    fn d3_a_miss_is_told_once_by_a_path_that_a_policy_can_take() {
        let found = r#"["a@example.org","b@example.org",{"it's \"x\"":"c@example.org","a b":"4111111111111111"}]"#;
        let told = ["$.list[*] email", "$.list[*].* email", "$.list[*]['a b'] card"];
        assert_eq!(misses(&format!(r#"{{"list":{found},"email":"d@example.org"}}"#)), told);
        assert_eq!(misses(r#""a@example.org""#), ["$ email"]);
        for miss in told {
            let path = miss.rsplit_once(' ').unwrap().0;
            assert!(path.parse::<crate::redaction::FieldPath>().is_ok(), "{path}");
        }
    }

    #[test]
    fn d3_names_that_hold_personal_data_are_any_field_in_paths_and_masked_in_views() {
        let payload = r#"{"email":"Jo Fieldman","by":{"bob@example.com":{"Jo Fieldman":"amy@example.com"}}}"#;
        assert_eq!(misses(payload), ["$.by.* email", "$.by.*.* email"]);
        let masker = masker(&Rules::default(), r#"{"bob@example.com":1}"#, &[]);
        assert_eq!(masker.payload_view(), r#"{"[redacted:email ~16]":1}"#);
    }

    #[test]
    fn d3_misses_are_bounded_in_number_and_depth() {
        let fields: Vec<_> = (0..200).map(|n| format!(r#""f{n}":"jo@example.org""#)).collect();
        assert_eq!(misses(&format!("{{{}}}", fields.join(","))).len(), 100);
        let deep = format!("{}\"jo@example.org\"{}", "[".repeat(10_000), "]".repeat(10_000));
        assert_eq!(misses(&deep), [format!("$.**{} email", "[*]".repeat(32))]);
        let long = format!(r#"{{"{}":"jo@example.org"}}"#, "n".repeat(1_000));
        assert_eq!(misses(&long), ["$.* email"]);
        let longest = "n".repeat(256);
        assert_eq!(misses(&format!(r#"{{"{longest}":"jo@example.org"}}"#)), [format!("$.{longest} email")]);
        let [deepest, deeper] =
            [32, 33].map(|depth| misses(&("[".repeat(depth) + r#""jo@example.org""# + &"]".repeat(depth))));
        assert_eq!(deepest, [format!("${} email", "[*]".repeat(32))]);
        assert_eq!(deeper, [format!("$.**{} email", "[*]".repeat(32))]);
    }

    #[test]
    fn d3_a_name_is_written_as_a_path_has_it_and_as_any_field_where_it_can_not_be() {
        for (name, path) in [
            ("a_b-C2", "$.a_b-C2"),
            ("é", "$.é"),
            ("a.b", "$['a.b']"),
            ("it's", r#"$["it's"]"#),
            (r#"it's "x""#, "$.*"),
            (r#""x""#, r#"$['"x"']"#),
            ("a\nb", "$.*"),
            ("", "$.*"),
        ] {
            let payload = serde_json::json!({ name: "jo@example.org" }).to_string();
            assert_eq!(misses(&payload), [format!("{path} email")], "{name:?}");
            assert!(path.parse::<crate::redaction::FieldPath>().is_ok(), "{path}");
        }
    }

    #[test]
    fn d3_without_detectors_only_the_policy_holds() {
        let rules = Rules::new(["email".to_owned()], []).with_detectors(false);
        let payload = r#"{"email":"jo@example.org","note":"bob@example.com"}"#;
        let masker = masker(&rules, payload, &[]);
        assert_eq!(masker.payload_view(), r#"{"email":"[redacted:text ~16]","note":"bob@example.com"}"#);
        assert_eq!(masker.text("for jo@example.org, bob@example.com"), "for [redacted:text ~16], bob@example.com");
        assert_eq!(masker.misses(), []);
    }

    #[test]
    fn d2_what_is_found_in_metadata_is_masked_there_and_in_texts_and_is_no_miss() {
        let metadata = [("trace".to_owned(), "for bob@example.com".to_owned())];
        let masker = masker(&Rules::default(), "{}", &metadata);
        assert_eq!(masker.metadata(), [("trace".to_owned(), "for [redacted:email ~16]".to_owned())]);
        assert_eq!(masker.text("626f62406578616d706c652e636f6d"), "[redacted:email ~16]");
        assert_eq!(masker.misses(), []);
    }
}
