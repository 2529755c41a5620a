//! Dependencies point one way. This reads what cargo knows and fails on any other arrow.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

/// Every arrow between the project's own crates that is allowed, development dependencies included.
const ALLOWED: [(&str, &str); 10] = [
    // The bench measures the store by itself too.
    ("leasehold-bench", "leasehold-domain"),
    ("leasehold-bench", "leasehold-store"),
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
    // The bench is no part of the product: it measures the two bare.
    for package in packages().into_iter().filter(|package| package["name"] != "leasehold-bench") {
        let name = package["name"].as_str().unwrap();
        for (dependency, _) in dependencies(&package).filter(|(_, is_for_tests)| !is_for_tests) {
            if let Some((_, owner)) = KEPT_APART.iter().find(|(kept, _)| *kept == dependency) {
                assert_eq!(name, *owner, "{name} depends on {dependency}");
            }
        }
    }
}

/// The names of all crash points in the sources of the host.
fn crash_points() -> BTreeSet<String> {
    let sources = files(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")));
    let texts = sources.iter().map(|path| fs::read_to_string(path).unwrap());
    let names = texts.flat_map(|text| {
        let after = text
            .split("fail_point!(")
            .skip(1)
            .filter_map(|rest| rest.trim_start().strip_prefix('"').map(str::to_owned));
        after.filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())).collect::<Vec<_>>()
    });
    names.collect()
}

/// All Rust files below a directory.
fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let is_source = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "rs");
    entries
        .flat_map(|path| if path.is_dir() { files(&path) } else { Vec::from_iter(Some(path).filter(is_source)) })
        .collect()
}

#[test]
fn o6_every_crash_point_has_a_test() {
    let points = crash_points();
    assert!(points.len() >= 10, "{points:?}");
    let mut tests = files(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests")));
    tests.extend(
        files(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../store")))
            .into_iter()
            .filter(|path| path.components().any(|part| part.as_os_str() == "tests") || path.ends_with("tests.rs")),
    );
    let tests: String = tests.iter().map(|path| fs::read_to_string(path).unwrap()).collect();
    let untested: Vec<_> = points.iter().filter(|point| !tests.contains(point.as_str())).collect();
    assert!(untested.is_empty(), "crash points without a test: {untested:?}");
}
