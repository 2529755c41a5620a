//! What is a secret for where it stands, and where it begins and ends.

use super::*;

#[test]
fn d2_a_credential_is_masked_where_a_header_gives_it() {
    let [letters, fewer_letters] = [24, 23].map(|length| format!("Bearer {}", "a".repeat(length)));
    let pair = format!("Basic {}", URL_SAFE.encode(b"jo:\xff\xfe\xfd?"));
    assert_shown(&[
        (&letters, "Bearer [redacted:credential]"),
        ("BEARER abcdef12, ", "BEARER [redacted:credential], "),
        ("(Bearer abc.def-1_2~3+4/5==)", "(Bearer [redacted:credential])"),
        (&pair, "Basic [redacted:credential]"),
        ("Proxy-Authorization: Basic x", "Proxy-Authorization: Basic [redacted:credential]"),
        (r#"{\"authorization\": \"Bearer x\"}"#, r#"{\"authorization\": \"Bearer [redacted:credential]\"}"#),
        ("authorization ........ Bearer x", "authorization ........ Bearer [redacted:credential]"),
    ]);
    assert_readable(&[
        &fewer_letters,
        "Bearer abcde12",
        "Bearer abcdefgh",
        "xBearer abcdef12",
        "Basic aGVsbG8=",
        "authorizations: Bearer x",
        "authorization ........... Bearer x",
        "authorization: Bearer ",
        "earer abcdef12",
    ]);
}

#[test]
fn d2_a_password_is_masked_in_the_authority_of_a_url_and_nothing_else_of_it() {
    assert_shown(&[
        ("amqp://u:p@h, amqp://u:q@h", "amqp://u:[redacted:credential]@h, amqp://u:[redacted:credential]@h"),
        ("x://u:p:q@r@h/@", "x://u:[redacted:credential]@h/@"),
        ("<x://:p@h>", "<x://:[redacted:credential]@h>"),
    ]);
    assert_readable(&["x://u:@h", "x://u@h:80", "x://h:80", "x://h/u:p@h", "x://h?u:p@h", "x://h u:p@h", "x:/u:p@h"]);
}

#[test]
fn d2_a_parameter_of_a_url_that_carries_a_secret_is_masked_to_its_end() {
    assert_shown(&[
        ("?token=a&key=b;sig=c", "?token=[redacted:credential]&key=[redacted:credential];sig=[redacted:credential]"),
        ("(/a#ID_TOKEN=a+b/c, d)", "(/a#ID_TOKEN=[redacted:credential], d)"),
        ("?x-amz-security-token=a b", "?x-amz-security-token=[redacted:credential] b"),
        ("?a=?token=b", "?a=?token=[redacted:credential]"),
    ]);
    assert_readable(&["?token=", "token=a", "?a-token=b", "?token_=b", "?token:a", "?tokenx"]);
    let findings: Vec<_> = detect("?token=a?key=b").map(|Finding { range, .. }| (range.start, range.end)).collect();
    assert_eq!(findings, [(7, 14)]);
}

#[test]
fn d2_a_setting_that_carries_a_secret_is_masked_to_its_end() {
    assert_shown(&[
        ("password=hunter2", "password=[redacted:credential]"),
        ("db_password=hunter2;", "db_password=[redacted:credential];"),
        ("pwd:'a b'", "pwd:'[redacted:credential] b'"),
        (r#""passwd":"a""#, r#""passwd":"[redacted:credential]""#),
        (r#"\"client_secret\":  \"a\""#, r#"\"client_secret\":  \"[redacted:credential]\""#),
        (r#"'secret_key'= "a""#, r#"'secret_key'= "[redacted:credential]""#),
        ("password==a", "password=[redacted:credential]"),
    ]);
    assert_readable(&[
        "mypassword=hunter2",
        "9password=hunter2",
        "passwords=hunter2",
        "password = hunter2",
        "password= hunter2",
        "password:hunter2",
        "password:   'hunter2'",
        "password=",
        "=password",
        "password=''",
    ]);
}

#[test]
fn d2_the_secret_part_of_a_webhook_is_masked() {
    assert_shown(&[
        ("https://discord.com/api/webhooks/1/a-b_c?x", "https://discord.com/api/webhooks/[redacted:credential]?x"),
        ("api.telegram.org/bot12:aB/send now", "api.telegram.org/bot[redacted:credential] now"),
    ]);
    assert_readable(&["https://hooks.slack.com/services/ T00", "api.telegram.org/bo"]);
}
