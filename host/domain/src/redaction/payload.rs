//! The view of a payload that operators see: the payload as it was written, with the policy's fields masked. It never
//! changes a number, an escape or an order that it leaves in.

use super::{
    MASK_BEGINS, REDACTED, TextMasker,
    detect::class_of_whole,
    json::{self, JsonError, Scanner, Token, TokenKind},
    mask::{Mask, Masks, characters},
    rules::{Descent, Rules, StateSet},
};
use crate::policy::PayloadFormat;

/// A payload masked whole is looked for in texts up to this size; a text that holds a longer one whole is rare.
const WHOLE_VALUE_MAX_BYTES: usize = 64 << 10;

/// What may be seen of a payload, and what was masked in it.
pub(super) struct RedactedPayload {
    /// Well-formed JSON without the values of the policy's fields.
    pub(super) view: String,
    /// Where in the view masks stand, in their order.
    pub(super) masks_at: Vec<usize>,
    /// The scalars that were masked, to be masked in texts as well. Literals are left out: they tell nothing.
    pub(super) values: Vec<(Vec<u8>, Mask)>,
}

impl Rules {
    /// Masks the policy's fields in a payload. One that is no JSON is masked whole.
    pub(super) fn redact_payload(
        &self,
        payload: &[u8],
        format: PayloadFormat,
        masks: &mut Masks<'_>,
    ) -> RedactedPayload {
        match format {
            PayloadFormat::Json => Walk::over(self, payload, masks)
                .unwrap_or_else(|_| whole(payload, &format!("{} bytes, not JSON", payload.len()))),
            PayloadFormat::Bytes => whole(payload, &format!("{} bytes", payload.len())),
        }
    }

    /// The mask of a value that the policy names. What it looks like is told where detectors run.
    pub(super) fn mask_of_listed(&self, kind: &'static str, value: &str, masks: &mut Masks<'_>) -> Mask {
        match class_of_whole(value).filter(|_| self.detects()) {
            Some(class) => masks.of_finding(class, value.as_bytes()),
            None => Mask::of_length(kind, characters(value.as_bytes())),
        }
    }
}

/// Masks a payload whole; the reason says nothing of what stands in it.
pub(super) fn whole(payload: &[u8], reason: &str) -> RedactedPayload {
    let is_looked_for = payload.len() <= WHOLE_VALUE_MAX_BYTES;
    let values = is_looked_for.then(|| (payload.to_vec(), Mask::of_kind("payload"))).into_iter().collect();
    RedactedPayload { view: format!("\"[redacted: {reason}]\""), masks_at: vec![0], values }
}

/// A container that is open around the walk.
struct Frame {
    /// The place of the next element; fields have none.
    next_index: Option<usize>,
}

/// One pass over a payload.
struct Walk<'a, 'm, 'k> {
    rules: &'a Rules,
    masks: &'m mut Masks<'k>,
    text: &'a str,
    frames: Vec<Frame>,
    /// The live states of each open container, one after another: a vector each would cost an allocation a level.
    sets: StateSet,
    /// The live states of the value that comes next.
    next_set: StateSet,
    next_is_masked: bool,
    /// How many containers were open when masking began.
    masking_from: Option<usize>,
    copied_to: usize,
    redacted: RedactedPayload,
}

impl<'a, 'm, 'k> Walk<'a, 'm, 'k> {
    fn over(rules: &'a Rules, payload: &'a [u8], masks: &'m mut Masks<'k>) -> Result<RedactedPayload, JsonError> {
        let mut scanner = Scanner::new(payload)?;
        let next_set = rules.root();
        let mut walk = Self {
            rules,
            masks,
            text: scanner.text(),
            frames: Vec::new(),
            sets: Vec::new(),
            next_is_masked: rules.is_end(&next_set),
            next_set,
            masking_from: None,
            copied_to: 0,
            redacted: RedactedPayload {
                view: String::with_capacity(payload.len()),
                masks_at: Vec::new(),
                values: Vec::new(),
            },
        };
        while let Some(token) = scanner.next()? {
            walk.token(&token);
        }
        walk.copy_until(walk.text.len());
        Ok(walk.redacted)
    }

    fn token(&mut self, token: &Token) {
        match token.kind {
            TokenKind::Name => self.name(token),
            TokenKind::ObjectStart | TokenKind::ArrayStart => {
                self.value_begins(token);
                self.open(token.kind == TokenKind::ArrayStart);
            }
            TokenKind::ObjectEnd | TokenKind::ArrayEnd => {
                self.frames.pop();
                self.sets.truncate(self.frames.len() * self.rules.words());
                self.value_ended(token);
            }
            TokenKind::String | TokenKind::Number | TokenKind::Literal => {
                self.value_begins(token);
                self.value_ended(token);
            }
        }
    }

    fn open(&mut self, is_array: bool) {
        self.frames.push(Frame { next_index: is_array.then_some(0) });
        self.sets.extend_from_slice(&self.next_set);
    }

    fn name(&mut self, token: &Token) {
        if self.masking_from.is_none() {
            let name = json::unescape(&self.text[token.range.clone()]).to_lowercase();
            self.descend(Descent::Key(&name));
            self.next_is_masked |= self.rules.is_masked_name(&name);
        }
    }

    /// Finds the states of the value that comes next from those of the container around it.
    fn descend(&mut self, descent: Descent<'_>) {
        let around = self.sets.len() - self.rules.words();
        self.rules.descend(&self.sets[around..], descent, &mut self.next_set);
        self.next_is_masked = self.rules.is_end(&self.next_set);
    }

    fn value_begins(&mut self, token: &Token) {
        if self.masking_from.is_some() {
            self.mask(token);
            return;
        }
        if let Some(Frame { next_index: Some(next_index) }) = self.frames.last_mut() {
            let index = *next_index;
            *next_index += 1;
            self.descend(Descent::Index(index));
        }
        if self.next_is_masked {
            self.copy_until(token.range.start);
            self.masking_from = Some(self.frames.len());
            let mask = self.mask(token);
            self.redacted.masks_at.push(self.redacted.view.len());
            self.redacted.view.extend(["\"", &mask.to_string(), "\""]);
        }
    }

    fn value_ended(&mut self, token: &Token) {
        if self.masking_from == Some(self.frames.len()) {
            self.masking_from = None;
            self.copied_to = token.range.end;
        }
    }

    /// What is shown of a value; that of a scalar is kept, to be found elsewhere.
    fn mask(&mut self, token: &Token) -> Mask {
        let raw = &self.text[token.range.clone()];
        let (kind, value) = match token.kind {
            TokenKind::String => ("text", json::unescape(raw)),
            TokenKind::Number => ("number", raw.into()),
            TokenKind::ObjectStart => return Mask::of_kind("object"),
            TokenKind::ArrayStart => return Mask::of_kind("list"),
            _ => return Mask::of_kind("literal"),
        };
        let mask = self.rules.mask_of_listed(kind, &value, self.masks);
        self.redacted.values.push((value.into_owned().into_bytes(), mask));
        mask
    }

    fn copy_until(&mut self, end: usize) {
        self.redacted.view += &self.text[self.copied_to..end];
        self.copied_to = end;
    }
}

/// Masks values wherever they stand in the strings, numbers and names of a view, but not in its masks. The result is
/// well-formed JSON again, since each token is masked by itself and written anew.
pub(super) fn mask_view(redacted: &RedactedPayload, text_masker: &TextMasker) -> Result<String, JsonError> {
    let view = redacted.view.as_str();
    let mut scanner = Scanner::new(view.as_bytes())?;
    let mut masks_at = redacted.masks_at.iter().peekable();
    let (mut view_after, mut copied_to) = (String::with_capacity(view.len()), 0);
    while let Some(token) = scanner.next()? {
        if masks_at.next_if_eq(&&token.range.start).is_some() {
            continue;
        }
        if let Some(replacement) = masked_token(&view[token.range.clone()], token.kind, text_masker) {
            view_after += &view[copied_to..token.range.start];
            view_after += &replacement;
            copied_to = token.range.end;
        }
    }
    view_after += &view[copied_to..];
    Ok(view_after)
}

fn masked_token(raw: &str, kind: TokenKind, text_masker: &TextMasker) -> Option<String> {
    match kind {
        TokenKind::String | TokenKind::Name => {
            let text = json::unescape(raw);
            let after = text_masker.mask(&text);
            (after != text).then(|| serde_json::Value::from(&*after).to_string())
        }
        TokenKind::Number => {
            let after = text_masker.mask(raw);
            // A part of a number would tell more than its kind.
            let is_whole = after.starts_with(MASK_BEGINS) && after.find(']') == Some(after.len() - 1);
            (after != raw).then(|| format!("\"{}\"", if is_whole { &after } else { REDACTED }))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redaction::documents::json_text;
    use proptest::prelude::*;

    fn rules(names: &[&str], paths: &[&str]) -> Rules {
        Rules::new(names.iter().map(|&name| name.to_owned()), paths.iter().map(|path| path.parse().unwrap()))
    }

    fn redact(rules: &Rules, payload: &[u8], format: PayloadFormat) -> RedactedPayload {
        rules.redact_payload(payload, format, &mut Masks::new(None))
    }

    fn redacted(rules: &Rules, payload: &str) -> (String, Vec<String>) {
        let redacted = redact(rules, payload.as_bytes(), PayloadFormat::Json);
        (redacted.view, redacted.values.into_iter().map(|(value, _)| String::from_utf8(value).unwrap()).collect())
    }

    #[test]
    fn d2_a_field_is_masked_by_name_anywhere_whatever_its_case_and_escapes() {
        let rules = rules(&["PassWord"], &[]);
        let (view, values) =
            redacted(&rules, r#"{"a": [ {"p\u0061ssword":"one1"}, {"PASSWORD": 2222}], "passwords":"kept"}"#);
        assert_eq!(
            view,
            r#"{"a": [ {"p\u0061ssword":"[redacted:text ~8]"}, {"PASSWORD": "[redacted:number ~8]"}], "passwords":"kept"}"#
        );
        assert_eq!(values, ["one1", "2222"]);
    }

    #[test]
    fn d2_a_field_is_masked_by_path() {
        let rules = rules(&[], &["$.customer.email", "$.items[*].iban", "$..token"]);
        let (view, values) = redacted(
            &rules,
            r#"{"email":"kept","customer":{"Email":"jo@example.org"},"items":[{"iban":"DE1"},{"iban":["x","y"]}],"z":{"token":"t"}}"#,
        );
        assert_eq!(
            view,
            r#"{"email":"kept","customer":{"Email":"[redacted:email ~16]"},"items":[{"iban":"[redacted:text ~8]"},{"iban":"[redacted:list]"}],"z":{"token":"[redacted:text ~8]"}}"#
        );
        assert_eq!(values, ["jo@example.org", "DE1", "x", "y", "t"]);
    }

    #[test]
    fn d2_a_masked_object_gives_up_all_its_scalars_and_none_of_its_names() {
        let rules = rules(&["card"], &[]);
        let (view, values) =
            redacted(&rules, r#"[{"card":{"no":4111111111111111,"list":["a\nb",true,null],"e":{}}},1]"#);
        assert_eq!(view, r#"[{"card":"[redacted:object]"},1]"#);
        assert_eq!(values, ["4111111111111111", "a\nb"]);
    }

    #[test]
    fn d2_the_root_can_be_masked() {
        assert_eq!(
            redacted(&rules(&[], &["$"]), r#" {"a":"value"} "#),
            (r#" "[redacted:object]" "#.to_owned(), vec!["value".to_owned()])
        );
        assert_eq!(redacted(&rules(&[], &["$[1]"]), r#"["a","b"]"#).0, r#"["a","[redacted:text ~8]"]"#);
    }

    #[test]
    fn d2_what_is_left_in_stays_as_it_was_written() {
        let payload = r#"{"n":1e400,"s":"\ud800\/","a":1,"a":2, "d" : 0.10}"#;
        assert_eq!(redacted(&rules(&["x"], &["$.y.z"]), payload).0, payload);
    }

    #[test]
    fn d2_deep_nesting_is_walked_without_recursion() {
        let deep = |inner: &str| r#"{"a":["#.repeat(10_000) + inner + &"]}".repeat(10_000);
        let rules = rules(&["password"], &["$..iban", "$.a.b.c"]);
        let (view, values) = redacted(&rules, &deep(r#"{"password":"hunter22","iban":"DE00"}"#));
        assert_eq!(view, deep(r#"{"password":"[redacted:text ~8]","iban":"[redacted:text ~8]"}"#));
        assert_eq!(values, ["hunter22", "DE00"]);
    }

    #[test]
    fn d2_many_paths_are_followed_into_each_container_and_out_of_it_again() {
        let paths: Vec<String> = (0..100).map(|number| format!("$.a{number}.b")).collect();
        let rules = Rules::new([], paths.iter().map(|path| path.parse().unwrap()));
        let (view, values) = redacted(&rules, r#"{"x":{"y":[{}]},"a99":{"c":{},"b":"one1"},"b":1,"a0":{"b":2}}"#);
        assert_eq!(
            view,
            r#"{"x":{"y":[{}]},"a99":{"c":{},"b":"[redacted:text ~8]"},"b":1,"a0":{"b":"[redacted:number ~8]"}}"#
        );
        assert_eq!(values, ["one1", "2"]);
    }

    #[test]
    fn d2_what_can_not_be_parsed_is_masked_whole() {
        let rules = rules(&[], &[]);
        let view = |payload: &[u8], format| redact(&rules, payload, format).view;
        assert_eq!(view(b"{\"a\":", PayloadFormat::Json), r#""[redacted: 5 bytes, not JSON]""#);
        assert_eq!(view(b"\"\xff\"", PayloadFormat::Json), r#""[redacted: 3 bytes, not JSON]""#);
        assert_eq!(view(b"{}", PayloadFormat::Bytes), r#""[redacted: 2 bytes]""#);
    }

    #[test]
    fn d2_a_payload_of_the_largest_size_is_masked() {
        let payload = format!("[{}0]", r#"{"password":"hunter22"},"#.repeat(11_000));
        let (view, values) = redacted(&rules(&["password"], &["$[*].x"]), &payload);
        assert!(!view.contains("hunter22"));
        assert_eq!(values.len(), 11_000);
    }

    proptest! {
        #[test]
        fn d2_a_view_is_well_formed_and_holds_no_value_of_the_policy(payload in json_text()) {
            let rules = rules(&["password"], &[]);
            let redacted = redact(&rules, payload.as_bytes(), PayloadFormat::Json);
            prop_assert!(json::is_well_formed(redacted.view.as_bytes()).is_ok());
            let view: serde_json::Value = serde_json::from_str(&redacted.view).unwrap();
            prop_assert!(all_passwords_are_masked(&view));
        }
    }

    fn all_passwords_are_masked(value: &serde_json::Value) -> bool {
        match value {
            serde_json::Value::Array(items) => items.iter().all(all_passwords_are_masked),
            serde_json::Value::Object(fields) => fields.iter().all(|(name, value)| {
                if name.to_lowercase() == "password" {
                    value.as_str().is_some_and(|mask| mask.starts_with("[redacted:"))
                } else {
                    all_passwords_are_masked(value)
                }
            }),
            _ => true,
        }
    }
}
