//! Credentials in headers and URLs. Only the secret part is found: user names, hosts and names of parameters stay.

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD},
};

use super::{Detector, Report, follows_word, places, run_end};

/// The longest name of a parameter that is looked at.
const NAME_MAX: usize = 40;
/// Parameters of URLs that carry a secret, in lower case.
const SECRET_PARAMETERS: [&str; 28] = [
    "access_key",
    "access_token",
    "accesstoken",
    "api-key",
    "api_key",
    "apikey",
    "auth",
    "auth_token",
    "authtoken",
    "client_secret",
    "id_token",
    "jwt",
    "key",
    "passwd",
    "password",
    "private_token",
    "pwd",
    "refresh_token",
    "secret",
    "secret_key",
    "session",
    "sessionid",
    "sig",
    "signature",
    "token",
    "x-amz-security-token",
    "x-amz-signature",
    "x-goog-signature",
];
/// Settings that carry a secret wherever they stand, such as in the address of a database, in lower case.
const SECRET_SETTINGS: [&[u8]; 5] = [b"password", b"passwd", b"pwd", b"client_secret", b"secret_key"];

/// Finds what follows `Bearer` (RFC 6750) and `Basic` (RFC 7617), as far as it is no word of a sentence.
pub(super) fn in_headers(text: &[u8], report: Report<'_>) {
    for start in places(text, b" ").map(|space| space + 1) {
        let scheme = |name: &str| {
            let begin = start.checked_sub(name.len() + 1)?;
            let is_scheme = text[begin..start - 1].eq_ignore_ascii_case(name.as_bytes()) && !follows_word(text, begin);
            is_scheme.then_some(begin)
        };
        let (bearer, basic) = (scheme("Bearer"), scheme("Basic"));
        if bearer.or(basic).is_none() {
            continue;
        }
        let letters_end = run_end(text, start, |byte| byte.is_ascii_alphanumeric() || b"-._~+/".contains(&byte));
        let end = run_end(text, letters_end, |byte| byte == b'=');
        let is_secret = match (bearer, basic) {
            (Some(begin), _) => is_header(text, begin) || is_bearer(&text[start..letters_end]),
            (_, Some(begin)) => is_header(text, begin) || is_basic(&text[start..letters_end]),
            _ => false,
        };
        if is_secret {
            report(Detector::Credential, start..end);
        }
    }
}

/// Whether the name of the header stands before.
fn is_header(text: &[u8], at: usize) -> bool {
    let before = &text[at.saturating_sub(24)..at];
    let kept = before.iter().rposition(u8::is_ascii_alphanumeric).map_or(0, |last| last + 1);
    before[..kept].to_ascii_lowercase().ends_with(b"authorization")
}

fn is_bearer(token: &[u8]) -> bool {
    token.len() >= 24 || token.len() >= 8 && token.iter().any(u8::is_ascii_digit)
}

/// A user and a password.
fn is_basic(encoded: &[u8]) -> bool {
    let decoded = STANDARD_NO_PAD.decode(encoded).or_else(|_| URL_SAFE_NO_PAD.decode(encoded));
    decoded.is_ok_and(|pair| pair.contains(&b':'))
}

/// Finds the password in `scheme://user:password@host` (RFC 3986).
pub(super) fn in_authorities(text: &[u8], report: Report<'_>) {
    for start in places(text, b"://").map(|colon| colon + 3) {
        let end = run_end(text, start, |byte| !byte.is_ascii_whitespace() && !b"/?#\"'<>\\`".contains(&byte));
        let authority = &text[start..end];
        let Some(at) = authority.iter().rposition(|&byte| byte == b'@') else { continue };
        if let Some(colon) = authority[..at].iter().position(|&byte| byte == b':') {
            report(Detector::Credential, start + colon + 1..start + at);
        }
    }
}

/// Finds the values of parameters that carry a secret.
pub(super) fn in_queries(text: &[u8], report: Report<'_>) {
    let mut read_to = 0;
    for (before, _) in text.iter().enumerate().filter(|(_, byte)| b"?&#;".contains(byte)) {
        if before < read_to {
            continue;
        }
        let rest = &text[before + 1..];
        let Some(length) = rest.iter().take(NAME_MAX).position(|&byte| byte == b'=') else { continue };
        let name = rest[..length].to_ascii_lowercase();
        if SECRET_PARAMETERS.iter().any(|secret| secret.as_bytes() == name) {
            let start = before + 1 + length + 1;
            let end = run_end(text, start, |byte| !byte.is_ascii_whitespace() && !b"&#;\"'<>\\`,)".contains(&byte));
            report(Detector::Credential, start..end);
            read_to = end;
        }
    }
}

/// Finds the values of settings such as `host=db password=hunter2` and `{"password": "hunter2"}`.
pub(super) fn in_settings(text: &[u8], report: Report<'_>) {
    let is_quote = |byte: &u8| b"\\'\"".contains(byte);
    for (at, &byte) in text.iter().enumerate().filter(|(_, byte)| b"=:".contains(byte)) {
        let quotes = text[..at].iter().rev().take(2).take_while(|byte| is_quote(byte)).count();
        let name_end = at - quotes;
        let name = text[name_end.saturating_sub(NAME_MAX)..name_end].to_ascii_lowercase();
        let Some(setting) = SECRET_SETTINGS.iter().find(|setting| name.ends_with(setting)) else { continue };
        if follows_word(text, name_end - setting.len()) {
            continue;
        }
        let spaces = text[at + 1..].iter().take(2).take_while(|&&byte| byte == b' ').count();
        let opening = text[at + 1 + spaces..].iter().take(2).take_while(|byte| is_quote(byte)).count();
        // Without quotes, what follows a colon may be the rest of a sentence, and what follows a space another word.
        if opening == 0 && (byte == b':' || spaces > 0) {
            continue;
        }
        let start = at + 1 + spaces + opening;
        let end = run_end(text, start, |byte| !byte.is_ascii_whitespace() && !b"&;\"'<>\\`,)".contains(&byte));
        report(Detector::Credential, start..end);
    }
}
