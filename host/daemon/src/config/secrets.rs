//! Where a handler's secrets come from: a file or an environment variable, never the configuration itself. An error names
//! the secret and its source, never its value.

use std::path::{Path, PathBuf};

use super::reader::{Entry, Section};

/// What is shorter can't be masked in texts without masking much else.
const SECRET_MIN_CHARACTERS: usize = 4;

/// Reads one secret, written `{ file = "…" }` or `{ env = "…" }`. One that is optional and absent is not set. The file that it
/// comes from is added to the others.
pub(super) fn read(entry: &Entry<'_>, base: &Path, files: &mut Vec<PathBuf>) -> Option<String> {
    if !entry.is_table() {
        entry.error("a secret's value never stands here; allowed is { file = \"path\" } or { env = \"NAME\" }");
        return None;
    }
    let section = entry.section();
    let optional = section.boolean("optional", false);
    let value = match (section.text("file"), section.text("env")) {
        (Some(file), None) => {
            files.push(base.join(file));
            files.last().and_then(|path| from_file(&section, path, optional))
        }
        (None, Some(variable)) => from_environment(&section, &variable, optional),
        _ => {
            entry.error("has to name one source: { file = \"path\" } or { env = \"NAME\" }");
            None
        }
    };
    section.refuse_unknown();
    value.filter(|value| is_long_enough(entry, value))
}

fn from_file(section: &Section<'_>, path: &Path, optional: bool) -> Option<String> {
    match std::fs::read_to_string(path) {
        // Editors and `echo` end a file with a newline, which is no part of the secret.
        Ok(text) => Some(text.trim_end_matches(['\r', '\n']).to_owned()),
        Err(error) if optional && error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => {
            section.error(
                "file",
                format!("{} can't be read: {error}; allowed is a readable file of UTF-8 text", path.display()),
            );
            None
        }
    }
}

fn from_environment(section: &Section<'_>, variable: &str, optional: bool) -> Option<String> {
    // The names that can't be looked up are checked first, since looking them up is an error of its own.
    let is_name = !variable.is_empty() && !variable.contains(['=', '\0']);
    let value = if is_name { std::env::var(variable).ok() } else { None };
    if value.is_none() && !(optional && is_name) {
        section.error("env", format!("the environment variable {variable:?} is not set, or not to UTF-8 text"));
    }
    value
}

fn is_long_enough(entry: &Entry<'_>, value: &str) -> bool {
    let long_enough = value.chars().count() >= SECRET_MIN_CHARACTERS;
    if !long_enough {
        entry.error(format!(
            "the secret has fewer than {SECRET_MIN_CHARACTERS} characters and could not be masked in texts"
        ));
    }
    long_enough
}
