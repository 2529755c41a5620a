//! Numbers of cards and bank accounts, told from others by their check digits.

use std::ops::Range;

use super::{Detector, Report, follows_word, is_word_at, run_end};

/// How far around a number its word is looked at: the longest digest in hexadecimal that is common.
const WORD_MAX: usize = 128;

/// Finds 13 to 19 digits, whole or in groups of three to seven, that pass the Luhn check.
pub(super) fn cards(text: &[u8], report: Report<'_>) {
    let mut at = 0;
    while at < text.len() {
        if !text[at].is_ascii_digit() {
            at += 1;
            continue;
        }
        if let Some(end) = card_end(text, at) {
            report(Detector::Card, at..end);
            at = end;
        } else {
            at = run_end(text, at, |byte| byte.is_ascii_digit());
        }
    }
}

/// The end of the card number that begins with the group of digits at this place.
fn card_end(text: &[u8], start: usize) -> Option<usize> {
    let is_fraction = start > 1 && text[start - 1] == b'.' && text[start - 2].is_ascii_digit();
    if is_fraction || !matches!(text[start], b'3'..=b'6') {
        return None;
    }
    let (mut digits, mut at, mut found) = (Vec::with_capacity(19), start, None);
    loop {
        let group = text[at..].iter().take(20).take_while(|byte| byte.is_ascii_digit()).count();
        let is_whole = at == start && group >= 13;
        if digits.len() + group > 19 || !(is_whole || (3..=7).contains(&group)) {
            return found;
        }
        digits.extend(text[at..at + group].iter().map(|digit| digit - b'0'));
        at += group;
        if is_card(&digits) && !is_in_digest(text, start..at) {
            found = Some(at);
        }
        if is_whole || !text.get(at).is_some_and(|byte| b" -".contains(byte)) {
            return found;
        }
        at += 1;
    }
}

/// Whether the digits are part of a longer word of nothing but hexadecimal digits.
fn is_in_digest(text: &[u8], digits: Range<usize>) -> bool {
    let word = |byte: &&u8| byte.is_ascii_alphanumeric();
    let before = text[..digits.start].iter().rev().take(WORD_MAX).take_while(word);
    let after = text[digits.end..].iter().take(WORD_MAX).take_while(word);
    let (mut letters, mut others) = (0, 0);
    for byte in before.chain(after) {
        letters += 1;
        others += usize::from(!byte.is_ascii_hexdigit());
    }
    letters > 0 && others == 0
}

/// Lengths by the first digits as ISO/IEC 7812 hands them out, and the check of Luhn (ISO/IEC 7812-1, annex B).
fn is_card(digits: &[u8]) -> bool {
    let fits = match digits {
        [3, 4 | 7, ..] => digits.len() == 15,
        [3, 0 | 6 | 8 | 9, ..] => (14..=19).contains(&digits.len()),
        [3, 5, ..] => (16..=19).contains(&digits.len()),
        [4, ..] => matches!(digits.len(), 13 | 16 | 19),
        [5, 1..=5, ..] => digits.len() == 16,
        [5 | 6, ..] => (13..=19).contains(&digits.len()),
        _ => false,
    };
    fits && luhn_sum(digits).is_multiple_of(10) && !is_article(digits)
}

/// Whether these are the 13 digits of an article or a book (GTIN-13), whose check digit is another.
fn is_article(digits: &[u8]) -> bool {
    let weighted =
        digits.iter().enumerate().map(|(place, &digit)| u32::from(digit) * if place % 2 == 0 { 1 } else { 3 });
    digits.len() == 13 && weighted.sum::<u32>().is_multiple_of(10)
}

fn luhn_sum(digits: &[u8]) -> u32 {
    let weighted = digits.iter().rev().enumerate().map(|(place, &digit)| match (place % 2, digit) {
        (0, _) => digit,
        (_, 0..=4) => digit * 2,
        _ => digit * 2 - 9,
    });
    weighted.map(u32::from).sum()
}

/// How long the numbers of each country are (the register of ISO 13616).
const IBAN_LENGTHS: &str = "AD24 AE23 AL28 AT20 AZ28 BA20 BE16 BG22 BH22 BI27 BR29 BY28 CH21 CR22 CY28 CZ24 DE22 \
    DJ27 DK18 DO28 EE20 EG29 ES24 FI18 FK18 FO18 FR27 GB22 GE22 GI23 GL18 GR27 GT28 HN28 HR21 HU28 IE22 IL23 IQ23 IS26 \
    IT27 JO30 KW30 KZ20 LB28 LC32 LI21 LT20 LU20 LV21 LY25 MC27 MD24 ME22 MK19 MN20 MR27 MT31 MU30 NI28 NL18 NO15 OM23 \
    PK24 PL28 PS29 PT25 QA29 RO24 RS22 RU33 SA24 SC31 SD18 SE24 SI19 SK24 SM27 SO23 ST25 SV28 TL23 TN24 TR26 UA29 VA22 \
    VG24 XK20 YE30";

/// Finds account numbers, whole or in groups of four.
pub(super) fn ibans(text: &[u8], report: Report<'_>) {
    let mut at = 0;
    while let Some([first, _, check, ..]) = text.get(at..) {
        let looks_so = first.is_ascii_alphabetic() && check.is_ascii_digit() && !follows_word(text, at);
        let end = if looks_so { iban_end(text, at) } else { None };
        if let Some(end) = end {
            report(Detector::Iban, at..end);
        }
        at = end.unwrap_or(at + 1);
    }
}

fn iban_end(text: &[u8], start: usize) -> Option<usize> {
    let country = text[start..start + 2].to_ascii_uppercase();
    let known = IBAN_LENGTHS.split(' ').find(|known| known.as_bytes().starts_with(&country))?;
    let length: usize = known[2..].parse().ok()?;
    let (mut number, mut at) = (Vec::with_capacity(length), start);
    while number.len() < length {
        match text.get(at)? {
            b' ' if number.len().is_multiple_of(4) && text[at - 1] != b' ' => {}
            byte if byte.is_ascii_alphanumeric() => number.push(byte.to_ascii_uppercase()),
            _ => return None,
        }
        at += 1;
    }
    (!is_word_at(text, at) && iban_remainder(&number) == 1).then_some(at)
}

/// The remainder by 97 with the country and the check digits moved to the end and letters as 10 to 35 (ISO 7064, MOD
/// 97-10).
fn iban_remainder(number: &[u8]) -> u32 {
    let (front, rest) = number.split_at(4);
    rest.iter().chain(front).fold(0, |remainder, &byte| match byte {
        b'0'..=b'9' => (remainder * 10 + u32::from(byte - b'0')) % 97,
        _ => (remainder * 100 + u32::from(byte.to_ascii_uppercase() - b'A') + 10) % 97,
    })
}
