//! The forms in which a value may stand in a text or a file, and a search for them.

use std::{fmt::Write as _, fs, path::Path};

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE},
};

/// Every form of a value: plain, escaped, percent-encoded, in hexadecimal and in base64 at each of its three alignments.
pub fn forms(value: &str) -> Vec<String> {
    let mut forms = written(value);
    for engine in [STANDARD, URL_SAFE] {
        forms.extend((0..3).map(|before| digits_in_base64(&engine, value, before)));
    }
    forms.sort();
    forms.dedup();
    forms
}

/// A text that carries the value in every form, each of them whole.
pub fn carried(value: &str) -> String {
    let encoded = [STANDARD, URL_SAFE]
        .into_iter()
        .flat_map(|engine| ["", "x", "xx"].map(|before| engine.encode(format!("{before}{value}"))));
    written(value).into_iter().chain(encoded).collect::<Vec<_>>().join(" | ")
}

/// The forms that begin and end with the value.
fn written(value: &str) -> Vec<String> {
    let json = serde_json::to_string(value).unwrap();
    vec![
        value.to_owned(),
        json[1..json.len() - 1].to_owned(),
        value.escape_default().to_string(),
        percent(value, |byte| byte.is_ascii_alphanumeric()),
        percent(value, |byte| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)),
        percent(value, |_| false),
        percent(value, |_| false).to_lowercase(),
        in_hex(value.as_bytes()),
        in_hex(value.as_bytes()).to_uppercase(),
    ]
}

/// The digits of base64 that stand for nothing but the value when so many bytes stand before it.
fn digits_in_base64(engine: &impl base64::Engine, value: &str, before: usize) -> String {
    let encoded = engine.encode([&vec![0; before][..], value.as_bytes()].concat());
    let bits = (before + value.len()) * 8;
    encoded[(before * 8).div_ceil(6)..bits / 6].to_owned()
}

fn percent(value: &str, is_kept: impl Fn(u8) -> bool) -> String {
    value.bytes().fold(String::new(), |mut text, byte| {
        if is_kept(byte) {
            text.push(char::from(byte));
        } else {
            write!(text, "%{byte:02X}").unwrap();
        }
        text
    })
}

fn in_hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

/// The forms of the value that stand in these bytes.
pub fn found_in(bytes: &[u8], value: &str) -> Vec<String> {
    // What is no UTF-8 is replaced and all else stays, so that a form is found wherever it stands.
    let text = String::from_utf8_lossy(bytes);
    forms(value).into_iter().filter(|form| text.contains(form)).collect()
}

/// Fails when any form of any of the values stands in the text.
#[track_caller]
pub fn assert_free(text: &str, values: &[&str], what: &str) {
    for value in values {
        let found = found_in(text.as_bytes(), value);
        assert!(found.is_empty(), "{what} holds {value:?} as {found:?}:\n{text}");
    }
}

/// Every file below a directory that holds a form of the value, but those of the given name. Links are not followed.
pub fn files_with(directory: &Path, value: &str, skipped: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut directories = vec![directory.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                directories.push(entry.path());
            } else if kind.is_file() && entry.file_name() != skipped {
                let forms = found_in(&fs::read(entry.path()).unwrap(), value);
                found.extend(forms.into_iter().map(|form| format!("{}: {form}", entry.path().display())));
            }
        }
    }
    found
}

/// A text in which masks tell nothing but their kinds, such as `[redacted:email]`.
pub fn kinds_of_masks(text: &str) -> String {
    let mut parts = text.split("[redacted:");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |shown, part| {
        let (mask, after) = part.split_once(']').unwrap_or((part, ""));
        let kind = mask.split(" ~").next().unwrap_or_default();
        shown + "[redacted:" + kind + "]" + after
    })
}
