//! Masks known values wherever they stand in a text, plain or encoded, and what the detectors find. It never learns a
//! value from a text.

use std::{borrow::Cow, collections::BTreeMap};

use aho_corasick::{
    Anchored,
    automaton::{Automaton, StateID},
    nfa::noncontiguous,
};

use super::{
    REDACTED,
    decode::{Decoded, for_each_reading},
    detect::{Detector, Finding, for_each_finding},
};

/// A shorter value stands in too many words to be masked in texts.
const VALUE_MIN_CHARACTERS: usize = 4;
/// Beyond this many bytes of values, looking for them costs more memory than a text is worth: it is masked whole.
const VALUES_MAX_BYTES: usize = 512 << 10;

/// Finds values of four characters and more and masks them: as they are, escaped for JSON or by Rust's `{:?}`,
/// percent-encoded, in base64 (also inside a longer one) and in hexadecimal, and with escapes on top of these.
pub struct TextMasker {
    values: Values,
    detects: bool,
}

enum Values {
    None,
    /// What finds them, and for each what it looks like, if a detector found it.
    Known(Box<noncontiguous::NFA>, Vec<Option<Detector>>),
    /// There are too many to be looked for.
    TooMany,
}

impl TextMasker {
    /// A masker of these values, without detectors. White space around a value is no part of it.
    pub fn new(values: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Self {
        Self::of(values.into_iter().map(|value| (value.as_ref().to_vec(), None)), false)
    }

    /// A masker of values, of which detectors found some, that also masks what detectors find in a text.
    pub(super) fn of(values: impl IntoIterator<Item = (Vec<u8>, Option<Detector>)>, detects: bool) -> Self {
        let mut patterns = BTreeMap::new();
        for (value, class) in values {
            let value = value.trim_ascii().to_vec();
            if characters(&value) >= VALUE_MIN_CHARACTERS {
                // What the policy names is masked as that, whatever it looks like.
                patterns.entry(value).and_modify(|known: &mut Option<_>| *known = known.and(class)).or_insert(class);
            }
        }
        if patterns.is_empty() {
            return Self { values: Values::None, detects };
        }
        let bytes: usize = patterns.keys().map(Vec::len).sum();
        let automaton =
            (bytes <= VALUES_MAX_BYTES).then(|| noncontiguous::NFA::new(patterns.keys()).ok().map(Box::new));
        let known = |automaton| Values::Known(automaton, patterns.into_values().collect());
        Self { values: automaton.flatten().map_or(Values::TooMany, known), detects }
    }

    /// The text without the values; each stretch of them is replaced by [`REDACTED`], or by what a detector leaves in its
    /// place.
    #[must_use]
    pub fn mask<'t>(&self, text: &'t str) -> Cow<'t, str> {
        if text.is_empty() {
            return Cow::Borrowed(text);
        }
        let mut covered = Covered::new(text);
        match &self.values {
            Values::None => {}
            Values::TooMany => return Cow::Owned(format!("[redacted: {} bytes of text]", text.len())),
            Values::Known(automaton, classes) => {
                for_each_reading(text, |reading| find(automaton, classes, reading, &mut covered));
            }
        }
        if self.detects {
            for_each_finding(text, |Finding { range, class }, _| covered.add((range.start, range.end), Some(class)));
        }
        covered.masked()
    }

    /// Whether there are too many values to be looked for, so that every text is masked whole.
    pub(super) fn masks_all(&self) -> bool {
        matches!(self.values, Values::TooMany)
    }
}

fn characters(value: &[u8]) -> usize {
    std::str::from_utf8(value).map_or(value.len(), |text| text.chars().count())
}

/// Marks all places of all values, also those that overlap. Of the values that end at one place the automaton names the
/// longest first, and it covers the others.
fn find(automaton: &noncontiguous::NFA, classes: &[Option<Detector>], reading: &Decoded, covered: &mut Covered<'_>) {
    let Ok(mut state): Result<StateID, _> = automaton.start_state(Anchored::No) else { return };
    for (last, &byte) in reading.bytes.iter().enumerate() {
        state = automaton.next_state(Anchored::No, state, byte);
        if automaton.is_match(state) {
            let pattern = automaton.match_pattern(state, 0);
            let first = last + 1 - automaton.pattern_len(pattern);
            covered.add(reading.source(first, last), classes.get(pattern.as_usize()).copied().flatten());
        }
    }
}

/// The stretches of a text that are to be masked, counted at their edges, so that overlaps cost nothing.
struct Covered<'t> {
    text: &'t str,
    /// For each byte, and the end, what begins and ends there; empty until there is something.
    edges: Vec<Edge>,
}

/// How many more stretches cover what follows than what stands before.
#[derive(Debug, Clone, Copy, Default)]
struct Edge {
    values: i32,
    findings: i32,
    /// What a finding that begins here looks like.
    class: Option<Detector>,
}

impl<'t> Covered<'t> {
    fn new(text: &'t str) -> Self {
        Self { text, edges: Vec::new() }
    }

    fn add(&mut self, (start, end): (usize, usize), class: Option<Detector>) {
        if self.edges.is_empty() {
            self.edges = vec![Edge::default(); self.text.len() + 1];
        }
        if class.is_some() {
            self.edges[start].findings += 1;
            self.edges[start].class = class;
            self.edges[end].findings -= 1;
        } else {
            self.edges[start].values += 1;
            self.edges[end].values -= 1;
        }
    }

    /// A character is masked when any of its bytes is. A stretch with a known value in it says nothing of what it was.
    fn masked(&self) -> Cow<'t, str> {
        if self.edges.is_empty() {
            return Cow::Borrowed(self.text);
        }
        let mut masked = String::with_capacity(self.text.len());
        let (mut values, mut findings, mut replacement) = (0, 0, None);
        for (at, character) in self.text.char_indices() {
            let (mut has_value, mut has_finding, mut class) = (false, false, None);
            for edge in &self.edges[at..at + character.len_utf8()] {
                values += edge.values;
                findings += edge.findings;
                has_value |= values > 0;
                has_finding |= findings > 0;
                class = class.or(edge.class);
            }
            if has_value {
                replacement = Some(REDACTED);
            } else if has_finding {
                replacement = replacement.or(class.map(Detector::replacement)).or(Some(REDACTED));
            } else {
                masked += replacement.take().unwrap_or_default();
                masked.push(character);
            }
        }
        masked += replacement.unwrap_or_default();
        Cow::Owned(masked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::{
        Engine as _,
        engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD},
    };
    use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
    use proptest::prelude::*;

    /// A canary that every encoding changes.
    const CANARY: &str = "can+ary é\"/\\ü~?>?";

    fn mask(values: &[&str], text: &str) -> String {
        TextMasker::new(values).mask(text).into_owned()
    }

    fn forms(value: &str) -> Vec<String> {
        let json = serde_json::to_string(value).unwrap();
        let json = json[1..json.len() - 1].to_owned();
        let ascii = value.encode_utf16().map(|unit| format!("\\u{unit:04X}")).collect::<Vec<_>>().concat();
        let percent = utf8_percent_encode(value, NON_ALPHANUMERIC).to_string();
        let twice = serde_json::to_string(&json).unwrap();
        let mut forms = vec![
            value.to_owned(),
            format!("{value:?}"),
            value.escape_default().to_string(),
            json.clone(),
            json.replace('/', "\\/"),
            ascii.to_lowercase(),
            ascii,
            twice[1..twice.len() - 1].to_owned(),
            percent.to_lowercase(),
            percent.replace("%20", "+"),
            utf8_percent_encode(&percent, NON_ALPHANUMERIC).to_string(),
            percent,
            hex::encode(value),
            hex::encode_upper(value),
        ];
        for engine in [STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD] {
            forms.push(engine.encode(value));
            forms.push(engine.encode(format!("a{value}")));
            forms.push(engine.encode(format!("user:{value}:and more")));
            forms.push(engine.encode(format!("{{\"k\":\"{json}\"}}")));
        }
        forms.push(utf8_percent_encode(&STANDARD.encode(value), NON_ALPHANUMERIC).to_string());
        forms
    }

    #[test]
    fn d2_a_canary_is_masked_in_every_encoded_form() {
        for form in forms(CANARY) {
            for text in [form.clone(), format!("Error: bad value <{form}> in field"), format!("x={form}&y=1")] {
                let masked = mask(&[CANARY], &text);
                assert!(masked.contains(REDACTED), "{text} became {masked}");
                assert!(!forms(CANARY).iter().any(|form| masked.contains(form.as_str())), "{text} became {masked}");
            }
        }
    }

    #[test]
    fn d2_all_of_a_value_is_masked_and_nothing_else() {
        assert_eq!(mask(&["secret"], "my secret, and secretsecret."), "my [redacted], and [redacted].");
        assert_eq!(mask(&["secret"], "%73ecret \\u0073ecret 736563726574"), "[redacted] [redacted] [redacted]");
        assert_eq!(mask(&["secret"], "basic c2VjcmV0 end"), "basic [redacted] end");
        assert_eq!(mask(&["  secret\n"], "(secret)"), "([redacted])");
    }

    #[test]
    fn d2_an_encoded_value_is_masked_whatever_stands_before_it() {
        for before in ["", "x", "xx", "xxx", "a/", "id=0"] {
            for form in [STANDARD.encode("api-key-canary"), hex::encode("api-key-canary")] {
                let masked = mask(&["api-key-canary"], &format!("{before}{form}"));
                assert!(masked.starts_with(before) && masked.contains(REDACTED), "{before}{form} became {masked}");
            }
        }
    }

    #[test]
    fn d2_a_value_in_base64_is_masked_across_line_breaks() {
        let encoded = STANDARD.encode("api-key-canary");
        assert_eq!(mask(&["api-key-canary"], &format!("({}\r\n{})", &encoded[..8], &encoded[8..])), "([redacted]=)");
    }

    #[test]
    fn d2_values_that_overlap_are_masked_to_their_last_character() {
        assert_eq!(mask(&["abcd", "cdef"], "xabcdefx"), "x[redacted]x");
        assert_eq!(mask(&["bcde", "abcdefgh"], "abcdefgx abcdefgh"), "a[redacted]fgx [redacted]");
        assert_eq!(mask(&["cdefg", "defg", "efghi"], "abcdefgh"), "ab[redacted]h");
    }

    #[test]
    fn d2_a_value_of_fewer_than_four_characters_is_not_masked_in_texts() {
        assert_eq!(mask(&["abc", "é", "üüü", ""], "abc é üüü"), "abc é üüü");
        assert_eq!(mask(&["üüüü"], "üüüü"), REDACTED);
        assert_eq!(mask(&["1234"], "pin 1234"), "pin [redacted]");
    }

    #[test]
    fn d2_a_secret_that_is_no_text_is_masked_too() {
        let secret = [0xff, 0xfe, 0x80, 0x01, 0xc3];
        let masker = TextMasker::new([secret]);
        assert_eq!(masker.mask(&format!("k={};", STANDARD.encode(secret))), "k=[redacted]=;");
        assert_eq!(masker.mask(&hex::encode_upper(secret)), REDACTED);
    }

    #[test]
    fn d2_too_many_values_mask_the_text_whole() {
        let values: Vec<String> = (0..100_000).map(|n| format!("value-{n}")).collect();
        assert_eq!(TextMasker::new(&values).mask("all of it"), "[redacted: 9 bytes of text]");
    }

    #[test]
    fn d2_a_long_text_of_nothing_but_values_is_masked() {
        let values: Vec<String> = (4..600).map(|length| "a".repeat(length)).collect();
        assert_eq!(TextMasker::new(&values).mask(&"a".repeat(64 << 10)), REDACTED);
    }

    proptest! {
        #[test]
        fn d2_no_value_is_left_in_a_text(value in "[a-z%+\\\\\"é ]{4,12}", before in ".{0,12}", after in ".{0,12}") {
            let value = value.trim();
            prop_assume!(value.chars().count() >= 4);
            for form in forms(value) {
                let masked = mask(&[value], &format!("{before}|{form}|{after}"));
                prop_assert!(masked.contains(REDACTED), "{} in {} became {}", value, form, masked);
                prop_assert!(!masked.contains(value));
            }
        }
    }
}
