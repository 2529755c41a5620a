//! Reads JSON (RFC 8259) token by token, at any nesting and with any number. It never builds a value and never recurses.

use std::{borrow::Cow, ops::Range};

/// Where and why a text is no JSON.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} at line {line}, column {column}")]
pub struct JsonError {
    /// The byte, from 0, at which the text stops making sense.
    pub offset: usize,
    /// Its line, from 1.
    pub line: usize,
    /// Its place in the line, in bytes from 1.
    pub column: usize,
    /// What is wrong there; it holds nothing of the text.
    pub what: &'static str,
}

/// Whether these bytes are one JSON text in UTF-8.
///
/// Any depth and any number that the grammar allows are well formed, and so are lone surrogates in escapes and names that
/// occur twice.
pub fn is_well_formed(bytes: &[u8]) -> Result<(), JsonError> {
    let mut scanner = Scanner::new(bytes)?;
    while scanner.next()?.is_some() {}
    Ok(())
}

/// What a token is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenKind {
    ObjectStart,
    ObjectEnd,
    ArrayStart,
    ArrayEnd,
    /// The name of a field.
    Name,
    String,
    Number,
    /// `true`, `false` or `null`.
    Literal,
}

/// One token and where it stands; a string's range includes its quotes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) kind: TokenKind,
    pub(super) range: Range<usize>,
}

/// What may follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expected {
    Value,
    ValueOrArrayEnd,
    Name,
    NameOrObjectEnd,
    CommaOrEnd,
    Nothing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Container {
    Object,
    Array,
}

/// Hands out the tokens of one JSON text.
pub(super) struct Scanner<'a> {
    text: &'a str,
    at: usize,
    open: Vec<Container>,
    expected: Expected,
}

impl<'a> Scanner<'a> {
    /// Begins at the first byte of a text, which has to be UTF-8.
    pub(super) fn new(bytes: &'a [u8]) -> Result<Self, JsonError> {
        let text = std::str::from_utf8(bytes).map_err(|error| error_at(bytes, error.valid_up_to(), "invalid UTF-8"))?;
        Ok(Self { text, at: 0, open: Vec::new(), expected: Expected::Value })
    }

    pub(super) fn text(&self) -> &'a str {
        self.text
    }

    /// The next token, or nothing after the last.
    pub(super) fn next(&mut self) -> Result<Option<Token>, JsonError> {
        loop {
            self.skip_whitespace();
            let Some(byte) = self.peek() else {
                return if self.expected == Expected::Nothing { Ok(None) } else { Err(self.error("unexpected end")) };
            };
            match (self.expected, byte) {
                (Expected::Nothing, _) => return Err(self.error("something after the end of the value")),
                (Expected::CommaOrEnd, b',') => self.pass_comma(),
                (Expected::CommaOrEnd | Expected::NameOrObjectEnd, b'}') => {
                    return self.close(Container::Object).map(Some);
                }
                (Expected::CommaOrEnd | Expected::ValueOrArrayEnd, b']') => {
                    return self.close(Container::Array).map(Some);
                }
                (Expected::CommaOrEnd, _) => return Err(self.error("expected a comma or the end of the container")),
                (Expected::Name | Expected::NameOrObjectEnd, _) => return self.name().map(Some),
                (Expected::Value | Expected::ValueOrArrayEnd, _) => return self.value(byte).map(Some),
            }
        }
    }

    fn error(&self, what: &'static str) -> JsonError {
        error_at(self.text.as_bytes(), self.at, what)
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn accept(&mut self, wanted: u8) -> bool {
        let accepted = self.peek() == Some(wanted);
        self.at += usize::from(accepted);
        accepted
    }

    fn skip_whitespace(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn pass_comma(&mut self) {
        self.at += 1;
        self.expected = match self.open.last() {
            Some(Container::Object) => Expected::Name,
            _ => Expected::Value,
        };
    }

    /// What may follow a whole value.
    fn value_ended(&mut self) {
        self.expected = if self.open.is_empty() { Expected::Nothing } else { Expected::CommaOrEnd };
    }

    fn close(&mut self, container: Container) -> Result<Token, JsonError> {
        if self.open.last() != Some(&container) {
            return Err(self.error("the end of another container"));
        }
        self.open.pop();
        self.at += 1;
        self.value_ended();
        let kind = if container == Container::Object { TokenKind::ObjectEnd } else { TokenKind::ArrayEnd };
        Ok(Token { kind, range: self.at - 1..self.at })
    }

    fn open(&mut self, container: Container) -> TokenKind {
        self.at += 1;
        self.open.push(container);
        match container {
            Container::Object => {
                self.expected = Expected::NameOrObjectEnd;
                TokenKind::ObjectStart
            }
            Container::Array => {
                self.expected = Expected::ValueOrArrayEnd;
                TokenKind::ArrayStart
            }
        }
    }

    fn name(&mut self) -> Result<Token, JsonError> {
        let start = self.at;
        if self.peek() != Some(b'"') {
            return Err(self.error("expected a field's name"));
        }
        self.pass_string()?;
        let range = start..self.at;
        self.skip_whitespace();
        if !self.accept(b':') {
            return Err(self.error("expected a colon"));
        }
        self.expected = Expected::Value;
        Ok(Token { kind: TokenKind::Name, range })
    }

    fn value(&mut self, first: u8) -> Result<Token, JsonError> {
        let start = self.at;
        let kind = match first {
            b'{' => self.open(Container::Object),
            b'[' => self.open(Container::Array),
            _ => {
                let kind = self.scalar(first)?;
                self.value_ended();
                kind
            }
        };
        Ok(Token { kind, range: start..self.at })
    }

    fn scalar(&mut self, first: u8) -> Result<TokenKind, JsonError> {
        match first {
            b'"' => self.pass_string().map(|()| TokenKind::String),
            b'-' | b'0'..=b'9' => self.pass_number().map(|()| TokenKind::Number),
            _ => self.pass_literal().map(|()| TokenKind::Literal),
        }
    }

    fn pass_literal(&mut self) -> Result<(), JsonError> {
        let rest = &self.text.as_bytes()[self.at..];
        let literal = [&b"true"[..], b"false", b"null"].into_iter().find(|literal| rest.starts_with(literal));
        self.at += literal.ok_or_else(|| self.error("expected a value"))?.len();
        Ok(())
    }

    fn pass_number(&mut self) -> Result<(), JsonError> {
        self.accept(b'-');
        if !self.accept(b'0') {
            self.pass_digits()?;
        }
        if self.accept(b'.') {
            self.pass_digits()?;
        }
        if self.accept(b'e') || self.accept(b'E') {
            let _ = self.accept(b'+') || self.accept(b'-');
            self.pass_digits()?;
        }
        Ok(())
    }

    fn pass_digits(&mut self) -> Result<(), JsonError> {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        if self.at == start { Err(self.error("expected a digit")) } else { Ok(()) }
    }

    fn pass_string(&mut self) -> Result<(), JsonError> {
        self.at += 1;
        loop {
            match self.peek() {
                None => return Err(self.error("unexpected end in a string")),
                Some(b'"') => break,
                Some(b'\\') => self.pass_escape()?,
                Some(0..=0x1f) => return Err(self.error("a control character in a string has to be escaped")),
                Some(_) => self.at += 1,
            }
        }
        self.at += 1;
        Ok(())
    }

    fn pass_escape(&mut self) -> Result<(), JsonError> {
        let rest = &self.text.as_bytes()[self.at + 1..];
        self.at += match rest.first() {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => 2,
            Some(b'u') if rest.len() > 4 && rest[1..5].iter().all(u8::is_ascii_hexdigit) => 6,
            _ => return Err(self.error("no escape that JSON knows")),
        };
        Ok(())
    }
}

fn error_at(bytes: &[u8], offset: usize, what: &'static str) -> JsonError {
    let before = &bytes[..offset];
    let line_start = before.iter().rposition(|&byte| byte == b'\n').map_or(0, |newline| newline + 1);
    let line = before.split(|&byte| byte == b'\n').count();
    JsonError { offset, line, column: offset - line_start + 1, what }
}

/// The text of a string or name token without its quotes and escapes. A lone surrogate, which no text in UTF-8 can hold,
/// becomes U+FFFD.
pub(super) fn unescape(quoted: &str) -> Cow<'_, str> {
    let content = quoted.get(1..quoted.len().saturating_sub(1)).unwrap_or_default();
    if !content.contains('\\') {
        return Cow::Borrowed(content);
    }
    let mut text = String::with_capacity(content.len());
    let mut rest = content;
    while let Some(escape) = rest.find('\\') {
        text.push_str(&rest[..escape]);
        let (character, bytes) = read_escape(&rest.as_bytes()[escape..]).unwrap_or(('\\', 1));
        text.push(character);
        rest = &rest[escape + bytes..];
    }
    text.push_str(rest);
    Cow::Owned(text)
}

/// The character that an escape at the start of these bytes stands for, and how many bytes it takes.
pub(super) fn read_escape(bytes: &[u8]) -> Option<(char, usize)> {
    let simple = |character| Some((character, 2));
    match bytes.get(1)? {
        b'n' => simple('\n'),
        b'r' => simple('\r'),
        b't' => simple('\t'),
        b'b' => simple('\u{8}'),
        b'f' => simple('\u{c}'),
        &byte @ (b'"' | b'\\' | b'/') => simple(char::from(byte)),
        b'u' => read_code_point(bytes),
        _ => None,
    }
}

/// Reads `\uXXXX`, and the low surrogate that follows a high one.
fn read_code_point(bytes: &[u8]) -> Option<(char, usize)> {
    let unit = read_unit(bytes)?;
    if (0xd800..0xdc00).contains(&unit)
        && let Some(low) = bytes.get(6..).and_then(read_unit)
        && (0xdc00..0xe000).contains(&low)
    {
        let code_point = 0x1_0000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
        return Some((char::from_u32(code_point)?, 12));
    }
    Some((char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER), 6))
}

fn read_unit(bytes: &[u8]) -> Option<u32> {
    let digits = bytes.strip_prefix(b"\\u")?.get(..4)?;
    digits.iter().try_fold(0, |unit, &digit| Some(unit * 16 + char::from(digit).to_digit(16)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redaction::documents::json_text;
    use proptest::prelude::*;

    #[test]
    fn q17_any_depth_and_number_that_json_allows_is_well_formed() {
        for text in [
            "1e400",
            "-0.0E-9999",
            "123456789012345678901234567890",
            r#""\ud800""#,
            r#"{"a":1,"a":2}"#,
            " [ ] ",
            "\"\u{7f}\"",
        ] {
            assert_eq!(is_well_formed(text.as_bytes()), Ok(()), "{text}");
        }
        let deep = "[".repeat(10_000) + &"]".repeat(10_000);
        assert_eq!(is_well_formed(deep.as_bytes()), Ok(()));
    }

    #[test]
    fn q17_what_is_no_json_is_named_by_its_place() {
        let error = is_well_formed(b"{\n  \"a\": 01\n}").unwrap_err();
        assert_eq!((error.offset, error.line, error.column), (10, 2, 9));
        assert_eq!(error.to_string(), "expected a comma or the end of the container at line 2, column 9");
        assert_eq!(is_well_formed(b"[\"\xff\"]").unwrap_err().what, "invalid UTF-8");
        for text in [
            "",
            " ",
            "[",
            "]",
            "[1,]",
            "[,1]",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\":1,}",
            "{1:2}",
            "[1}",
            "{]",
            "01",
            "-",
            "1.",
            "1e",
            "+1",
            ".5",
            "nul",
            "tru",
            "'a'",
            "\"\n\"",
            "\"\u{1f}\"",
            "\"\\x\"",
            "\"\\u12\"",
            "1 2",
            "\u{feff}1",
            "\"",
            "\"\\",
            "NaN",
        ] {
            assert!(is_well_formed(text.as_bytes()).is_err(), "{text:?}");
        }
    }

    #[test]
    fn d2_a_name_is_compared_without_its_escapes() {
        assert_eq!(unescape(r#""p\u0061ssword""#), "password");
        assert_eq!(unescape(r#""\ud83d\ude00\ud83dx\/\n""#), "\u{1f600}\u{fffd}x/\n");
        assert_eq!(unescape("\"plain\""), "plain");
        assert_eq!(unescape(r#""a\"\\\/\b\f\n\r\tz""#), "a\"\\/\u{8}\u{c}\n\r\tz");
    }

    #[test]
    fn d2_each_token_is_handed_out_with_its_kind_and_its_place() {
        use TokenKind::{ArrayEnd, ArrayStart, Literal, Name, Number, ObjectEnd, ObjectStart, String};
        let text = r#" {"a\"b" : [-1.5e3, true,null, "x" ],"c":{} } "#;
        let mut scanner = Scanner::new(text.as_bytes()).unwrap();
        let tokens = std::iter::from_fn(|| scanner.next().unwrap()).map(|token| (token.kind, &text[token.range]));
        let expected = [
            (ObjectStart, "{"),
            (Name, r#""a\"b""#),
            (ArrayStart, "["),
            (Number, "-1.5e3"),
            (Literal, "true"),
            (Literal, "null"),
            (String, r#""x""#),
            (ArrayEnd, "]"),
            (Name, r#""c""#),
            (ObjectStart, "{"),
            (ObjectEnd, "}"),
            (ObjectEnd, "}"),
        ];
        assert_eq!(tokens.collect::<Vec<_>>(), expected);
    }

    proptest! {
        #[test]
        fn q17_the_check_accepts_exactly_what_another_parser_accepts(text in r#"[\[\]{},: "0-9eE.+\\/utrlsnafd\n-]{0,24}"#) {
            let theirs = serde_json::from_str::<serde::de::IgnoredAny>(&text).is_ok();
            prop_assert_eq!(is_well_formed(text.as_bytes()).is_ok(), theirs);
        }

        #[test]
        fn q17_every_document_is_well_formed_also_when_it_is_cut_nowhere_else(value in json_text()) {
            prop_assert_eq!(is_well_formed(value.as_bytes()), Ok(()));
            for end in (0..value.len()).filter(|&end| value.is_char_boundary(end)) {
                let theirs = serde_json::from_str::<serde::de::IgnoredAny>(&value[..end]).is_ok();
                prop_assert_eq!(is_well_formed(&value.as_bytes()[..end]).is_ok(), theirs);
            }
        }
    }
}
