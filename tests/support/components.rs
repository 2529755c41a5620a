//! The committed components, or those that were rebuilt to be tried in their place.

use std::path::PathBuf;

/// A guest that misbehaves or serves a test, such as `misbehave@1.0.0`.
pub fn guest(name: &str) -> PathBuf {
    component("tests/guests/components", name)
}

/// A handler that people use, such as `email-send@1.0.0`.
pub fn plugin(name: &str) -> PathBuf {
    component("plugins/components", name)
}

fn component(folder: &str, name: &str) -> PathBuf {
    let root = std::env::var_os("LEASEHOLD_COMPONENTS_DIR")
        .map_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")), PathBuf::from);
    let path = root.join(folder).join(format!("{name}.wasm"));
    assert!(path.is_file(), "{} is missing; run guest-sdk/build-guests", path.display());
    path
}
