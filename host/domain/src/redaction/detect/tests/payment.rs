//! What is a card or an account number, and where it begins and ends.

use super::*;

#[test]
fn d2_a_card_is_known_by_its_issuer_its_length_and_its_check_digit() {
    for card in [
        "340123456789014",
        "370123456789017",
        "30123456789019",
        "3067890123456789014",
        "36123456789013",
        "38123456789011",
        "39123456789010",
        "3590123456789015",
        "3567890123456789013",
        "4123456789011",
        "4890123456789010",
        "4567890123456789012",
        "5023456789012",
        "5067890123456789012",
        "5190123456789014",
        "5590123456789010",
        "5623456789019",
        "6123456789019",
        "6567890123456789010",
    ] {
        assert_shown(&[(card, "[redacted:card]"), (&format!("of ({card})"), "of ([redacted:card])")]);
        let (front, last) = card.split_at(card.len() - 1);
        let other = (last.parse::<u32>().unwrap() + 1) % 10;
        assert_readable(&[&format!("{front}{other}")]);
    }
    // Their check digits are right, and no issuer has numbers that begin so or are that long.
    assert_readable(&[
        "34123456789015",
        "3490123456789016",
        "37123456789012",
        "3790123456789013",
        "3023456789014",
        "3623456789011",
        "3923456868207",
        "350123456789011",
        "310123456789010",
        "3290123456789018",
        "3390123456789017",
        "40123456789017",
        "490123456789012",
        "47890123456789019",
        "467890123456789019",
        "510123456789018",
        "51890123456789011",
        "550123456789019",
        "55890123456789012",
        "623456789014",
        "7890123456789013",
        "2890123456789014",
        // The check digit of an article is right as well.
        "4000000000006",
        "4000000006664",
    ]);
}

#[test]
fn d2_a_card_is_whole_or_in_groups_and_no_part_of_something_longer() {
    assert_shown(&[
        ("3782 822463 10005", "[redacted:card]"),
        ("411 111 111 111 1111", "[redacted:card]"),
        ("4111 11111 1111111", "[redacted:card]"),
        ("4111 1111-1111 1111", "[redacted:card]"),
        ("4111 1111 1111 1111 123", "[redacted:card] 123"),
        ("4111 1111 1111 1111 1", "[redacted:card] 1"),
        ("4111 1111 1111 1111 4111 1111 1111 1111", "[redacted:card] [redacted:card]"),
        ("4111111111111111 4111", "[redacted:card] 4111"),
        ("4111111111111111-", "[redacted:card]-"),
        (".4111111111111111", ".[redacted:card]"),
        ("v.4111111111111111", "v.[redacted:card]"),
        ("0,4111111111111111", "0,[redacted:card]"),
        ("x4111111111111111f, f4111111111111111x", "x[redacted:card]f, f[redacted:card]x"),
        ("abc 4111111111111111 def", "abc [redacted:card] def"),
    ]);
    assert_readable(&[
        "41111111 11111111",
        "41 1111 1111 1111 11",
        "4111  1111 1111 1111",
        "4111.1111.1111.1111",
        "0.4111111111111111",
        "f4111111111111111",
        "4111111111111111f",
    ]);
    let long_word = format!("4111111111111111{}", "f".repeat(112));
    assert_readable(&[&long_word]);
}

#[test]
fn d2_an_account_number_is_whole_or_in_groups_of_four_and_stands_by_itself() {
    assert_shown(&[
        ("(DE89370400440532013000)", "([redacted:iban])"),
        ("DE89 3704 0044 0532 0130 00", "[redacted:iban]"),
        ("DE89 37040044 05320130 00.", "[redacted:iban]."),
        ("an NO9386011117947-", "an [redacted:iban]-"),
        ("_GB82WEST12345698765432", "_[redacted:iban]"),
        ("GB82WEST12345698765432 NO9386011117947", "[redacted:iban] [redacted:iban]"),
    ]);
    assert_readable(&[
        "XDE89370400440532013000",
        "DE89370400440532013000X",
        "DE893704004405320130001",
        "DE89  3704 0044 0532 0130 00",
        "DE8 9370 4004 4053 2013 000",
        "DE89-3704-0044-0532-0130-00",
        "DE88370400440532013000",
        "D389370400440532013000",
        "XX89370400440532013000",
        "DE8937040044053201300",
        "DE89 ",
        "DE8",
    ]);
}
