//! What is found and what stays readable.

use proptest::prelude::*;

use super::*;
use crate::redaction::TextMasker;

fn masked(text: &str) -> String {
    TextMasker::of([], true).mask(text).into_owned()
}

#[test]
fn d2_common_forms_of_personal_data_are_masked() {
    for (text, expected) in [
        ("for jo@example.org.", "for [redacted:email]."),
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
    ] {
        assert_eq!(masked(text), expected);
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
        ("https://x.example/#access_token=abc".to_owned(), "https://x.example/#access_token=[redacted:credential]"),
    ] {
        assert_eq!(masked(&text), expected);
    }
}

#[test]
fn d2_what_only_resembles_personal_data_stays_readable() {
    for text in [
        "order-4711 of A-1001, invoice 2026-000123, 10000000000",
        "123e4567-e89b-12d3-a456-426614174000",
        "41111111-1111-1111-1111-111111111111",
        "00123456-7890-1234-5678-901234567890",
        "d41d8cd98f00b204e9800998ecf8427e",
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "a4111111111111111f",
        "2026-01-01T00:00:00.123456789+00:00 1767225600000 1767225600000000000",
        "4111 1111 1111 1112, 41111111111111111111, 0.4111111111111111",
        "job-5f2c9a7e11d04b6c auto-00491511234567890123456789abcdef",
        "charge-card@1.2.3, name@1.2.3-rc.alpha and misbehave@1.0.0.wasm",
        "panicked at src/lib.rs:11:46, a@b, @example.org, x @ y.z",
        "DE89 3704 0044 0532 0130 01",
        "1+1, +5 %, +12345, C++ 20",
        "eyJ.eyJ.eyJ and eyJhIjoxfQ.a.b",
        "AKIA, sk_live_, ghp_x and risk_test_of_something",
        "Bearer authentication required; Basic knowledge of Bearer tokens",
        "https://jo@example/x:y and http://host:8080/a@b",
        "/a?id=5&keys=abc&monkey=1 key=order-4711",
        "[redacted] [redacted:email] [redacted: 11 bytes]",
    ] {
        assert_eq!(masked(text), text);
    }
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
