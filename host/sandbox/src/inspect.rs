//! Looks into a component without compiling it: what it is, what it is called, what it imports and what would have to be
//! granted. It never runs anything.

use std::fmt;

use leasehold_domain::{HandlerName, grants::Grants};
use serde::Deserialize;
use wasmparser::{BinaryReaderError, ComponentTypeRef, Encoding, Parser, Payload, TypeBounds};

use crate::ComponentError;

/// The section that the SDK's macro writes into the core module.
const HANDLER_SECTION: &str = "leasehold:handler";
/// What there is, for messages.
const OFFERED: &str = "leasehold:job 0.1, wasi:clocks, wasi:random, wasi:io, wasi:cli and wasi:filesystem 0.2 (without \
                       files), wasi:logging 0.1.0-draft, and by grant wasi:http 0.2, wasi:config 0.2.0-rc.1, \
                       wasi:keyvalue 0.2.0-draft and leasehold:job/records 0.1";
const MAGIC: &[u8] = b"\0asm";

/// What a component says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inspection {
    /// The handler's name, when the component carries one.
    pub name: Option<String>,
    /// The handler's version, when the component carries one.
    pub version: Option<String>,
    /// Everything that it imports.
    pub imports: Vec<String>,
    /// Everything that it exports.
    pub exports: Vec<String>,
    /// The imports that have to be granted.
    pub needs: Vec<Need>,
    /// The imports that no handler can be granted: a component that has one never goes live.
    pub never: Vec<String>,
}

/// An import that has to be granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Need {
    /// The import.
    pub import: String,
    /// The line of configuration that grants it.
    pub grant: String,
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: add {}", self.import, self.grant)
    }
}

#[derive(Deserialize)]
struct HandlerSection {
    name: Option<String>,
    version: Option<String>,
}

/// How an import is had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    Always,
    Outbound,
    Settings,
    Stores,
    Records,
    Never,
}

/// Reads a component's outline, without compiling or running any of it.
pub fn inspect(bytes: &[u8]) -> Result<Inspection, ComponentError> {
    check_beginning(bytes)?;
    let mut inspection = Inspection::default();
    let mut depth = 0_usize;
    for payload in Parser::new(0).parse_all(bytes) {
        match payload.map_err(|error| malformed(&error, bytes.len()))? {
            Payload::Version { encoding: Encoding::Module, .. } if depth == 0 => {
                return Err(ComponentError::CoreModule);
            }
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
            Payload::End(_) => depth = depth.saturating_sub(1),
            Payload::CustomSection(section) if section.name() == HANDLER_SECTION => {
                read_name(&mut inspection, section.data());
            }
            Payload::ComponentImportSection(section) if depth == 0 => {
                for import in section {
                    let import = import.map_err(|error| malformed(&error, bytes.len()))?;
                    // A type that only renames one of an imported interface asks for nothing.
                    if !matches!(import.ty, ComponentTypeRef::Type(TypeBounds::Eq(_))) {
                        inspection.imports.push(import.name.name.to_owned());
                    }
                }
            }
            Payload::ComponentExportSection(section) if depth == 0 => {
                for export in section {
                    let export = export.map_err(|error| malformed(&error, bytes.len()))?;
                    inspection.exports.push(export.name.name.to_owned());
                }
            }
            _ => {}
        }
    }
    let name = inspection.name.clone().unwrap_or_else(|| "NAME".to_owned());
    inspection.needs = needs(&inspection, &name, &Grants::default());
    inspection.never = inspection.imports.iter().filter(|import| access(import) == Access::Never).cloned().collect();
    Ok(inspection)
}

/// Refuses a component whose imports its handler's grants don't cover, naming every one of them, or that exports no
/// handler. The handler may have another name than the component gives itself.
pub(crate) fn check_grants(
    inspection: &Inspection,
    handler: &HandlerName,
    grants: &Grants,
) -> Result<(), ComponentError> {
    if !inspection.exports.iter().any(|export| export == "handle") {
        let exports = if inspection.exports.is_empty() { "nothing".into() } else { inspection.exports.join(", ") };
        return Err(ComponentError::WrongWorld {
            message: format!("it exports no function `handle`; it exports {exports}"),
        });
    }
    if !inspection.never.is_empty() {
        return Err(ComponentError::UnknownImport { imports: inspection.never.clone(), offered: OFFERED });
    }
    let needs = needs(inspection, handler.as_str(), grants);
    if needs.is_empty() { Ok(()) } else { Err(ComponentError::NotGranted { needs }) }
}

fn needs(inspection: &Inspection, handler: &str, grants: &Grants) -> Vec<Need> {
    let grant_of = |import: &str| match access(import) {
        Access::Outbound if grants.outbound.is_empty() => Some("outbound = [\"GET,POST https://HOST\"]"),
        Access::Settings if !grants.reads_settings() => Some("settings = { KEY = \"value\" }"),
        Access::Records if grants.annotate.is_empty() => Some("annotate = [\"KIND\"]"),
        Access::Stores if grants.stores.is_empty() => Some("stores = { STORE = \"read-write\" }"),
        _ => None,
    };
    inspection
        .imports
        .iter()
        .filter_map(|import| {
            grant_of(import)
                .map(|line| Need { import: import.clone(), grant: format!("`{line}` under [handlers.{handler}]") })
        })
        .collect()
}

fn access(import: &str) -> Access {
    let (path, version) = import.split_once('@').unwrap_or((import, ""));
    let Some((package, interface)) = path.split_once('/') else { return Access::Never };
    match (package, interface) {
        ("leasehold:job", "types" | "steps" | "outbox") if is_series(version, "0.1.") => Access::Always,
        ("leasehold:job", "records") if is_series(version, "0.1.") => Access::Records,
        ("wasi:clocks", "wall-clock" | "monotonic-clock")
        | ("wasi:random", "random" | "insecure" | "insecure-seed")
        | ("wasi:io", "error" | "poll" | "streams")
        | (
            "wasi:cli",
            "environment" | "exit" | "stdin" | "stdout" | "stderr" | "terminal-input" | "terminal-output"
            | "terminal-stdin" | "terminal-stdout" | "terminal-stderr",
        )
        | ("wasi:filesystem", "types" | "preopens")
            if is_series(version, "0.2.") =>
        {
            Access::Always
        }
        ("wasi:logging", "logging") if version == "0.1.0-draft" => Access::Always,
        ("wasi:http", "types" | "outgoing-handler") if is_series(version, "0.2.") => Access::Outbound,
        ("wasi:config", "store") if version == "0.2.0-rc.1" => Access::Settings,
        ("wasi:keyvalue", "store") if version == "0.2.0-draft" => Access::Stores,
        _ => Access::Never,
    }
}

/// A released version of a series within which interfaces only grow.
fn is_series(version: &str, series: &str) -> bool {
    version.strip_prefix(series).is_some_and(|patch| !patch.is_empty() && patch.bytes().all(|b| b.is_ascii_digit()))
}

fn check_beginning(bytes: &[u8]) -> Result<(), ComponentError> {
    if bytes.is_empty() {
        return Err(ComponentError::Empty);
    }
    if bytes.trim_ascii_start().starts_with(b"(") {
        return Err(ComponentError::Text);
    }
    if MAGIC.starts_with(&bytes[..bytes.len().min(MAGIC.len())]) && bytes.len() < 8 {
        return Err(ComponentError::Truncated { bytes: bytes.len() });
    }
    if !bytes.starts_with(MAGIC) {
        return Err(ComponentError::Invalid { message: "it does not begin as a WebAssembly file does".into() });
    }
    Ok(())
}

fn read_name(inspection: &mut Inspection, data: &[u8]) {
    // Linking the same object twice repeats the section's data; the first is as good as any.
    let mut sections = serde_json::Deserializer::from_slice(data).into_iter::<HandlerSection>();
    if let Some(Ok(section)) = sections.next() {
        inspection.name = inspection.name.take().or(section.name);
        inspection.version = inspection.version.take().or(section.version);
    }
}

fn malformed(error: &BinaryReaderError, bytes: usize) -> ComponentError {
    if error.message().contains("unexpected end") {
        return ComponentError::Truncated { bytes };
    }
    ComponentError::Invalid { message: format!("{} (at byte {})", error.message(), error.offset()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h6_every_import_is_free_granted_or_never_to_be_had() {
        let table = [
            ("leasehold:job/steps@0.1.0", Access::Always),
            ("leasehold:job/steps@0.2.0", Access::Never),
            ("leasehold:job/records@0.1.0", Access::Records),
            ("leasehold:job/secrets@0.1.0", Access::Never),
            ("wasi:cli/stderr@0.2.3", Access::Always),
            ("wasi:cli/stderr@0.3.0", Access::Never),
            ("wasi:cli/stderr@0.2.0-rc-2023-11-10", Access::Never),
            ("wasi:filesystem/types@0.2.12", Access::Always),
            ("wasi:http/types@0.2.0", Access::Outbound),
            ("wasi:http/outgoing-handler@0.2.12", Access::Outbound),
            ("wasi:http/incoming-handler@0.2.12", Access::Never),
            ("wasi:config/store@0.2.0-rc.1", Access::Settings),
            ("wasi:keyvalue/store@0.2.0-draft", Access::Stores),
            ("wasi:keyvalue/atomics@0.2.0-draft", Access::Never),
            ("wasi:sockets/tcp@0.2.0", Access::Never),
            ("print", Access::Never),
        ];
        for (import, expected) in table {
            assert_eq!(access(import), expected, "{import}");
        }
    }

    #[test]
    fn h8_a_file_that_is_no_component_is_told_from_one_that_is_not_whole() {
        let code = |bytes: &[u8]| inspect(bytes).map_err(|error| error.code());
        assert_eq!(code(b""), Err("component_empty"));
        assert_eq!(code(b"  (component)"), Err("component_text"));
        assert_eq!(code(b"\0as"), Err("component_truncated"));
        assert_eq!(code(b"\0asm\x0d\0\x01"), Err("component_truncated"));
        assert_eq!(code(b"\0asm\x01\0\0\0"), Err("component_core_module"));
        assert_eq!(code(b"#!/bin/sh\necho"), Err("component_invalid"));
        assert_eq!(code(b"\0asm\x0d\0\x01\0\x07\x50"), Err("component_truncated"));
        assert_eq!(code(b"\0asm\x0d\0\x01\0"), Ok(Inspection::default()));
    }
}
