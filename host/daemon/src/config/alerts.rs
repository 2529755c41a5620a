//! The section `[alerts]`: where pages go, and after how many dead letters. It never sends anything, and no error quotes
//! an address, which may carry a receiver's secret.

use std::{
    fmt,
    net::IpAddr,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::Uri;
use leasehold_domain::DurationMs;

use super::{
    reader::{Entry, Section},
    secrets,
};

/// What marks a secret that is given in base64 (Standard Webhooks).
const ENCODED_PREFIX: &str = "whsec_";

/// When somebody is paged, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlertsConfig {
    /// How many dead letters of one kind and class have to arrive before the first page.
    pub page_after: u64,
    /// Where pages go; they are only logged and shown when there is none.
    pub channel: Option<Channel>,
    /// How long sending a page may take.
    pub timeout_ms: DurationMs,
    /// The files that its secrets come from.
    pub secret_files: Vec<PathBuf>,
}

/// Where pages go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Channel {
    /// Each is sent in a POST request.
    Webhook(Webhook),
    /// Each is given to a program on its standard input.
    Command {
        /// The program.
        program: PathBuf,
        /// Its arguments, as they are: no shell reads them.
        arguments: Vec<String>,
    },
}

/// A receiver of pages.
#[derive(Clone, PartialEq, Eq)]
pub struct Webhook {
    /// Its address, of https, or of http on this machine.
    pub url: Uri,
    /// The key that requests are signed with.
    pub signing_key: Option<Vec<u8>>,
}

impl fmt::Debug for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Webhook").field("host", &self.url.host()).finish_non_exhaustive()
    }
}

/// Reads the section.
pub(super) fn read(section: &Section<'_>, base: &Path) -> AlertsConfig {
    let mut secret_files = Vec::new();
    let url = section.entry("webhook").and_then(|entry| read_url(&entry, base, &mut secret_files));
    let signing_key = section.entry("webhook_secret").and_then(|entry| read_key(&entry, base, &mut secret_files));
    let command = section.entry("command").and_then(|entry| read_command(&entry, base));
    if url.is_some() && command.is_some() {
        section.error("command", "stands beside webhook; pages go one way, so leave one of the two away");
    }
    let webhook = url.map(|url| Channel::Webhook(Webhook { url, signing_key }));
    let config = AlertsConfig {
        page_after: section.number("page_after", 1, &(1..=1_000_000)),
        channel: webhook.or(command),
        timeout_ms: section.duration_ms("timeout", 10_000, &(100..=300_000)),
        secret_files,
    };
    section.refuse_unknown();
    config
}

/// Reads the receiver's address, which comes from a file or the environment when it is a secret itself.
fn read_url(entry: &Entry<'_>, base: &Path, files: &mut Vec<PathBuf>) -> Option<Uri> {
    let text = if entry.is_table() { secrets::read(entry, base, files) } else { entry.text_as("a string or a table") };
    let text = text.filter(|text| !text.is_empty())?;
    let url = text.parse::<Uri>().ok().filter(is_receiver);
    if url.is_none() {
        entry.error(
            "is no address of a receiver; allowed is https://host[:port]/path, or http:// for one on this machine \
             (127.0.0.1, [::1] or localhost), without a user",
        );
    }
    url
}

fn is_receiver(url: &Uri) -> bool {
    let Some(host) = url.host().filter(|host| !host.is_empty()) else { return false };
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let is_local = host == "localhost" || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    let has_user = url.authority().is_some_and(|authority| authority.as_str().contains('@'));
    let scheme_fits = match url.scheme_str() {
        Some("https") => true,
        Some("http") => is_local,
        _ => false,
    };
    scheme_fits && !has_user
}

fn read_key(entry: &Entry<'_>, base: &Path, files: &mut Vec<PathBuf>) -> Option<Vec<u8>> {
    let secret = secrets::read(entry, base, files)?;
    let key = match secret.strip_prefix(ENCODED_PREFIX) {
        None => Some(secret.into_bytes()),
        Some(encoded) => BASE64_STANDARD.decode(encoded).ok().filter(|key| !key.is_empty()),
    };
    if key.is_none() {
        entry.error(format!(
            "begins with {ENCODED_PREFIX} and goes on with what is no base64; allowed is plain text too"
        ));
    }
    key
}

fn read_command(entry: &Entry<'_>, base: &Path) -> Option<Channel> {
    let words: Vec<String> = entry.elements().iter().filter_map(Entry::text).collect();
    let (program, arguments) = words.split_first()?;
    if words.iter().any(|word| word.contains('\0')) {
        entry.error("has a word with a NUL character, which no program can be given");
        return None;
    }
    let path = base.join(program);
    let is_executable =
        std::fs::metadata(&path).is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0);
    if !program.contains('/') || !is_executable {
        entry.error(format!(
            "{} is no file that can be executed; allowed is the path of a program and its arguments, as in \
             [\"/usr/local/bin/page\", \"--now\"]",
            path.display()
        ));
        return None;
    }
    Some(Channel::Command { program: path, arguments: arguments.to_vec() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn o2_pages_leave_the_machine_encrypted() {
        for (url, allowed) in [
            ("https://hooks.example.com/T0/B0?x=1", true),
            ("https://hooks.example.com", true),
            ("http://127.0.0.1:9000/page", true),
            ("http://[::1]:9000", true),
            ("http://localhost/page", true),
            ("http://hooks.example.com/page", false),
            ("http://10.0.0.1/page", false),
            ("https://user:word@hooks.example.com/page", false),
            ("ftp://127.0.0.1/", false),
            ("/page", false),
            ("hooks.example.com", false),
        ] {
            assert_eq!(url.parse::<Uri>().is_ok_and(|url| is_receiver(&url)), allowed, "{url}");
        }
    }

    #[test]
    fn d4_a_receivers_address_is_not_written_out() {
        let url = "https://hooks.example.com/secret-path".parse().unwrap();
        let written = format!("{:?}", Webhook { url, signing_key: Some(b"secret-key".to_vec()) });
        assert!(written.contains("hooks.example.com") && !written.contains("secret"), "{written}");
    }
}
