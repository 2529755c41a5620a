//! Paths of a policy's fields, such as `$.items[*].iban`. It never looks at a payload: `rules` does.

use std::{fmt, str::FromStr};

/// One step of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Segment {
    /// The field of that name, in lower case.
    Key(String),
    /// The element at that place in an array.
    Index(usize),
    /// Any field or element.
    Any,
    /// Any number of levels, also none.
    AnyDepth,
}

/// Where a field of the policy stands, from the root `$` of a payload.
///
/// `.name` or `['a name']` is a field, whatever its case; `[3]` an element; `.*` or `[*]` any field or element; `..name`
/// or `.**.name` a field at any depth.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldPath {
    pub(super) segments: Vec<Segment>,
    text: String,
}

/// The text is no path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} at character {place}; a path is written like $.customer.email, $.items[*].iban or $..token")]
pub struct PathError {
    /// The character, from 1, at which the path stops making sense.
    pub place: usize,
    /// What is wrong there.
    pub what: &'static str,
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for FieldPath {
    type Err = PathError;

    fn from_str(text: &str) -> Result<Self, PathError> {
        let mut parser = Parser { text, rest: text };
        parser.expect('$', "a path begins with $")?;
        let mut segments = Vec::new();
        while let Some(first) = parser.rest.chars().next() {
            match first {
                '.' => parser.dotted(&mut segments)?,
                '[' => segments.push(parser.bracketed()?),
                _ => return Err(parser.error("expected . or [")),
            }
        }
        Ok(Self { segments, text: text.to_owned() })
    }
}

struct Parser<'a> {
    text: &'a str,
    rest: &'a str,
}

impl<'a> Parser<'a> {
    fn error(&self, what: &'static str) -> PathError {
        let read = self.text.len() - self.rest.len();
        PathError { place: self.text[..read].chars().count() + 1, what }
    }

    fn accept(&mut self, wanted: &str) -> bool {
        let stripped = self.rest.strip_prefix(wanted);
        self.rest = stripped.unwrap_or(self.rest);
        stripped.is_some()
    }

    fn expect(&mut self, wanted: char, what: &'static str) -> Result<(), PathError> {
        if self.accept(wanted.encode_utf8(&mut [0; 4])) { Ok(()) } else { Err(self.error(what)) }
    }

    /// Takes what stands before the first of these characters, or all.
    fn until(&mut self, stops: &[char]) -> &'a str {
        let (taken, rest) = self.rest.split_at(self.rest.find(stops).unwrap_or(self.rest.len()));
        self.rest = rest;
        taken
    }

    fn dotted(&mut self, segments: &mut Vec<Segment>) -> Result<(), PathError> {
        if self.accept("..") {
            segments.push(Segment::AnyDepth);
        } else {
            self.expect('.', "expected .")?;
        }
        if self.accept("**") {
            segments.push(Segment::AnyDepth);
        } else if self.accept("*") {
            segments.push(Segment::Any);
        } else {
            let name = self.until(&['.', '[', ']', '*', '\'', '"']);
            if name.is_empty() {
                return Err(self.error("expected a field's name"));
            }
            segments.push(Segment::Key(name.to_lowercase()));
        }
        Ok(())
    }

    fn bracketed(&mut self) -> Result<Segment, PathError> {
        self.expect('[', "expected [")?;
        let segment = if self.accept("*") {
            Segment::Any
        } else if self.accept("'") {
            self.quoted('\'')?
        } else if self.accept("\"") {
            self.quoted('"')?
        } else {
            let before = self.rest;
            let digits = self.until(&[']']);
            let index = digits.parse().map_err(|_| {
                self.rest = before;
                self.error("expected *, a number or a quoted name")
            })?;
            Segment::Index(index)
        };
        self.expect(']', "expected ]")?;
        Ok(segment)
    }

    fn quoted(&mut self, quote: char) -> Result<Segment, PathError> {
        let name = self.until(&[quote]).to_lowercase();
        self.expect(quote, "the name's quote is not closed")?;
        Ok(Segment::Key(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segments(text: &str) -> Vec<Segment> {
        text.parse::<FieldPath>().unwrap().segments
    }

    #[test]
    fn d2_a_path_is_read_in_all_its_forms() {
        let key = |name: &str| Segment::Key(name.to_owned());
        assert_eq!(segments("$"), []);
        assert_eq!(segments("$.Customer.email"), [key("customer"), key("email")]);
        assert_eq!(segments("$.items[*].iban"), [key("items"), Segment::Any, key("iban")]);
        assert_eq!(segments("$..token"), [Segment::AnyDepth, key("token")]);
        assert_eq!(segments("$.**.token"), [Segment::AnyDepth, key("token")]);
        assert_eq!(segments("$['a.b'][3].*"), [key("a.b"), Segment::Index(3), Segment::Any]);
        assert_eq!(segments(r#"$["it's"]"#), [key("it's")]);
        assert_eq!("$.Customer['e Mail']".parse::<FieldPath>().unwrap().to_string(), "$.Customer['e Mail']");
    }

    #[test]
    fn d2_what_is_no_path_says_where_it_stops_making_sense() {
        for (text, place) in
            [("", 1), ("email", 1), ("$email", 2), ("$.", 3), ("$.a[", 5), ("$.a['b]", 8), ("$[-1]", 3), ("$.é[x]", 5)]
        {
            assert_eq!(text.parse::<FieldPath>().unwrap_err().place, place, "{text}");
        }
    }
}
