//! What is a secret by its own form, and where it begins and ends.

use super::*;

#[test]
fn d2_a_web_token_has_three_to_five_parts_and_a_header_that_names_its_algorithm() {
    let header = "eyJhbGciOiJIUzI1NiJ9";
    assert_shown(&[
        (&format!("({header}.b.c)"), "([redacted:jwt])"),
        (&format!("{header}.b.c.d.e"), "[redacted:jwt]"),
        (&format!("{header}.b.c.d.e.f"), "[redacted:jwt].f"),
        (&format!("{header}.."), "[redacted:jwt]"),
    ]);
    let without_algorithm = URL_SAFE_NO_PAD.encode(r#"{"typ":"JWT"}"#);
    let no_json = URL_SAFE_NO_PAD.encode(r#"{"alg":"none""#);
    assert_readable(&[
        &format!("{header}.b"),
        &format!("x{header}.b.c"),
        &format!("-{header}.b.c"),
        &format!("{without_algorithm}.b.c"),
        &format!("{no_json}.b.c"),
    ]);
    let of_length = |bytes: usize| {
        let header = format!(r#"{{"alg":"{}"}}"#, "x".repeat(bytes - 10));
        format!("{}.b.c", URL_SAFE_NO_PAD.encode(header))
    };
    assert_eq!(detect(&of_length(6_144)).count(), 1);
    assert_eq!(detect(&of_length(6_145)).count(), 0);
}

#[test]
fn d2_each_block_of_pem_is_masked_and_what_stands_between_them_stays() {
    let block = "-----BEGIN A-----\nMII\n-----END A-----";
    assert_shown(&[
        (&format!("{block}\nand\n{block}."), "[redacted:pem]\nand\n[redacted:pem]."),
        (&format!("{block}{block}"), "[redacted:pem]"),
        (&format!("a -----END A----- b {block} c"), "a -----END A----- b [redacted:pem] c"),
        ("a -----BEGIN A-----\nMII-----END A---", "a [redacted:pem]"),
    ]);
    assert_eq!(detect(&format!("{block}{block}")).count(), 2);
    assert_eq!(detect("-----BEGIN A-----\n-----BEGIN B-----\n-----END B-----").count(), 1);
}

#[test]
fn d2_a_key_of_a_service_is_as_long_as_that_service_makes_them() {
    assert_shown(&[
        ("sk_live_abcdefghij", "[redacted:api-key]"),
        ("/sk_live_abcdefghij/", "/[redacted:api-key]/"),
        (&format!("shpat_{}.", "a".repeat(32)), "[redacted:api-key]."),
        (&format!("AGE-SECRET-KEY-1{}a", "Q".repeat(40)), "[redacted:api-key]a"),
        (&format!("whsec_{}=, ", "+/aB".repeat(4)), "[redacted:api-key], "),
        ("ya29.a.b.c.d.e.f.g.h.i.j., and", "[redacted:api-key], and"),
        ("ghp_abcdefghijklmnopqrst ghp_abcdefghijklmnopqrst", "[redacted:api-key] [redacted:api-key]"),
    ]);
    assert_readable(&[
        "sk_live_abcdefghi",
        "xsk_live_abcdefghij",
        &format!("shpat_{}", "a".repeat(31)),
        &format!("shpat_{}", "a".repeat(33)),
        "AKIAIOSFODNN7EXAMPLEa",
        "AKIAIOSFODNN7EXAMPL.E",
    ]);
    assert_eq!(detect("ghp_abcdefghijklmnopqrst-ghp_abcdefghijklmnopqrst").count(), 1);
}
