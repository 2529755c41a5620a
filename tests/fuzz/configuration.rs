//! O4: any text is a configuration, or errors that name their lines.

use std::path::Path;

use leasehold::config::Config;
use proptest::{collection::vec, prelude::*, sample::Index};

use crate::{
    corpus::{kept, try_kept, try_many},
    mutation::mutated,
};

const TARGET: &str = "configuration";
const SHIPPED: &str = include_str!("../../config.toml");
/// Values that stand where others are meant.
const VALUES: [&str; 31] = [
    "0",
    "-1",
    "1",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551616",
    "0x7fff_ffff_ffff_ffff",
    "0b1",
    "1e400",
    "nan",
    "-inf",
    "true",
    "''",
    "' '",
    "'auto'",
    "'0ms'",
    "'1ns'",
    "'99999999999999999999s'",
    "'106751991167d'",
    "'16777216GiB'",
    "'64KiB'",
    "[]",
    "[[]]",
    "[1, 'a', {}]",
    "{ a = 1 }",
    "1979-05-27T07:32:00Z",
    "\"\\u0000\\n\"",
    "\"\u{202e}\"",
    "['$..*[', '$.a[*].b', '$']",
    "['https://[::1]:99999', 'GET https://*.org', { url = 'http://a', methods = [], private = 1 }]",
    "{ file = 'config.toml', env = 'PATH' }",
];
/// What holds TOML together.
const TOKENS: [&str; 14] = [
    "\n[kinds.k]\n",
    "\n[[kinds]]\n",
    "\n[handlers]\n",
    "\nhandler = ",
    "=",
    ".",
    "'''",
    "\"\"\"",
    "#",
    "[",
    "]",
    "{",
    "}",
    ",",
];

/// A configuration or errors, each with its line and in one line.
fn check(input: &[u8]) -> Result<(), String> {
    let text = String::from_utf8_lossy(input);
    let Err(errors) = Config::parse(&text, Path::new("/etc/leasehold/config.toml")) else { return Ok(()) };
    if errors.errors().is_empty() {
        return Err("it was refused without an error".to_owned());
    }
    let lines = text.split('\n').count();
    for error in errors.errors() {
        let names_a_line = error.line.is_some_and(|line| (1..=lines).contains(&line));
        if !names_a_line || error.message.is_empty() {
            return Err(format!("an error without a line of the {lines}, or without words: {error:?}"));
        }
    }
    let said = errors.to_string();
    if said.lines().count() != errors.errors().len() || said.chars().any(|c| c.is_control() && c != '\n') {
        return Err(format!("errors that are not a line each: {said:?}"));
    }
    Ok(())
}

/// The shipped file, also with its commented defaults in force, and what is kept.
fn sound() -> Vec<Vec<u8>> {
    let is_default =
        |line: &str| line.strip_prefix('#').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_lowercase()));
    let in_force = SHIPPED.lines().map(|line| if is_default(line) { &line[1..] } else { line });
    let in_force: Vec<_> = in_force.collect();
    let kept = kept(TARGET).into_iter().map(|(_, input)| input);
    [SHIPPED.into(), in_force.join("\n").into_bytes()].into_iter().chain(kept).collect()
}

/// The whole file with other values under some of its keys, and seldom a line that is gone or stands elsewhere as well: most
/// of these can be read, so that what they say is checked.
fn with_other_lines() -> impl Strategy<Value = Vec<u8>> {
    let change = (any::<Index>(), any::<Index>(), 0_u8..12);
    (any::<Index>(), vec(change, 1..4)).prop_map(|(which, changes)| {
        let sound = sound();
        let chosen: &Vec<u8> = which.get(&sound);
        let text = String::from_utf8_lossy(chosen).into_owned();
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        for (at, other, how) in changes {
            if lines.is_empty() {
                break;
            }
            let at = at.index(lines.len());
            match (how, lines[at].split_once('=')) {
                (0..=9, Some((key, _))) => lines[at] = format!("{key}= {}", other.get(&VALUES)),
                (10, _) => drop(lines.remove(at)),
                _ => {
                    let line = lines[at].clone();
                    lines.insert(other.index(lines.len()), line);
                }
            }
        }
        lines.join("\n").into_bytes()
    })
}

#[test]
fn o4_kept_texts_are_a_configuration_or_errors_with_lines() {
    try_kept(TARGET, check);
}

#[test]
fn o4_any_text_is_a_configuration_or_errors_with_lines() {
    try_many(TARGET, 128, &"(?s).{0,400}".prop_map(String::into_bytes), check);
}

#[test]
fn o4_a_changed_file_is_a_configuration_or_errors_with_lines() {
    try_many(TARGET, 128, &mutated(sound(), &TOKENS, 8), check);
}

#[test]
fn o4_a_file_with_other_values_and_lines_is_a_configuration_or_errors_with_lines() {
    try_many(TARGET, 512, &with_other_lines(), check);
}
