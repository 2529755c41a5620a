//! Documents for the tests of this module. They are never read outside of them.

use proptest::prelude::*;

/// Documents of a few levels, as `serde_json` writes them.
pub(super) fn json_text() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        any::<bool>().prop_map(|value| value.to_string()),
        any::<i64>().prop_map(|value| value.to_string()),
        any::<String>().prop_map(|value| serde_json::to_string(&value).unwrap()),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let name = prop_oneof![Just("password".to_owned()), Just("PassWord".to_owned()), any::<String>()];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(|items| format!("[{}]", items.join(","))),
            prop::collection::vec((name, inner), 0..4).prop_map(|fields| {
                let field =
                    |(name, value): &(String, String)| format!("{}:{value}", serde_json::to_string(name).unwrap());
                format!("{{{}}}", fields.iter().map(field).collect::<Vec<_>>().join(", "))
            }),
        ]
    })
}
