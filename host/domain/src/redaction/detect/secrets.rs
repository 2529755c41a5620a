//! Tokens and keys that tell by their form what they are.

use std::sync::LazyLock;

use aho_corasick::AhoCorasick;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};

use super::{Detector, Report, follows_word, is_word_at, places, run_end};
use crate::redaction::json::is_well_formed;

/// The longest header of a web token that is read.
const HEADER_MAX: usize = 8 << 10;

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_'
}

/// Finds web tokens (RFC 7519): parts in base64url between full stops, the first of which is JSON with `alg`.
pub(super) fn json_web_tokens(text: &[u8], report: Report<'_>) {
    for start in places(text, b"eyJ") {
        if start > 0 && is_token(text[start - 1]) {
            continue;
        }
        let (header_end, mut end, mut parts) = (run_end(text, start, is_token), 0, 1);
        if !is_header(&text[start..header_end]) {
            continue;
        }
        // An encrypted token (RFC 7516) has five parts.
        for _ in 1..5 {
            let part = end.max(header_end);
            if text.get(part) != Some(&b'.') {
                break;
            }
            (end, parts) = (run_end(text, part + 1, is_token), parts + 1);
        }
        if parts >= 3 {
            report(Detector::Jwt, start..end);
        }
    }
}

fn is_header(part: &[u8]) -> bool {
    part.len() <= HEADER_MAX
        && URL_SAFE_NO_PAD
            .decode(part)
            .is_ok_and(|header| is_well_formed(&header).is_ok() && places(&header, b"\"alg\"").next().is_some())
}

/// Finds blocks of PEM (RFC 7468). One whose end was cut off reaches to the end of the text.
pub(super) fn pem_blocks(text: &[u8], report: Report<'_>) {
    let mut begins = places(text, b"-----BEGIN ");
    let mut read_to = 0;
    while let Some(start) = begins.find(|&start| start >= read_to) {
        let last_line = places(&text[start..], b"-----END ").next().map(|end| start + end + b"-----END ".len());
        let end = last_line.and_then(|label| places(&text[label..], b"-----").next().map(|end| label + end + 5));
        read_to = end.unwrap_or(text.len());
        report(Detector::Pem, start..read_to);
    }
}

/// How a service marks its keys.
struct KeyForm {
    prefix: &'static str,
    /// How many characters follow at least.
    rest_min: usize,
    /// How many at most, where their number is known.
    rest_max: usize,
    belongs: fn(u8) -> bool,
}

const fn key(prefix: &'static str, rest_min: usize, rest_max: usize, belongs: fn(u8) -> bool) -> KeyForm {
    KeyForm { prefix, rest_min, rest_max, belongs }
}

fn is_upper(byte: u8) -> bool {
    byte.is_ascii_uppercase() || byte.is_ascii_digit()
}

fn is_dotted(byte: u8) -> bool {
    is_token(byte) || byte == b'.'
}

fn is_base64(byte: u8) -> bool {
    is_token(byte) || b"+/=".contains(&byte)
}

const ANY: usize = usize::MAX;

/// Each prefix with how many characters follow; none of them begins another.
static KEY_FORMS: [KeyForm; 58] = [
    // Payment.
    key("sk_live_", 10, ANY, is_token),
    key("sk_test_", 10, ANY, is_token),
    key("rk_live_", 10, ANY, is_token),
    key("rk_test_", 10, ANY, is_token),
    key("whsec_", 16, ANY, is_base64),
    key("sq0atp-", 22, ANY, is_token),
    key("sq0csp-", 22, ANY, is_token),
    key("shpat_", 32, 32, is_token),
    key("shpca_", 32, 32, is_token),
    key("shppa_", 32, 32, is_token),
    key("shpss_", 32, 32, is_token),
    // Clouds.
    key("AKIA", 16, 16, is_upper),
    key("ASIA", 16, 16, is_upper),
    key("AIza", 35, ANY, is_token),
    key("ya29.", 20, ANY, is_dotted),
    key("GOCSPX-", 20, ANY, is_token),
    key("AccountKey=", 40, ANY, is_base64),
    key("SharedAccessKey=", 40, ANY, is_base64),
    key("dop_v1_", 32, ANY, is_token),
    key("doo_v1_", 32, ANY, is_token),
    key("dor_v1_", 32, ANY, is_token),
    key("hvs.", 20, ANY, is_dotted),
    key("dapi", 32, 32, is_token),
    // Chat.
    key("xoxa-", 10, ANY, is_token),
    key("xoxb-", 10, ANY, is_token),
    key("xoxe-", 10, ANY, is_token),
    key("xoxe.xox", 10, ANY, is_dotted),
    key("xoxp-", 10, ANY, is_token),
    key("xoxr-", 10, ANY, is_token),
    key("xoxs-", 10, ANY, is_token),
    key("xapp-", 10, ANY, is_token),
    // Code hosting and packages.
    key("ghp_", 20, ANY, is_token),
    key("gho_", 20, ANY, is_token),
    key("ghu_", 20, ANY, is_token),
    key("ghs_", 20, ANY, is_token),
    key("ghr_", 20, ANY, is_token),
    key("github_pat_", 20, ANY, is_token),
    key("glpat-", 16, ANY, is_dotted),
    key("glptt-", 16, ANY, is_token),
    key("glrt-", 16, ANY, is_dotted),
    key("gldt-", 16, ANY, is_token),
    key("ATBB", 24, ANY, is_token),
    key("ATATT3x", 20, ANY, is_token),
    key("npm_", 36, 36, is_token),
    key("pypi-AgEI", 20, ANY, is_token),
    key("dckr_pat_", 20, ANY, is_token),
    // Mail, models and others.
    key("SG.", 40, ANY, is_dotted),
    key("xkeysib-", 20, ANY, is_token),
    key("sk-ant-", 20, ANY, is_token),
    key("sk-proj-", 20, ANY, is_token),
    key("sk-svcacct-", 20, ANY, is_token),
    key("hf_", 30, ANY, is_token),
    key("glsa_", 20, ANY, is_token),
    key("sntrys_", 20, ANY, is_base64),
    key("lin_api_", 20, ANY, is_token),
    key("PMAK-", 20, ANY, is_token),
    key("AGE-SECRET-KEY-1", 40, ANY, is_upper),
    // Leasehold's own.
    key(crate::token::PREFIX, crate::token::SECRET_CHARACTERS, ANY, is_token),
];

static KEY_PREFIXES: LazyLock<Option<AhoCorasick>> =
    LazyLock::new(|| AhoCorasick::new(KEY_FORMS.iter().map(|form| form.prefix)).ok());

/// Finds keys by the prefix that their service gives them.
pub(super) fn api_keys(text: &[u8], report: Report<'_>) {
    let Some(prefixes) = &*KEY_PREFIXES else { return };
    let mut read_to = 0;
    for found in prefixes.find_iter(text) {
        if found.start() < read_to || follows_word(text, found.start()) {
            continue;
        }
        let form = &KEY_FORMS[found.pattern().as_usize()];
        let end = run_end(text, found.end(), form.belongs);
        let is_cut_short = form.rest_max != ANY && is_word_at(text, end);
        if (form.rest_min..=form.rest_max).contains(&(end - found.end())) && !is_cut_short {
            report(Detector::ApiKey, found.start()..end);
            read_to = end;
        }
    }
}

/// Addresses that let whoever knows them write, by what stands before their secret part.
const WEBHOOKS: [&[u8]; 4] = [
    b"hooks.slack.com/services/",
    b"discord.com/api/webhooks/",
    b"discordapp.com/api/webhooks/",
    b"api.telegram.org/bot",
];

/// Finds the secret part of addresses of webhooks.
pub(super) fn webhooks(text: &[u8], report: Report<'_>) {
    for before in WEBHOOKS {
        for start in places(text, before).map(|place| place + before.len()) {
            let end = run_end(text, start, |byte| is_token(byte) || b"/:".contains(&byte));
            report(Detector::Credential, start..end);
        }
    }
}
