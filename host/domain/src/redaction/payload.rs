//! The view of a payload that operators see: the payload as it was written, with the policy's fields masked. It never
//! changes a number, an escape or an order that it leaves in.

use super::{
    REDACTED, TextMasker,
    json::{self, JsonError, Scanner, Token, TokenKind},
    rules::{Descent, Rules, StateSet},
};
use crate::policy::PayloadFormat;

/// A payload masked whole is looked for in texts up to this size; a text that holds a longer one whole is rare.
const WHOLE_VALUE_MAX_BYTES: usize = 64 << 10;

/// What may be seen of a payload, and what was masked in it.
#[derive(Clone, PartialEq, Eq)]
pub struct RedactedPayload {
    /// Well-formed JSON without the values of the policy's fields.
    pub view: String,
    /// The scalars that were masked, to be masked in texts as well. Literals are left out: they tell nothing.
    pub values: Vec<Vec<u8>>,
}

impl Rules {
    /// Masks the policy's fields in a payload. One that is no JSON is masked whole.
    #[must_use]
    pub fn redact_payload(&self, payload: &[u8], format: PayloadFormat) -> RedactedPayload {
        match format {
            PayloadFormat::Json => Walk::over(self, payload)
                .unwrap_or_else(|_| whole(payload, &format!("{} bytes, not JSON", payload.len()))),
            PayloadFormat::Bytes => whole(payload, &format!("{} bytes", payload.len())),
        }
    }
}

/// Masks a payload whole; the reason says nothing of what stands in it.
pub(super) fn whole(payload: &[u8], reason: &str) -> RedactedPayload {
    let values = if payload.len() <= WHOLE_VALUE_MAX_BYTES { vec![payload.to_vec()] } else { Vec::new() };
    RedactedPayload { view: format!("\"[redacted: {reason}]\""), values }
}

/// A container that is open around the walk.
struct Frame {
    /// The place of the next element; fields have none.
    next_index: Option<usize>,
}

/// One pass over a payload.
struct Walk<'a> {
    rules: &'a Rules,
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

impl<'a> Walk<'a> {
    fn over(rules: &'a Rules, payload: &'a [u8]) -> Result<RedactedPayload, JsonError> {
        let mut scanner = Scanner::new(payload)?;
        let next_set = rules.root();
        let mut walk = Self {
            rules,
            text: scanner.text(),
            frames: Vec::new(),
            sets: Vec::new(),
            next_is_masked: rules.is_end(&next_set),
            next_set,
            masking_from: None,
            copied_to: 0,
            redacted: RedactedPayload { view: String::with_capacity(payload.len()), values: Vec::new() },
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
                self.scalar(token);
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
            return;
        }
        if let Some(Frame { next_index: Some(next_index) }) = self.frames.last_mut() {
            let index = *next_index;
            *next_index += 1;
            self.descend(Descent::Index(index));
        }
        if self.next_is_masked {
            self.copy_until(token.range.start);
            self.redacted.view += "\"";
            self.redacted.view += REDACTED;
            self.redacted.view += "\"";
            self.masking_from = Some(self.frames.len());
        }
    }

    fn value_ended(&mut self, token: &Token) {
        if self.masking_from == Some(self.frames.len()) {
            self.masking_from = None;
            self.copied_to = token.range.end;
        }
    }

    fn scalar(&mut self, token: &Token) {
        let raw = &self.text[token.range.clone()];
        match token.kind {
            _ if self.masking_from.is_none() => {}
            TokenKind::String => self.redacted.values.push(json::unescape(raw).into_owned().into_bytes()),
            TokenKind::Number => self.redacted.values.push(raw.as_bytes().to_vec()),
            _ => {}
        }
    }

    fn copy_until(&mut self, end: usize) {
        self.redacted.view += &self.text[self.copied_to..end];
        self.copied_to = end;
    }
}

/// Masks values wherever they stand in the strings, numbers and names of a view. The result is well-formed JSON again,
/// since each token is masked by itself and written anew.
pub(super) fn mask_view(view: &str, text_masker: &TextMasker) -> Result<String, JsonError> {
    let mut scanner = Scanner::new(view.as_bytes())?;
    let (mut view_after, mut copied_to) = (String::with_capacity(view.len()), 0);
    while let Some(token) = scanner.next()? {
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
            // A part of a number would tell more than its class.
            let is_whole = after.starts_with("[redacted") && after.find(']') == Some(after.len() - 1);
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

    fn redacted(rules: &Rules, payload: &str) -> (String, Vec<String>) {
        let redacted = rules.redact_payload(payload.as_bytes(), PayloadFormat::Json);
        (redacted.view, redacted.values.into_iter().map(|value| String::from_utf8(value).unwrap()).collect())
    }

    #[test]
    fn d2_a_field_is_masked_by_name_anywhere_whatever_its_case_and_escapes() {
        let rules = rules(&["PassWord"], &[]);
        let (view, values) =
            redacted(&rules, r#"{"a": [ {"p\u0061ssword":"one1"}, {"PASSWORD": 2222}], "passwords":"kept"}"#);
        assert_eq!(view, r#"{"a": [ {"p\u0061ssword":"[redacted]"}, {"PASSWORD": "[redacted]"}], "passwords":"kept"}"#);
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
            r#"{"email":"kept","customer":{"Email":"[redacted]"},"items":[{"iban":"[redacted]"},{"iban":"[redacted]"}],"z":{"token":"[redacted]"}}"#
        );
        assert_eq!(values, ["jo@example.org", "DE1", "x", "y", "t"]);
    }

    #[test]
    fn d2_a_masked_object_gives_up_all_its_scalars_and_none_of_its_names() {
        let rules = rules(&["card"], &[]);
        let (view, values) =
            redacted(&rules, r#"[{"card":{"no":4111111111111111,"list":["a\nb",true,null],"e":{}}},1]"#);
        assert_eq!(view, r#"[{"card":"[redacted]"},1]"#);
        assert_eq!(values, ["4111111111111111", "a\nb"]);
    }

    #[test]
    fn d2_the_root_can_be_masked() {
        assert_eq!(
            redacted(&rules(&[], &["$"]), r#" {"a":"value"} "#),
            (r#" "[redacted]" "#.to_owned(), vec!["value".to_owned()])
        );
        assert_eq!(redacted(&rules(&[], &["$[1]"]), r#"["a","b"]"#).0, r#"["a","[redacted]"]"#);
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
        assert_eq!(view, deep(r#"{"password":"[redacted]","iban":"[redacted]"}"#));
        assert_eq!(values, ["hunter22", "DE00"]);
    }

    #[test]
    fn d2_what_can_not_be_parsed_is_masked_whole() {
        let rules = rules(&[], &[]);
        let view = |payload: &[u8], format| rules.redact_payload(payload, format).view;
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
            let redacted = rules.redact_payload(payload.as_bytes(), PayloadFormat::Json);
            prop_assert!(json::is_well_formed(redacted.view.as_bytes()).is_ok());
            let view: serde_json::Value = serde_json::from_str(&redacted.view).unwrap();
            prop_assert!(all_passwords_are_masked(&view));
            prop_assert_eq!(rules.redact_payload(redacted.view.as_bytes(), PayloadFormat::Json).view, redacted.view);
        }
    }

    fn all_passwords_are_masked(value: &serde_json::Value) -> bool {
        match value {
            serde_json::Value::Array(items) => items.iter().all(all_passwords_are_masked),
            serde_json::Value::Object(fields) => fields.iter().all(|(name, value)| {
                if name.to_lowercase() == "password" { value == REDACTED } else { all_passwords_are_masked(value) }
            }),
            _ => true,
        }
    }
}
