//! Dependencies point one way. This reads what cargo knows and fails on any other arrow.

use std::{collections::BTreeSet, process::Command};

use serde_json::Value;

/// Every arrow between the project's own crates that is allowed, development dependencies included.
const ALLOWED: [(&str, &str); 8] = [
    ("leasehold", "leasehold-api"),
    ("leasehold", "leasehold-domain"),
    ("leasehold", "leasehold-sandbox"),
    ("leasehold", "leasehold-store"),
    ("leasehold-api", "leasehold-domain"),
    ("leasehold-sandbox", "leasehold-domain"),
    ("leasehold-store", "leasehold-domain"),
    ("leasehold-guest", "leasehold-guest-macros"),
];

/// Crates that only one of ours may know.
const KEPT_APART: [(&str, &str); 4] = [
    ("rusqlite", "leasehold-store"),
    ("wasmtime", "leasehold-sandbox"),
    ("wasmtime-wasi", "leasehold-sandbox"),
    ("wasmtime-wasi-http", "leasehold-sandbox"),
];

fn packages() -> Vec<Value> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1", "--manifest-path"])
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))
        .output()
        .unwrap();
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

fn dependencies(package: &Value) -> impl Iterator<Item = (&str, bool)> {
    let list = package["dependencies"].as_array().unwrap();
    list.iter().map(|dependency| (dependency["name"].as_str().unwrap(), dependency["kind"] == "dev"))
}

#[test]
fn crates_of_the_host_depend_one_way() {
    let packages = packages();
    let host: BTreeSet<_> = packages
        .iter()
        .map(|package| package["name"].as_str().unwrap())
        .filter(|name| name.starts_with("leasehold"))
        .collect();
    assert!(host.len() >= 7, "{host:?}");
    for package in &packages {
        let name = package["name"].as_str().unwrap();
        for (dependency, _) in dependencies(package).filter(|(dependency, _)| host.contains(dependency)) {
            let is_guest = !host.contains(name) && dependency == "leasehold-guest";
            let is_own = name == dependency;
            assert!(is_guest || is_own || ALLOWED.contains(&(name, dependency)), "{name} depends on {dependency}");
        }
    }
}

#[test]
fn only_the_store_knows_sqlite_and_only_the_sandbox_knows_wasmtime() {
    for package in packages() {
        let name = package["name"].as_str().unwrap();
        for (dependency, _) in dependencies(&package).filter(|(_, is_for_tests)| !is_for_tests) {
            if let Some((_, owner)) = KEPT_APART.iter().find(|(kept, _)| *kept == dependency) {
                assert_eq!(name, *owner, "{name} depends on {dependency}");
            }
        }
    }
}
