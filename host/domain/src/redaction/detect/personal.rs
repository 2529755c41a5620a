//! E-mail addresses and phone numbers. It knows their written forms only, never whether somebody has them.

use super::{Detector, Report, follows_word, is_word_at, run_end};

/// Finds addresses around each `@`, which neither of their sides can hold, so that every byte is read twice at most.
pub(super) fn emails(text: &[u8], report: Report<'_>) {
    for (at, _) in text.iter().enumerate().filter(|&(_, &byte)| byte == b'@') {
        let before = text[..at].iter().rposition(|&byte| !is_local_part(byte)).unwrap_or(0);
        // What can't be in a local part is punctuation.
        let trimmed = text[before..at].iter().take_while(|&&byte| is_punctuation(byte)).count();
        let domain_end = domain_end(text, at + 1);
        if before + trimmed < at && is_domain(&text[at + 1..domain_end]) {
            report(Detector::Email, before + trimmed..domain_end);
        }
    }
}

fn is_local_part(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte >= 0x80 || b"._%+-'~!#$*^".contains(&byte)
}

fn is_punctuation(byte: u8) -> bool {
    !byte.is_ascii_alphanumeric() && byte < 0x80 && byte != b'_'
}

/// The end of what could be a domain, without a full stop or a hyphen that ends a sentence, or the ending of a file that
/// has an address for its name.
fn domain_end(text: &[u8], start: usize) -> usize {
    let end = run_end(text, start, |byte| is_label(byte) || byte == b'.');
    let kept = text[start..end].iter().rposition(|byte| !b".-".contains(byte));
    let end = kept.map_or(start, |last| start + last + 1);
    let name = text[start..end].iter().rposition(|&byte| byte == b'.');
    let file =
        name.filter(|dot| FILE_ENDINGS.iter().any(|ending| text[start + dot + 1..end].eq_ignore_ascii_case(ending)));
    file.map_or(end, |dot| start + dot)
}

fn is_label(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte >= 0x80 || byte == b'-'
}

/// Endings of files such as `icon@2x.png` that are no top-level domains.
const FILE_ENDINGS: [&[u8]; 13] =
    [b"css", b"gif", b"html", b"jpeg", b"jpg", b"js", b"json", b"log", b"png", b"toml", b"txt", b"wasm", b"webp"];

/// Two labels and more, of which the last is no number. What begins with a version, as in `name@1.2.3.wasm`, is none.
fn is_domain(domain: &[u8]) -> bool {
    let is_number = |label: &[u8]| label.first().is_some_and(u8::is_ascii_digit);
    let labels = || domain.split(|&byte| byte == b'.');
    let is_version = labels().take_while(|label| is_number(label)).take(3).count() == 3;
    let last = labels().next_back().unwrap_or_default();
    let is_top_level = last.len() >= 2 && last.iter().all(|&byte| byte.is_ascii_alphabetic() || byte >= 0x80);
    labels().count() >= 2
        && labels().all(|label| !label.is_empty())
        && !is_version
        && (is_top_level || last.starts_with(b"xn--"))
}

/// How many digits a number that begins with `00` has at least.
const NATIONAL_MIN: usize = 10;
/// How many digits a number has at least in which nothing but one full stop stands.
const DECIMAL_MIN: usize = 11;

/// Finds numbers with `+`, and those with `00` that are long enough to be no number of an order (E.164: 15 digits at
/// most, of which the first is not 0).
pub(super) fn phone_numbers(text: &[u8], report: Report<'_>) {
    let mut at = 0;
    while at < text.len() {
        let prefix = match &text[at..] {
            [b'+', ..] if !follows_word(text, at) => Some((1, 8)),
            [b'0', b'0', ..] if !continues(text, at) => Some((2, NATIONAL_MIN)),
            _ => None,
        };
        let end = prefix.and_then(|(length, digits_min)| phone_end(text, at + length, digits_min));
        if let Some(end) = end {
            report(Detector::Phone, at..end);
        }
        at = end.unwrap_or(at + 1);
    }
}

/// Whether a number without `+` would stand within something else here, such as a number in groups.
fn continues(text: &[u8], at: usize) -> bool {
    let is_group = at > 1 && text[at - 1] == b' ' && text[at - 2].is_ascii_digit();
    is_group || at > 0 && (text[at - 1].is_ascii_alphanumeric() || b"-_./:+,#%@\\".contains(&text[at - 1]))
}

/// The end of the digits, in groups that separators hold together.
fn phone_end(text: &[u8], start: usize, digits_min: usize) -> Option<usize> {
    let first = text[start..].iter().take(2).position(|byte| !b"( ".contains(byte)).map(|skipped| start + skipped)?;
    if !matches!(text[first], b'1'..=b'9') {
        return None;
    }
    let (mut digits, mut end, mut at) = (0, first, first);
    let is_decimal = |end: usize| text[first..end].iter().filter(|byte| !byte.is_ascii_digit()).eq(b".");
    loop {
        let group = text[at..].iter().take(16).take_while(|byte| byte.is_ascii_digit()).count();
        if group == 0 {
            break;
        }
        if digits + group > 15 {
            // A number that only `00` begins goes on as something else, such as a parcel's.
            return (digits >= digits_min && digits_min < NATIONAL_MIN).then_some(end);
        }
        (digits, end) = (digits + group, at + group);
        at = end + text[end..].iter().take(2).take_while(|byte| b" -./()".contains(byte)).count();
    }
    let goes_on = is_word_at(text, end)
        || text.get(end) == Some(&b'-') && is_word_at(text, end + 1)
        || is_price(&text[first..end], &text[end..]);
    // A number with nothing but one full stop is a coordinate or a price unless it is as long as few of these are.
    let digits_min = if is_decimal(end) { digits_min.max(DECIMAL_MIN) } else { digits_min };
    (digits >= digits_min && !goes_on).then_some(end)
}

/// Whether this is an amount such as `+12.345.678,00`.
fn is_price(number: &[u8], after: &[u8]) -> bool {
    let is_grouped = number.iter().all(|&byte| byte.is_ascii_digit() || byte == b'.');
    let cents = after.iter().skip(1).take(3).take_while(|byte| byte.is_ascii_digit()).count();
    is_grouped && after.first() == Some(&b',') && cents == 2
}
