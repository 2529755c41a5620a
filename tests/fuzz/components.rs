//! H3 and H8: any bytes are a component that runs, or an error that says what they are, in a bounded time.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    sync::OnceLock,
    time::Duration,
};

use leasehold_domain::{
    Digest, HandlerName,
    grants::{AttemptLimits, Grants, OutboundGrant, StoreAccess},
};
use leasehold_sandbox::{Sandbox, SandboxConfig};
use proptest::{collection::vec, prelude::*};

use crate::{
    corpus::{kept, try_kept, try_many},
    mutation::{flipped, mutated},
    support::{guest, server::block_on},
};

const TARGET: &str = "components";
/// Far more than any of these inputs takes, so that only what would never end is over it.
const TIME_MAX: Duration = Duration::from_mins(2);
const TOKENS: [&str; 12] = [
    "\0asm\x0d\0\x01\0",
    "\0asm\x01\0\0\0",
    "\0",
    "\x7f",
    "\x01\x7f",
    "\x04\x08\0asm\x0d\0\x01\0",
    "\x01\x08\0asm\x01\0\0\0",
    "\x00\x12\x11leasehold:handler",
    "{\"name\":\"a\",\"version\":\"1.0.0\"}",
    "\u{7ff}\u{7ff}\u{7ff}",
    "leasehold:job/steps@0.1.0",
    "wasi:http/types@0.2.0",
];

/// Components so small that a change of a byte most likely changes what they say of themselves.
const SMALL: [&str; 3] = [
    r#"(component (import "print" (func)) (export "handle" (func 0)))"#,
    r#"(component (import "wasi:http/types@0.2.0" (instance)) (import "leasehold:job/steps@0.1.0" (instance)))"#,
    r#"(component (core module (memory 1) (func (export "f") (loop br 0))) (core instance (instantiate 0))
        (func (canon lift (core func 0 "f"))) (export "handle" (func 0)))"#,
];

fn sandbox() -> &'static Sandbox {
    static SANDBOX: OnceLock<(tempfile::TempDir, Sandbox)> = OnceLock::new();
    let (_, sandbox) = SANDBOX.get_or_init(|| {
        let directory = tempfile::tempdir().unwrap();
        let config = SandboxConfig {
            slots: 1,
            memory_max_bytes: 16 << 20,
            stack_max_bytes: 512 << 10,
            component_max_bytes: 1 << 20,
            compiled_directory: directory.path().join("compiled"),
        };
        (directory, Sandbox::new(config).unwrap())
    });
    sandbox
}

/// Everything that can be granted, so that no component is refused before it is compiled.
fn everything() -> Grants {
    let outbound = OutboundGrant {
        scheme: "https".into(),
        host: "api.example.org".into(),
        port: 443,
        methods: BTreeSet::new(),
        private: false,
        outside_step: false,
    };
    Grants {
        outbound: vec![outbound],
        settings: BTreeMap::from([("a".into(), "b".into())]),
        stores: BTreeMap::from([("s".into(), StoreAccess::Read)]),
        ..Grants::default()
    }
}

const LIMITS: AttemptLimits = AttemptLimits {
    memory_max_bytes: 16 << 20,
    table_elements_max: 20_000,
    output_max_bytes: 1 << 10,
    log_max_bytes: 1 << 10,
    log_lines_max: 10,
    host_calls_max: 10,
    effects_max_bytes: 1 << 10,
    response_max_bytes: 1 << 10,
};

/// Looks into the bytes and prepares them as a handler.
fn check(bytes: &[u8]) -> Result<(), String> {
    if let Err(error) = sandbox().inspect(bytes) {
        says_what_is_wrong(error.code(), &error.to_string())?;
    }
    let (handler, grants) = (HandlerName::new("fuzzed").unwrap(), everything());
    let prepared = block_on(async {
        let preparing = sandbox().prepare(&handler, Digest::of(bytes), bytes, &grants, &LIMITS);
        tokio::time::timeout(TIME_MAX, preparing).await
    });
    match prepared {
        Err(_) => Err(format!("it was still being prepared after {TIME_MAX:?}")),
        Ok(Ok(_)) => Ok(()),
        // That is what a panic of the compiler or of the trial comes out as.
        Ok(Err(error)) if error.code() == "component_not_prepared" => Err(error.to_string()),
        Ok(Err(error)) => says_what_is_wrong(error.code(), &error.to_string()),
    }
}

fn says_what_is_wrong(code: &str, words: &str) -> Result<(), String> {
    let says = code.starts_with("component_") && !words.is_empty() && words.len() < 64 << 10;
    if says { Ok(()) } else { Err(format!("{code}: {} bytes of words: {words:.200}", words.len())) }
}

/// Guests, components of a few lines, and what is kept.
fn sound() -> Vec<Vec<u8>> {
    let guests = ["bench-parse@1.0.0", "wants-sockets@1.0.0", "loops-in-start@1.0.0"];
    let guests = guests.map(|name| fs::read(guest(name)).unwrap());
    let texts = ["another-world", "wrong-handle"].map(|name| {
        let path =
            Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/guests/wat")).join(format!("{name}.wat"));
        wat::parse_file(path).unwrap()
    });
    let small = SMALL.map(|text| wat::parse_str(text).unwrap());
    guests.into_iter().chain(texts).chain(small).chain(kept(TARGET).into_iter().map(|(_, input)| input)).collect()
}

#[test]
fn h3_kept_bytes_are_a_component_or_an_error() {
    try_kept(TARGET, check);
    for component in sound() {
        check(&component).unwrap();
    }
}

#[test]
fn h3_any_bytes_are_a_component_or_an_error() {
    try_many(TARGET, 64, &vec(any::<u8>(), 0..300), check);
    let after_the_magic = vec(any::<u8>(), 0..300).prop_map(|bytes| [b"\0asm\x0d\0\x01\0", &*bytes].concat());
    try_many(TARGET, 128, &after_the_magic, check);
}

#[test]
fn h3_a_changed_component_is_a_component_or_an_error() {
    try_many(TARGET, 128, &mutated(sound(), &TOKENS, 3), check);
    try_many(TARGET, 128, &flipped(sound()), check);
}
