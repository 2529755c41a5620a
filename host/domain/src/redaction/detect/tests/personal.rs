//! What is an address or a phone number, and where it begins and ends.

use super::*;

#[test]
fn d2_an_address_is_masked_from_its_first_to_its_last_letter() {
    assert_shown(&[
        ("_jo@example.org", "[redacted:email]"),
        ("--jo@example.org", "--[redacted:email]"),
        ("jö.é@example.org,é@example.org", "[redacted:email],[redacted:email]"),
        ("%80jo@example.org", "[redacted:email]"),
        ("jo@example.org.-. and", "[redacted:email].-. and"),
        ("jo@3com.example, jo@1.2.example", "[redacted:email], [redacted:email]"),
        ("jo@b.de", "[redacted:email]"),
        ("jo@пример.рф", "[redacted:email]"),
        ("jo@example.xn--p1ai", "[redacted:email]"),
        ("jo@example.org.TXT", "[redacted:email].TXT"),
        ("jo@example.org, al@example.net", "[redacted:email], [redacted:email]"),
    ]);
    assert_readable(&[
        "-@example.org",
        "jo@localhost",
        "jo@b.c",
        "jo@example..org",
        "jo@.org",
        "jo@example.o1",
        "jo@xn--p1ai",
        "jo@1.2.3.example",
        "jo@@",
        "jo@",
    ]);
}

#[test]
fn d2_a_phone_number_has_so_many_digits_and_stands_by_itself() {
    assert_shown(&[
        ("+49351123", "[redacted:phone]"),
        ("+123456789012345", "[redacted:phone]"),
        ("004935112345", "[redacted:phone]"),
        (" 004935112345", " [redacted:phone]"),
        ("x 0049 351 1234567", "x [redacted:phone]"),
        ("+ 49 351 1234567", "[redacted:phone]"),
        ("+(49)3511234567", "[redacted:phone]"),
        ("+49) 351/123.4567", "[redacted:phone]"),
        ("+49 351 1234567- x", "[redacted:phone]- x"),
        ("+49 351 1234567  12", "[redacted:phone]"),
        ("+49 351 1234567   12", "[redacted:phone]   12"),
        // What goes on beyond fifteen digits is another number.
        ("+49 351 1234567 1234567", "[redacted:phone] 1234567"),
        ("+49 351 123456 1234", "[redacted:phone]"),
        ("+49.351123456", "[redacted:phone]"),
        ("+49 351 1234567,00", "[redacted:phone],00"),
        ("+12.345.678,0", "[redacted:phone],0"),
        ("+12.345.678,000", "[redacted:phone],000"),
        ("+12.345.678 00", "[redacted:phone]"),
        ("+49351123,+49351124", "[redacted:phone],[redacted:phone]"),
        ("0049351123456;0049351123457", "[redacted:phone];[redacted:phone]"),
    ]);
    assert_readable(&[
        "+4935112",
        "+1234567890123456",
        "00493511234",
        "+0493511234567",
        "+",
        "+(",
        "+((49351123456",
        "+  49351123456",
        "a+49351123456",
        "+49351123456a",
        "+49351123456-a",
        "+49.35112345",
        "+12.345.678,00",
        "1 004935112345",
        "x004935112345",
        "70049351123456",
        "-004935112345",
        "/004935112345",
        "#004935112345",
        "0049 351 1234567 1234567",
        "010.345.678.901",
    ]);
}
