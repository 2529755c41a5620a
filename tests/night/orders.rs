//! What is enqueued that night: orders that older clients send without a currency, and payloads as unpleasant as they come.

use serde_json::json;

/// Orders that the broken version dies of and the fix can handle.
pub const ORDERS: usize = 490;
/// Payloads that no version can read.
pub const HOSTILE: usize = 10;

/// A card's number that passes its check, as personal data does.
pub const CARD: &str = "4111111111111111";
/// What must not be seen: parts of the addresses, the card, and what stands in a field of the policy.
pub const PERSONAL: [&str; 3] = ["@customers.example", CARD, "met-her-in-Oslo"];

/// One line for each order.
pub fn orders() -> Vec<String> {
    let order = |number: usize| {
        json!({
            "kind": "charge", "key": format!("order-{number}"),
            "payload": {
                "order": format!("A-{number}"), "amount_cents": 1_999, "card": CARD,
                "email": format!("someone.{number}@customers.example"), "text": "met-her-in-Oslo",
            },
        })
    };
    (0..ORDERS).map(|number| order(number).to_string()).collect()
}

/// Kinds and payloads: a field of the wrong type in each document, and bytes that are no JSON.
pub fn hostile() -> Vec<(&'static str, Vec<u8>)> {
    let personal = format!(r#""card":"{CARD}","email":"x@customers.example","text":"met-her-in-Oslo","order":7"#);
    let deep = format!(r#"{{{personal},"a":{}1{}}}"#, "[".repeat(10_000), "]".repeat(10_000));
    let long = format!(r#"{{{personal},"b":"{}"}}"#, "x".repeat((256 << 10) - personal.len() - 9));
    let documents = [
        format!(r#"{{{personal},"a":"\u0000"}}"#),
        format!(r#"{{{personal},"a":1e400}}"#),
        format!(r#"{{{personal},"a":"\ud800","\udc00":1}}"#),
        format!("{{{personal},{personal}}}"),
        deep,
        long,
        format!("[{{{personal}}}]"),
    ];
    let bytes = [
        b"\xff\xfe x@customers.example \0 4111111111111111 met-her-in-Oslo".to_vec(),
        format!("{{{personal}").into_bytes(),
        vec![0xc3; 1_000],
    ];
    let documents = documents.into_iter().map(|document| ("charge", document.into_bytes()));
    let all: Vec<_> = documents.chain(bytes.into_iter().map(|bytes| ("raw", bytes))).collect();
    assert_eq!(all.len(), HOSTILE);
    all
}
