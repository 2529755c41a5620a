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
    mask::{Mask, characters},
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
    /// What finds them, and what is shown of each.
    Known(Box<noncontiguous::NFA>, Vec<Mask>),
    /// There are too many to be looked for.
    TooMany,
}

impl TextMasker {
    /// A masker that knows no value: it masks what looks like personal data or a secret, such as an operator's reason.
    pub const fn by_form() -> Self {
        Self { values: Values::None, detects: true }
    }

    /// A masker of values, each with what is shown of it, that also masks what detectors find in a text. White space
    /// around a value is no part of it. Of masks for one value the first holds.
    pub(super) fn of(values: impl IntoIterator<Item = (Vec<u8>, Mask)>, detects: bool) -> Self {
        let mut patterns = BTreeMap::new();
        for (value, mask) in values {
            let value = value.trim_ascii().to_vec();
            if characters(&value) >= VALUE_MIN_CHARACTERS {
                patterns.entry(value).or_insert(mask);
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

    /// The text without the values, each of which is replaced by its mask. Where values overlap and none covers the
    /// others, what is shown is their kind, or nothing when they differ in it.
    #[must_use]
    pub fn mask<'t>(&self, text: &'t str) -> Cow<'t, str> {
        if text.is_empty() {
            return Cow::Borrowed(text);
        }
        let mut covered = Covered::new(text);
        match &self.values {
            Values::None => {}
            Values::TooMany => return Cow::Owned(format!("[redacted: {} bytes of text]", text.len())),
            Values::Known(automaton, _) => for_each_reading(text, |reading| find(automaton, reading, &mut covered)),
        }
        if self.detects {
            for_each_finding(text, |Finding { range, class }, value| {
                covered.add((range.start, range.end), Shown::Found(class, characters(value)));
            });
        }
        covered.masked(|shown| self.mask_of(shown))
    }

    fn mask_of(&self, shown: Shown) -> Mask {
        match (shown, &self.values) {
            (Shown::Known(pattern), Values::Known(_, masks)) => masks[pattern],
            (Shown::Found(class, characters), _) => Mask::of_length(class.as_str(), characters),
            (Shown::Known(_), _) => Mask::of_kind("text"),
        }
    }

    /// Whether there are too many values to be looked for, so that every text is masked whole.
    pub(super) fn masks_all(&self) -> bool {
        matches!(self.values, Values::TooMany)
    }
}

/// Marks all places of all values, also those that overlap. Of the values that end at one place the automaton names the
/// longest first, and it covers the others.
fn find(automaton: &noncontiguous::NFA, reading: &Decoded, covered: &mut Covered<'_>) {
    let Ok(mut state): Result<StateID, _> = automaton.start_state(Anchored::No) else { return };
    for (last, &byte) in reading.bytes.iter().enumerate() {
        state = automaton.next_state(Anchored::No, state, byte);
        if automaton.is_match(state) {
            let pattern = automaton.match_pattern(state, 0);
            let first = last + 1 - automaton.pattern_len(pattern);
            covered.add(reading.source(first, last), Shown::Known(pattern.as_usize()));
        }
    }
}

/// What stands at a place: a known value, by its number, or something found, with its length in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shown {
    Known(usize),
    Found(Detector, usize),
}

/// The stretches of a text that are to be masked, counted at their edges, so that overlaps cost nothing.
struct Covered<'t> {
    text: &'t str,
    /// For each byte, and the end, what begins and ends there; empty until there is something.
    edges: Vec<Edge>,
}

/// How many more stretches cover what follows than what stands before, and the longest of those that begin here.
#[derive(Debug, Clone, Copy, Default)]
struct Edge {
    change: i32,
    longest: Option<(usize, Shown)>,
}

/// A stretch of masked characters that is being read.
struct Stretch {
    /// What began first in it, and where that ends.
    first: Option<(usize, Mask)>,
    /// The kind of all that began in it, while they agree.
    kind: Option<&'static str>,
    agrees: bool,
}

impl Stretch {
    fn begin() -> Self {
        Self { first: None, kind: None, agrees: true }
    }

    fn take(&mut self, end: usize, mask: Mask) {
        self.first = self.first.or(Some((end, mask)));
        self.agrees &= *self.kind.get_or_insert(mask.kind()) == mask.kind();
    }

    /// What stands in its place; its last character begins at `last`.
    fn replacement(&self, last: usize) -> String {
        match (self.first, self.kind) {
            (Some((end, mask)), _) if end > last => mask.to_string(),
            (_, Some(kind)) if self.agrees => Mask::of_kind(kind).to_string(),
            _ => REDACTED.to_owned(),
        }
    }
}

impl<'t> Covered<'t> {
    fn new(text: &'t str) -> Self {
        Self { text, edges: Vec::new() }
    }

    fn add(&mut self, (start, end): (usize, usize), shown: Shown) {
        if self.edges.is_empty() {
            self.edges = vec![Edge::default(); self.text.len() + 1];
        }
        self.edges[end].change -= 1;
        let edge = &mut self.edges[start];
        edge.change += 1;
        if edge.longest.is_none_or(|(longest, _)| end > longest) {
            edge.longest = Some((end, shown));
        }
    }

    /// A character is masked when any of its bytes is.
    fn masked(&self, mask_of: impl Fn(Shown) -> Mask) -> Cow<'t, str> {
        if self.edges.is_empty() {
            return Cow::Borrowed(self.text);
        }
        let mut masked = String::with_capacity(self.text.len());
        let (mut depth, mut last, mut stretch) = (0, 0, None::<Stretch>);
        for (at, character) in self.text.char_indices() {
            let mut is_covered = false;
            for edge in &self.edges[at..at + character.len_utf8()] {
                depth += edge.change;
                is_covered |= depth > 0;
                if let Some((end, shown)) = edge.longest {
                    stretch.get_or_insert_with(Stretch::begin).take(end, mask_of(shown));
                }
            }
            if is_covered {
                last = at;
            } else {
                masked.extend(stretch.take().map(|stretch| stretch.replacement(last)));
                masked.push(character);
            }
        }
        masked.extend(stretch.map(|stretch| stretch.replacement(last)));
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

    /// What stands for the values of these tests.
    const MASK: &str = "[redacted:value]";

    fn masker<T: AsRef<[u8]>>(values: impl IntoIterator<Item = T>) -> TextMasker {
        let values = values.into_iter().map(|value| (value.as_ref().to_vec(), Mask::of_kind("value")));
        TextMasker::of(values, false)
    }

    fn mask(values: &[&str], text: &str) -> String {
        masker(values).mask(text).into_owned()
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
                assert!(masked.contains(MASK), "{text} became {masked}");
                assert!(!forms(CANARY).iter().any(|form| masked.contains(form.as_str())), "{text} became {masked}");
            }
        }
    }

    #[test]
    fn d2_all_of_a_value_is_masked_and_nothing_else() {
        assert_eq!(mask(&["secret"], "my secret, and secretsecret."), "my [redacted:value], and [redacted:value].");
        assert_eq!(
            mask(&["secret"], "%73ecret \\u0073ecret 736563726574"),
            "[redacted:value] [redacted:value] [redacted:value]"
        );
        assert_eq!(mask(&["secret"], "basic c2VjcmV0 end"), "basic [redacted:value] end");
        assert_eq!(mask(&["  secret\n"], "(secret)"), "([redacted:value])");
    }

    #[test]
    fn d2_an_encoded_value_is_masked_whatever_stands_before_it() {
        for before in ["", "x", "xx", "xxx", "a/", "id=0"] {
            for form in [STANDARD.encode("api-key-canary"), hex::encode("api-key-canary")] {
                let masked = mask(&["api-key-canary"], &format!("{before}{form}"));
                assert!(masked.starts_with(before) && masked.contains(MASK), "{before}{form} became {masked}");
            }
        }
    }

    #[test]
    fn d2_a_value_in_base64_is_masked_across_line_breaks() {
        let encoded = STANDARD.encode("api-key-canary");
        assert_eq!(
            mask(&["api-key-canary"], &format!("({}\r\n{})", &encoded[..8], &encoded[8..])),
            "([redacted:value]=)"
        );
    }

    #[test]
    fn d2_values_that_overlap_are_masked_to_their_last_character() {
        assert_eq!(mask(&["abcd", "cdef"], "xabcdefx"), "x[redacted:value]x");
        assert_eq!(mask(&["bcde", "abcdefgh"], "abcdefgx abcdefgh"), "a[redacted:value]fgx [redacted:value]");
        assert_eq!(mask(&["cdefg", "defg", "efghi"], "abcdefgh"), "ab[redacted:value]h");
    }

    #[test]
    fn d2_where_values_overlap_no_more_is_shown_than_holds_for_all_that_is_masked() {
        let shown = |values: &[(&str, &'static str)], text: &str| {
            let values =
                values.iter().map(|&(value, kind)| (value.as_bytes().to_vec(), Mask::of_length(kind, value.len())));
            TextMasker::of(values, false).mask(text).into_owned()
        };
        assert_eq!(shown(&[("abcdef", "name")], "xabcdefx"), "x[redacted:name ~8]x");
        assert_eq!(shown(&[("abcd", "name"), ("abcdefghi", "mail")], "abcdefghi"), "[redacted:mail ~16]");
        assert_eq!(shown(&[("abcdefgh", "name"), ("cdef", "mail")], "abcdefgh"), "[redacted:name ~8]");
        assert_eq!(shown(&[("abcd", "name"), ("bcde", "name")], "abcde"), "[redacted:name]");
        assert_eq!(shown(&[("abcd", "name"), ("bcde", "mail")], "abcde"), "[redacted]");
        assert_eq!(shown(&[("abcd", "name"), ("cdef", "mail"), ("efgh", "name")], "abcdefgh"), "[redacted]");
    }

    #[test]
    fn d2_a_known_value_is_shown_as_what_it_is_and_not_as_what_it_looks_like() {
        let value = (b"jo@example.org".to_vec(), Mask::of_kind("value"));
        assert_eq!(TextMasker::of([value], true).mask("for jo@example.org"), "for [redacted:value]");
    }

    #[test]
    fn d2_a_character_is_masked_when_any_of_its_bytes_is() {
        let [begins, ends] = [&b"abc\xc3"[..], b"\xa9abc"].map(|value| masker([value]));
        assert_eq!(begins.mask("éabcéx"), "é[redacted:value]x");
        assert_eq!(ends.mask("xéabcé"), "x[redacted:value]é");
    }

    #[test]
    fn d2_a_value_of_fewer_than_four_characters_is_not_masked_in_texts() {
        assert_eq!(mask(&["abc", "é", "üüü", ""], "abc é üüü"), "abc é üüü");
        assert_eq!(mask(&["üüüü"], "üüüü"), MASK);
        assert_eq!(mask(&["1234"], "pin 1234"), "pin [redacted:value]");
    }

    #[test]
    fn d2_a_secret_that_is_no_text_is_masked_too() {
        let secret = [0xff, 0xfe, 0x80, 0x01, 0xc3];
        let masker = masker([secret]);
        assert_eq!(masker.mask(&format!("k={};", STANDARD.encode(secret))), "k=[redacted:value]=;");
        assert_eq!(masker.mask(&hex::encode_upper(secret)), MASK);
    }

    #[test]
    fn d2_too_many_values_mask_the_text_whole() {
        let values: Vec<String> = (0..100_000).map(|n| format!("value-{n}")).collect();
        assert_eq!(masker(&values).mask("all of it"), "[redacted: 9 bytes of text]");
    }

    #[test]
    fn d2_a_long_text_of_nothing_but_values_is_masked() {
        let values: Vec<String> = (4..600).map(|length| "a".repeat(length)).collect();
        assert_eq!(masker(&values).mask(&"a".repeat(64 << 10)), MASK);
    }

    proptest! {
        #[test]
        fn d2_no_value_is_left_in_a_text(value in "[a-z%+\\\\\"é ]{4,12}", before in ".{0,12}", after in ".{0,12}") {
            let value = value.trim();
            prop_assume!(value.chars().count() >= 4);
            for form in forms(value) {
                let masked = mask(&[value], &format!("{before}|{form}|{after}"));
                prop_assert!(masked.contains(MASK), "{} in {} became {}", value, form, masked);
                prop_assert!(!masked.contains(value));
            }
        }
    }
}
