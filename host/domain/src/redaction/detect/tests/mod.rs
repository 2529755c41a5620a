//! What is found and what stays readable.

mod credentials;
mod payment;
mod personal;
mod secrets;

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD},
};
use proptest::prelude::*;

use super::*;
use crate::redaction::TextMasker;

/// The text with its masks reduced to their kinds.
fn kinds(text: &str) -> String {
    let mut parts = text.split(" ~");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |shown, part| shown + part.trim_start_matches(|character: char| character.is_ascii_digit()))
}

fn masked(text: &str) -> String {
    TextMasker::by_form().mask(text).into_owned()
}

#[test]
fn d2_common_forms_of_personal_data_are_masked() {
    for (text, expected) in [
        ("for jo@example.org.", "for [redacted:email]."),
        ("mailboxes/jo@example.org.json", "mailboxes/[redacted:email].json"),
        ("<Jo.Doe+x@mail.example-shop.co.uk>", "<[redacted:email]>"),
        ("('o'neil@example.org', \"jo@exämple.org\")", "('[redacted:email]', \"[redacted:email]\")"),
        ("GET /?email=jo%40example.org&a=1", "GET /?email=[redacted:email]&a=1"),
        (r#"{\"to\":\"jo\u0040example.org\"}"#, r#"{\"to\":\"[redacted:email]\"}"#),
        ("card 4111 1111 1111 1111 declined", "card [redacted:card] declined"),
        ("4111-1111-1111-1111", "[redacted:card]"),
        ("order 4711 5555555555554444", "order 4711 [redacted:card]"),
        ("pan_378282246310005", "pan_[redacted:card]"),
        ("card4222222222222", "card[redacted:card]"),
        ("6011111111111117,30569309025904", "[redacted:card],[redacted:card]"),
        ("to DE89 3704 0044 0532 0130 00 now", "to [redacted:iban] now"),
        ("gb82west12345698765432", "[redacted:iban]"),
        ("NO9386011117947", "[redacted:iban]"),
        ("call +49 (351) 123-4567!", "call [redacted:phone]!"),
        ("+14155552671", "[redacted:phone]"),
        ("tel 0049 351 1234567", "tel [redacted:phone]"),
        ("+49.3511234567,+1.415.555.2671", "[redacted:phone],[redacted:phone]"),
        // An id that begins like a card's number and passes its check can't be told from one.
        ("order 4539148803436467", "order [redacted:card]"),
        // So can a path of a repository not be told from an address.
        ("git@github.com:jo/shop.git", "[redacted:email]:jo/shop.git"),
    ] {
        assert_eq!(kinds(&masked(text)), expected);
    }
}

#[test]
fn d2_common_forms_of_secrets_are_masked() {
    let token = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl";
    for (text, expected) in [
        (format!("got {token}, expired"), "got [redacted:jwt], expired"),
        ("-----BEGIN X KEY-----\nMII\n-----END X KEY-----\nrest".to_owned(), "[redacted:pem]\nrest"),
        ("-----BEGIN X KEY-----\nMII".to_owned(), "[redacted:pem]"),
        ("key sk_live_4eC39HqLyjWDarjt, bad".to_owned(), "key [redacted:api-key], bad"),
        ("rk_live_4eC39HqLyjWDarjt".to_owned(), "[redacted:api-key]"),
        ("AKIAIOSFODNN7EXAMPLE".to_owned(), "[redacted:api-key]"),
        ("ghp_abcdefghijklmnopqrstuvwxyz0123456789".to_owned(), "[redacted:api-key]"),
        ("github_pat_11ABCDEFG0abcdefghijkl".to_owned(), "[redacted:api-key]"),
        ("xoxb-123456789012-abcdef".to_owned(), "[redacted:api-key]"),
        (format!("AIza{}", "a".repeat(35)), "[redacted:api-key]"),
        ("glpat-abcdefghij0123456789".to_owned(), "[redacted:api-key]"),
        (format!("SG.{}.{}", "a".repeat(22), "b".repeat(43)), "[redacted:api-key]"),
        ("Authorization: Bearer hunter".to_owned(), "Authorization: Bearer [redacted:credential]"),
        ("sent bearer a1b2c3d4e5==".to_owned(), "sent bearer [redacted:credential]"),
        ("Basic am86aHVudGVyMg==".to_owned(), "Basic [redacted:credential]"),
        ("postgres://app:hunter2@db:5432/x".to_owned(), "postgres://app:[redacted:credential]@db:5432/x"),
        ("GET /a?id=5&Api_Key=abc&b=c".to_owned(), "GET /a?id=5&Api_Key=[redacted:credential]&b=c"),
        ("host=db password=hunter2 user=jo".to_owned(), "host=db password=[redacted:credential] user=jo"),
        (
            r#"sent {"password": "hunter2", "id": 5}"#.to_owned(),
            r#"sent {"password": "[redacted:credential]", "id": 5}"#,
        ),
        (
            "https://hooks.slack.com/services/T00/B00/XXXX no_service".to_owned(),
            "https://hooks.slack.com/services/[redacted:credential] no_service",
        ),
        ("https://x.example/#access_token=abc".to_owned(), "https://x.example/#access_token=[redacted:credential]"),
    ] {
        assert_eq!(kinds(&masked(&text)), expected);
    }
}

#[test]
fn d2_keys_of_services_are_masked_by_their_prefix() {
    for prefix in [
        "sk_live_",
        "rk_test_",
        "whsec_",
        "sq0atp-",
        "shpat_",
        "ya29.",
        "GOCSPX-",
        "AccountKey=",
        "dop_v1_",
        "hvs.",
        "dapi",
        "xoxb-",
        "xoxe.xoxp-",
        "xapp-",
        "gho_",
        "ghs_",
        "glrt-",
        "ATBB",
        "ATATT3x",
        "pypi-AgEI",
        "dckr_pat_",
        "xkeysib-",
        "sk-ant-",
        "sk-svcacct-",
        "hf_",
        "glsa_",
        "sntrys_",
        "lin_api_",
        "PMAK-",
    ] {
        let length = if ["shpat_", "dapi"].contains(&prefix) { 32 } else { 48 };
        let key = format!("{prefix}{}", &"0a1B2c3D4e5F6g7H".repeat(3)[..length]);
        assert_eq!(kinds(&masked(&format!("key {key}."))).trim_end_matches('.'), "key [redacted:api-key]", "{key}");
    }
    let age = format!("AGE-SECRET-KEY-1{}", "Q".repeat(58));
    assert_eq!(kinds(&masked(&age)), "[redacted:api-key]");
}

#[test]
fn d2_what_is_found_is_masked_also_in_base64_and_in_escapes() {
    let token = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl";
    let values = [
        "jo@example.org",
        "4111 1111 1111 1111",
        "DE89370400440532013000",
        "+14155552671",
        token,
        "sk_live_4eC39HqLyjWDarjt",
        "postgres://app:hunter2@db/x",
        "Bearer a1b2c3d4e5f6",
        "/a?api_key=hunter2hunter2",
    ];
    for value in values {
        let text = format!("for {value} and more");
        assert_ne!(masked(&text), text);
        let percent = percent_encoding::utf8_percent_encode(&text, percent_encoding::NON_ALPHANUMERIC).to_string();
        for engine in [STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD] {
            let encoded = engine.encode(&text);
            let escaped = encoded.replace('/', "%2F").replace('+', "%2B").replace('=', "%3D");
            for form in [encoded.clone(), format!("data:{encoded}"), format!("/path/{encoded}"), escaped] {
                let shown = masked(&form);
                assert!(shown.contains("[redacted"), "{text} in {form} became {shown}");
                assert!(!readings(&shown).contains(value), "{text} in {form} became {shown}");
            }
        }
        assert!(masked(&percent).contains("[redacted") && !masked(&percent).contains(value), "{percent}");
    }
}

#[test]
fn d2_what_is_found_in_base64_is_masked_across_the_breaks_of_its_lines() {
    // Lines of less than sixty digits are words below each other.
    for (line, is_joined) in [(76, true), (64, true), (60, true), (59, false)] {
        let before = "to ".repeat(line / 4 - 3);
        let encoded = STANDARD_NO_PAD.encode(format!("{before}jo@example.org"));
        let (digits_before, _) = encoded.split_at(before.len() / 3 * 4);
        for line_break in ["\n", "\r\n"] {
            let text = format!("{}{line_break}{}", &encoded[..line], &encoded[line..]);
            let expected = if is_joined { format!("{digits_before}[redacted:email ~16]") } else { text.clone() };
            assert_eq!(masked(&text), expected, "lines of {line}");
        }
    }
}

/// What somebody reads out of what is left of a text in base64.
fn readings(text: &str) -> String {
    let runs = text.split(|c: char| !(c.is_ascii_alphanumeric() || "+/-_".contains(c)));
    let decoded =
        runs.flat_map(|run| [STANDARD_NO_PAD.decode(run), URL_SAFE_NO_PAD.decode(run)].map(Result::unwrap_or_default));
    decoded.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).collect::<Vec<_>>().join(" ")
}

/// Texts with what is shown of them, the lengths left out.
fn assert_shown(cases: &[(&str, &str)]) {
    for (text, expected) in cases {
        assert_eq!(kinds(&masked(text)), *expected, "{text}");
    }
}

/// Texts that stay as they are.
fn assert_readable(texts: &[&str]) {
    for text in texts {
        assert_eq!(masked(text), *text);
    }
}

/// What looks like something in the eyes of a detector that is too eager, and is none of it.
const HARMLESS: [(&str, &str); 30] = [
    ("order numbers", "order-4711 of A-1001, invoice 2026-000123, 10000000000, SO/2026/00004711, #4711"),
    ("long order numbers", "4111 1111 1111 1112, 41111111111111111111, 1234567812345670, 9876543210987650"),
    ("UUIDs", "123e4567-e89b-12d3-a456-426614174000 41111111-1111-1111-1111-111111111111"),
    ("UUIDs of digits", "00123456-7890-1234-5678-901234567890 {00491511-2345-6789-0123-456789012345}"),
    ("UUIDs without dashes", "123e4567e89b12d3a456426614174000 00123456789012345678901234567890 a4111111111111111f"),
    ("MD5, SHA-1", "d41d8cd98f00b204e9800998ecf8427e da39a3ee5e6b4b0d3255bfef95601890afd80709"),
    ("SHA-256", "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
    ("git commits", "fix in 7fd1a60 (7fd1a60b01f91b314f59955a4e4d4e80d8edf11d)"),
    ("ULIDs, KSUIDs, nanoids", "01ARZ3NDEKTSV4RRFFQ69G5FAV 0ujsszwN8NRY24YaXiTIE2VWDTS V1StGXR8_Z5jdHi6B-myT"),
    ("times", "2026-01-01T00:00:00.123456789+00:00 2026-01-01 00:00:00 20260101T000000Z 12:00:00+10:30"),
    ("times as numbers", "1767225600 1767225600000 1767225600000000 1767225600000000000 1767225600.123456"),
    ("times in words", "Thu, 01 Jan 2026 00:00:00 GMT; 01/Jan/2026:00:00:00 +0200; Jan  1 00:00:00"),
    ("IP addresses", "10.0.0.1:8080 192.168.100.200/24 2001:db8:85a3::8a2e:370:7334 [::1]:443 00-B0-D0-63-C2-26"),
    (
        "versions",
        "1.2.3 v1.0.0-rc.1+20130313144700 ^4.17.21 charge-card@1.2.3 name@1.2.3-rc.alpha misbehave@1.0.0.wasm",
    ),
    ("packages and files", "@scope/pkg@1.2.3 icon@2x.png node@18 photo@home.jpg image@sha256:e3b0c442"),
    ("colours", "#ff8800 #00ff00ff rgb(12, 34, 56) 0xdeadbeef"),
    ("books and articles", "ISBN 978-3-16-148410-0, 9783161484100, EAN 4006381333931, 4012345678901, 5901234123457"),
    ("tracking numbers", "1Z999AA10123456784 RA123456785DE 9400 1000 0000 0000 0000 00 00340434161094015902"),
    ("spaced parcels", "0034 0434 1610 9401 5902, JD0002 1234 5678"),
    ("prices", "+12.345.678,00 EUR, 1,999.00, $12345678.90, -4111.11, +5 %, 1.234.567,89"),
    ("coordinates", "52.520008, 13.404954 / +52.520008 +13.404954 / geo:48.2010,16.3695,183"),
    ("numbers", "0.4111111111111111, 3.141592653589793, 6.02214076e+23, 1e+12345678, 1+1, +12345, C++ 20"),
    ("ids that look like accounts", "DE89 3704 0044 0532 0130 01, GB00WEST12345698765432, NO93ABC, AT12"),
    ("Rust", "panicked at src/lib.rs:11:46, leasehold::redaction::mask::<&str> {closure#0} a@b"),
    ("code", "if a[i]@b && c.d@e then &mut self.x?; x @ y.z, @example.org, #[derive(Debug)]"),
    (
        "images",
        "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==",
    ),
    (
        "tokens' beginnings",
        "eyJ.eyJ.eyJ and eyJhIjoxfQ.a.b AKIA, sk_live_, ghp_x, hf_hub, dapi and risk_test_of_something",
    ),
    ("sentences", "Bearer authentication required; Basic knowledge of Bearer tokens; password: required, password = ?"),
    ("URLs", "https://jo@example/x:y http://host:8080/a@b /a?id=5&keys=abc&monkey=1 key=order-4711 a://b"),
    ("masks", "[redacted] [redacted:email] [redacted:email ~16 #abcdefgh] [redacted: 11 bytes]"),
];

#[test]
fn d2_what_only_resembles_personal_data_stays_readable() {
    for (what, text) in HARMLESS {
        assert_eq!(masked(text), text, "{what}");
        let json = serde_json::Value::from(text).to_string();
        assert_eq!(masked(&json), json, "{what} in JSON");
    }
    for id in ["job-5f2c9a7e11d04b6c", "auto-00491511234567890123456789abcdef"] {
        assert_eq!(masked(id), id);
    }
}

#[test]
fn d2_bytes_in_base64_are_no_text_by_chance() {
    // Numbers that repeat on no machine's whim: the digests of a counter.
    let noise: Vec<u8> =
        (0..8_192_u32).flat_map(|number| *crate::Digest::of(&number.to_be_bytes()).as_bytes()).collect();
    let encoded = STANDARD.encode(&noise);
    assert_eq!(masked(&encoded), encoded);
}

#[test]
fn d2_a_finding_says_where_it_stands() {
    let findings: Vec<Finding> = detect("é jo@example.org +14155552671").collect();
    let expected = [(Detector::Email, 3..17), (Detector::Phone, 18..30)];
    assert_eq!(findings, expected.map(|(class, range)| Finding { range, class }));
}

#[test]
fn d2_a_long_text_of_beginnings_is_passed_over_in_linear_time() {
    for beginning in
        ["@", "a@a.", "?token=a", "://a:", "eyJ", "eyJ.", "eyJ-AKIA", "-----BEGIN ", "Bearer ", "4111 ", "+1 ", "DE12"]
    {
        let text = beginning.repeat((256 << 10) / beginning.len());
        assert!(masked(&text).len() <= text.len() * 6);
    }
}

proptest! {
    #[test]
    fn d2_findings_are_of_whole_characters(text in any::<String>(), likely in "([@+./:?&=é 0-5a-eA-E-]|eyJ|://|key=|Basic |DE89){0,40}") {
        for text in [text, likely] {
            for finding in detect(&text) {
                prop_assert!(!finding.range.is_empty() && text.get(finding.range).is_some());
            }
            masked(&text);
        }
    }
}
