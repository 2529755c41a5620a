//! Reads TOML tables key by key, collects everything that is wrong and knows the line of each value. It never stops at the
//! first error: a value that can't be read counts as its default until the end, when the errors are handed over.

use std::{
    cell::RefCell,
    collections::BTreeSet,
    fmt::Display,
    ops::{Range, RangeInclusive},
};

use leasehold_domain::DurationMs;
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{
    errors::ConfigError,
    units::{duration_text, parse_duration_ms, parse_size_bytes, size_text},
};

/// The errors found so far, and the text that gives them their lines.
pub(super) struct Findings<'t> {
    text: &'t str,
    errors: RefCell<Vec<ConfigError>>,
}

impl<'t> Findings<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self { text, errors: RefCell::default() }
    }

    /// Records what is wrong at a place of the text.
    pub(super) fn add(&self, span: &Range<usize>, key: impl Into<String>, message: impl Into<String>) {
        let before = &self.text.as_bytes()[..span.start.min(self.text.len())];
        let line = before.split(|&byte| byte == b'\n').count();
        let (key, message) = (in_one_line(&key.into()), in_one_line(&message.into()));
        self.errors.borrow_mut().push(ConfigError { line: Some(line), key, message });
    }

    pub(super) fn into_errors(self) -> Vec<ConfigError> {
        self.errors.into_inner()
    }
}

/// A value with the key it stands under.
#[derive(Clone)]
pub(super) struct Entry<'a> {
    findings: &'a Findings<'a>,
    /// The whole key, with its sections.
    pub(super) path: String,
    /// The last part of the key.
    pub(super) name: String,
    key_span: Range<usize>,
    value: &'a Spanned<DeValue<'a>>,
}

/// A table of the file, or one that is absent and so has only defaults.
pub(super) struct Section<'a> {
    findings: &'a Findings<'a>,
    path: String,
    span: Range<usize>,
    table: Option<&'a DeTable<'a>>,
    /// The keys that were asked for: what else stands in the table is unknown.
    known: RefCell<BTreeSet<String>>,
}

impl<'a> Entry<'a> {
    /// Records what is wrong with the value.
    pub(super) fn error(&self, message: impl Into<String>) {
        self.findings.add(&self.key_span, &*self.path, message);
    }

    fn wrong_type(&self, expected: &str) {
        let found = self.value.get_ref().type_str();
        let mut message = format!("expected {expected}, found {}", article(found));
        if let DeValue::Table(table) = self.value.get_ref()
            && let Some(inner) = table.keys().next()
        {
            message = format!("{message}; a name with a dot is quoted: \"{}.{}\"", self.name, inner.get_ref());
        }
        self.error(message);
    }

    pub(super) fn is_text(&self, text: &str) -> bool {
        self.value.get_ref().as_str() == Some(text)
    }

    pub(super) fn is_table(&self) -> bool {
        self.value.get_ref().is_table()
    }

    pub(super) fn text(&self) -> Option<String> {
        self.text_as("a string")
    }

    /// The value as a string; else the error says what was expected.
    pub(super) fn text_as(&self, expected: &str) -> Option<String> {
        let text = self.value.get_ref().as_str().map(str::to_owned);
        if text.is_none() {
            self.wrong_type(expected);
        }
        text
    }

    pub(super) fn boolean(&self) -> Option<bool> {
        let boolean = self.value.get_ref().as_bool();
        if boolean.is_none() {
            self.wrong_type("true or false");
        }
        boolean
    }

    pub(super) fn choice<T: Copy>(&self, choices: &[(&str, T)]) -> Option<T> {
        let allowed = one_of(choices.iter().map(|(name, _)| format!("\"{name}\"")));
        let text = self.text_as(&allowed)?;
        let chosen = choices.iter().find(|(name, _)| *name == text).map(|(_, value)| *value);
        if chosen.is_none() {
            self.error(format!("{text:?} is not allowed here; allowed is {allowed}"));
        }
        chosen
    }

    fn integer(&self) -> Option<i128> {
        let integer = self.value.get_ref().as_integer()?;
        i128::from_str_radix(integer.as_str(), integer.radix()).ok()
    }

    /// The value as a whole number within bounds.
    pub(super) fn number<T>(&self, range: &RangeInclusive<T>) -> Option<T>
    where
        T: TryFrom<i128> + PartialOrd + Display + Copy,
    {
        let allowed = format!("a whole number from {} to {}", range.start(), range.end());
        let Some(integer) = self.integer() else {
            self.wrong_type(&allowed);
            return None;
        };
        let number = T::try_from(integer).ok().filter(|number| range.contains(number));
        if number.is_none() {
            self.error(format!("{integer} is out of bounds; allowed is {allowed}"));
        }
        number
    }

    pub(super) fn duration_ms(&self, range_ms: &RangeInclusive<DurationMs>) -> Option<DurationMs> {
        self.duration_ms_or(range_ms, "")
    }

    /// The value as a duration, where something else is allowed as well.
    fn duration_ms_or(&self, range_ms: &RangeInclusive<DurationMs>, also: &str) -> Option<DurationMs> {
        let (min, max) = (duration_text(*range_ms.start()), duration_text(*range_ms.end()));
        let allowed = format!("{also}a duration from \"{min}\" to \"{max}\" in ms, s, m, h or d");
        let text = self.text_as(&allowed)?;
        let duration_ms = parse_duration_ms(&text).filter(|duration_ms| range_ms.contains(duration_ms));
        if duration_ms.is_none() {
            self.error(format!("{text:?} is not allowed here; allowed is {allowed}"));
        }
        duration_ms
    }

    pub(super) fn size_bytes(&self, range_bytes: &RangeInclusive<u64>) -> Option<u64> {
        self.size_bytes_or(range_bytes, "")
    }

    /// The value as a size; `others` says what else the caller would have taken.
    pub(super) fn size_bytes_or(&self, range_bytes: &RangeInclusive<u64>, others: &str) -> Option<u64> {
        let (min, max) = (size_text(*range_bytes.start()), size_text(*range_bytes.end()));
        let allowed = format!("a size from \"{min}\" to \"{max}\" in B, KiB, MiB or GiB, or a number of bytes{others}");
        let (shown, size_bytes) = match self.integer() {
            Some(integer) => (integer.to_string(), u64::try_from(integer).ok()),
            None => self.text_as(&allowed).map(|text| (format!("{text:?}"), parse_size_bytes(&text)))?,
        };
        let size_bytes = size_bytes.filter(|size_bytes| range_bytes.contains(size_bytes));
        if size_bytes.is_none() {
            self.error(format!("{shown} is not allowed here; allowed is {allowed}"));
        }
        size_bytes
    }

    /// The elements of an array, each with its place in its name.
    pub(super) fn elements(&self) -> Vec<Self> {
        let Some(array) = self.value.get_ref().as_array() else {
            self.wrong_type("an array");
            return Vec::new();
        };
        let element = |(index, value): (usize, &'a Spanned<DeValue<'a>>)| Self {
            findings: self.findings,
            path: format!("{}[{index}]", self.path),
            name: index.to_string(),
            key_span: value.span(),
            value,
        };
        array.iter().enumerate().map(element).collect()
    }

    /// The value as a table; an empty one when it is none, which is an error.
    pub(super) fn section(&self) -> Section<'a> {
        let table = self.value.get_ref().as_table();
        if table.is_none() {
            self.wrong_type("a table");
        }
        Section {
            findings: self.findings,
            path: self.path.clone(),
            span: self.key_span.clone(),
            table,
            known: RefCell::default(),
        }
    }
}

impl<'a> Section<'a> {
    /// The file's outermost table.
    pub(super) fn root(findings: &'a Findings<'a>, table: &'a DeTable<'a>) -> Self {
        Self { findings, path: String::new(), span: 0..0, table: Some(table), known: RefCell::default() }
    }

    /// Whether the table stands in the file.
    pub(super) fn is_present(&self) -> bool {
        self.table.is_some()
    }

    /// Records what is wrong with a key, at its line or, when it is absent, at the section's.
    pub(super) fn error(&self, name: &str, message: impl Into<String>) {
        let span = self.find(name).map_or_else(|| self.span.clone(), |entry| entry.key_span);
        self.findings.add(&span, self.path_of(name), message);
    }

    fn path_of(&self, name: &str) -> String {
        let bare = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
        let name = if bare { name.to_owned() } else { format!("{name:?}") };
        if self.path.is_empty() { name } else { format!("{}.{name}", self.path) }
    }

    /// Everything in the table, in the order of its names. All of it counts as known.
    pub(super) fn entries(&self) -> Vec<Entry<'a>> {
        let entry = |(key, value): (&'a Spanned<_>, &'a Spanned<DeValue<'a>>)| {
            let name: &std::borrow::Cow<'_, str> = key.get_ref();
            self.known.borrow_mut().insert(name.to_string());
            Entry {
                findings: self.findings,
                path: self.path_of(name),
                name: name.to_string(),
                key_span: key.span(),
                value,
            }
        };
        self.table.into_iter().flatten().map(entry).collect()
    }

    fn find(&self, name: &str) -> Option<Entry<'a>> {
        let (key, value) = self.table?.iter().find(|(key, _)| key.get_ref() == name)?;
        let (path, name) = (self.path_of(name), name.to_owned());
        Some(Entry { findings: self.findings, path, name, key_span: key.span(), value })
    }

    /// What stands under a key, which counts as known from here on.
    pub(super) fn entry(&self, name: &str) -> Option<Entry<'a>> {
        self.known.borrow_mut().insert(name.to_owned());
        self.find(name)
    }

    /// What stands under a key that has to be there.
    pub(super) fn required(&self, name: &str, what: &str) -> Option<Entry<'a>> {
        let entry = self.entry(name);
        if entry.is_none() {
            self.error(name, format!("is missing; required is {what}"));
        }
        entry
    }

    /// The table under a key, or one without entries when it is absent.
    pub(super) fn section(&self, name: &str) -> Section<'a> {
        match self.entry(name) {
            Some(entry) => entry.section(),
            None => Section {
                findings: self.findings,
                path: self.path_of(name),
                span: self.span.clone(),
                table: None,
                known: RefCell::default(),
            },
        }
    }

    pub(super) fn text(&self, name: &str) -> Option<String> {
        self.entry(name)?.text()
    }

    pub(super) fn boolean(&self, name: &str, default: bool) -> bool {
        self.entry(name).and_then(|entry| entry.boolean()).unwrap_or(default)
    }

    pub(super) fn choice<T: Copy>(&self, name: &str, default: T, choices: &[(&str, T)]) -> T {
        self.entry(name).and_then(|entry| entry.choice(choices)).unwrap_or(default)
    }

    pub(super) fn number<T>(&self, name: &str, default: T, range: &RangeInclusive<T>) -> T
    where
        T: TryFrom<i128> + PartialOrd + Display + Copy,
    {
        self.entry(name).and_then(|entry| entry.number(range)).unwrap_or(default)
    }

    /// A duration; the default and the bounds are in milliseconds.
    pub(super) fn duration_ms(
        &self,
        name: &str,
        default_ms: DurationMs,
        range_ms: &RangeInclusive<DurationMs>,
    ) -> DurationMs {
        self.entry(name).and_then(|entry| entry.duration_ms(range_ms)).unwrap_or(default_ms)
    }

    /// A duration, or none for `"never"`, which is the default. The bounds are in milliseconds.
    pub(super) fn duration_ms_or_never(&self, name: &str, range_ms: &RangeInclusive<DurationMs>) -> Option<DurationMs> {
        let entry = self.entry(name)?;
        if entry.value.get_ref().as_str() == Some("never") {
            None
        } else {
            entry.duration_ms_or(range_ms, "\"never\" or ")
        }
    }

    /// A size; the default and the bounds are in bytes.
    pub(super) fn size_bytes(&self, name: &str, default_bytes: usize, range_bytes: &RangeInclusive<u64>) -> usize {
        let size_bytes = self.entry(name).and_then(|entry| entry.size_bytes(range_bytes));
        size_bytes.and_then(|size_bytes| usize::try_from(size_bytes).ok()).unwrap_or(default_bytes)
    }

    /// The elements of the array under a key; none when it is absent.
    pub(super) fn elements(&self, name: &str) -> Vec<Entry<'a>> {
        self.entry(name).map(|entry| entry.elements()).unwrap_or_default()
    }

    /// Records each key that nobody asked for. To be called when all keys were.
    pub(super) fn refuse_unknown(&self) {
        let known = self.known.borrow().clone();
        for entry in self.entries().into_iter().filter(|entry| !known.contains(&entry.name)) {
            entry.error(unknown_key(&entry, &known));
        }
    }
}

fn unknown_key(entry: &Entry<'_>, known: &BTreeSet<String>) -> String {
    let mut message = "is not a known key".to_owned();
    let closest = known.iter().map(|name| (edit_distance(name, &entry.name), name)).min();
    if let Some((distance, name)) = closest
        && distance <= 1 + name.len() / 4
    {
        message = format!("{message}; did you mean {name}?");
    }
    if entry.is_table() {
        message += "; a name with a dot is quoted, as in [kinds.\"email.send\"]";
    }
    message + "; allowed are " + &known.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
}

/// How many insertions, deletions and replacements make one name of the other (Levenshtein), for short names.
fn edit_distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().take(64).collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (index, from) in left.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = index + 1;
        for (column, to) in right.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[right.len()]
}

/// What stands in the file may hold line breaks and what commands a terminal; an error is one line of plain text.
fn in_one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() { line.extend(character.escape_default()) } else { line.push(character) }
    }
    line
}

fn article(type_name: &str) -> String {
    match type_name {
        "integer" | "array" => format!("an {type_name}"),
        _ => format!("a {type_name}"),
    }
}

/// Joins what is allowed as prose: `a, b or c`.
pub(super) fn one_of(allowed: impl IntoIterator<Item = String>) -> String {
    let allowed: Vec<String> = allowed.into_iter().collect();
    match allowed.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => "nothing".to_owned(),
    }
}
