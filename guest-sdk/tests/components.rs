//! The committed components: that they are the recorded ones, carry their identity, and import what they use and no more.
//! `LEASEHOLD_COMPONENTS_DIR` names another folder of the same layout to look at instead.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};
use wasmparser::{Parser, Payload};

/// What every handler imports: the types of its own export, and the log for its panics.
const BASE: [&str; 2] = ["leasehold:job/types@0.1.0", "wasi:logging/logging@0.1.0-draft"];
/// What outbound HTTP imports.
const HTTP: [&str; 6] = [
    "wasi:clocks/monotonic-clock@0.2.12",
    "wasi:http/outgoing-handler@0.2.12",
    "wasi:http/types@0.2.12",
    "wasi:io/error@0.2.12",
    "wasi:io/poll@0.2.12",
    "wasi:io/streams@0.2.12",
];
const STEPS: &str = "leasehold:job/steps@0.1.0";
const OUTBOX: &str = "leasehold:job/outbox@0.1.0";
const RECORDS: &str = "leasehold:job/records@0.1.0";
const CONFIG: &str = "wasi:config/store@0.2.0-rc.1";
const KEYVALUE: &str = "wasi:keyvalue/store@0.2.0-draft";
const WALL_CLOCK: &str = "wasi:clocks/wall-clock@0.2.12";

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The folder that holds the components, laid out like the repository.
fn components_root() -> PathBuf {
    std::env::var_os("LEASEHOLD_COMPONENTS_DIR").map_or_else(repository, PathBuf::from)
}

/// The recorded components: digest, and path from the root.
fn recorded() -> Vec<(String, String)> {
    let lock = fs::read_to_string(repository().join("guest-sdk/components.lock")).expect("components.lock can be read");
    let lines = lock.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| line.split_once("  ").expect("a digest and a path"))
        .map(|(digest, path)| (digest.into(), path.into()))
        .collect()
}

fn read(path: &str) -> Vec<u8> {
    fs::read(components_root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// What a component imports by instance, itself and not what lies inside it.
fn imports(component: &[u8]) -> BTreeSet<String> {
    let mut imports = BTreeSet::new();
    let mut depth = 0;
    for payload in Parser::new(0).parse_all(component) {
        match payload.expect("a whole component") {
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
            Payload::End(_) => depth -= 1,
            Payload::ComponentImportSection(section) if depth == 0 => {
                for import in section {
                    let name = import.expect("a whole import").name.name;
                    // Types that the export uses are imported by their bare names and need nothing of the host.
                    if name.contains(':') {
                        imports.insert(name.to_owned());
                    }
                }
            }
            _ => {}
        }
    }
    imports
}

/// The custom section that the `handler` attribute embeds; it lies in a core module inside the component.
fn identity(component: &[u8]) -> String {
    let sections = Parser::new(0).parse_all(component).filter_map(|payload| match payload {
        Ok(Payload::CustomSection(section)) if section.name() == "leasehold:handler" => Some(section.data().to_vec()),
        _ => None,
    });
    let [section] = &sections.collect::<Vec<_>>()[..] else { panic!("not one section leasehold:handler") };
    String::from_utf8(section.clone()).expect("JSON is UTF-8")
}

#[test]
fn h1_the_committed_components_are_the_recorded_ones() {
    let recorded = recorded();
    assert!(!recorded.is_empty());
    for (digest, path) in recorded {
        let bytes = fs::read(repository().join(&path)).unwrap_or_else(|error| panic!("{path}: {error}"));
        assert_eq!(hex::encode(Sha256::digest(bytes)), digest, "{path}: run guest-sdk/build-guests");
    }
}

#[test]
fn h8_every_component_carries_its_name_and_version() {
    for (_, path) in recorded() {
        let stem = Path::new(&path).file_stem().and_then(|stem| stem.to_str()).expect("a file name");
        let (name, version) = stem.split_once('@').expect("NAME@VERSION");
        assert_eq!(identity(&read(&path)), format!(r#"{{"name":"{name}","version":"{version}"}}"#), "{path}");
    }
}

#[test]
fn h6_a_component_imports_what_it_uses_and_no_more() {
    for (path, more) in [
        ("plugins/components/email-send@1.0.0.wasm", &[STEPS, CONFIG, KEYVALUE, WALL_CLOCK][..]),
        ("plugins/components/webhook-deliver@1.0.0.wasm", &[STEPS, CONFIG, WALL_CLOCK]),
        ("tests/guests/components/charge-card@1.0.0.wasm", &[STEPS, CONFIG]),
        ("tests/guests/components/charge-card@1.1.0.wasm", &[STEPS, CONFIG]),
        (
            "tests/guests/components/misbehave@1.0.0.wasm",
            &[STEPS, OUTBOX, CONFIG, KEYVALUE, WALL_CLOCK, "wasi:cli/exit@0.2.12"],
        ),
    ] {
        let expected: BTreeSet<_> = BASE.iter().chain(&HTTP).chain(more).map(|&name| name.to_owned()).collect();
        assert_eq!(imports(&read(path)), expected, "{path}");
    }
    let base: BTreeSet<_> = BASE.iter().map(|&name| name.to_owned()).collect();
    assert_eq!(imports(&read("tests/guests/components/bench-parse@1.0.0.wasm")), base);
    for (path, more) in [
        ("plugins/components/email-bounce@1.0.0.wasm", [KEYVALUE, OUTBOX, RECORDS]),
        ("tests/guests/components/annotate@1.0.0.wasm", [STEPS, RECORDS, RECORDS]),
    ] {
        let expected: BTreeSet<_> = base.iter().cloned().chain(more.map(str::to_owned)).collect();
        assert_eq!(imports(&read(path)), expected, "{path}");
    }
}
