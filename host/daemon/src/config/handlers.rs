//! The sections `[handlers.NAME]`: what each handler may reach and use beyond its job. A handler that is not configured
//! is not known, and one with an empty section reaches nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use leasehold_domain::{
    HandlerName,
    grants::{AttemptLimits, Grants, StoreAccess},
};

use super::{
    outbound,
    reader::{Entry, Section, one_of},
    sandbox::read_limits,
    secrets,
};

/// What one handler may reach and use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandlerConfig {
    /// What it may reach.
    pub grants: Grants,
    /// The files that its secrets come from.
    pub secret_files: Vec<PathBuf>,
    /// What one attempt may use.
    pub limits: AttemptLimits,
    /// Whether a version that is put into the handlers folder goes live at once.
    pub activate_from_folder: bool,
}

/// Reads all handlers. The kinds' section tells which kinds they can be granted to enqueue and to annotate.
pub(super) fn read(
    section: &Section<'_>,
    kinds: &Section<'_>,
    most: &AttemptLimits,
    base: &Path,
) -> BTreeMap<HandlerName, HandlerConfig> {
    let kinds: BTreeSet<String> = kinds.entries().into_iter().map(|entry| entry.name).collect();
    let handler = |entry: Entry<'_>| {
        let name = HandlerName::new(&*entry.name).map_err(|error| entry.error(error.to_string())).ok();
        let section = entry.section();
        let mut secret_files = Vec::new();
        let mut grants = read_grants(&section, &kinds, base, &mut secret_files);
        grants.absent = section.section("secrets").entries().into_iter().map(|entry| entry.name).collect();
        grants.absent.retain(|name| !grants.secrets.contains(name));
        let config = HandlerConfig {
            grants,
            secret_files,
            limits: read_own_limits(&section, most),
            activate_from_folder: section.boolean("activate_from_folder", false),
        };
        section.refuse_unknown();
        Some((name?, config))
    };
    section.entries().into_iter().filter_map(handler).collect()
}

fn read_own_limits(section: &Section<'_>, most: &AttemptLimits) -> AttemptLimits {
    let limits_section = section.section("limits");
    let limits = read_limits(&limits_section, most, most);
    limits_section.refuse_unknown();
    limits
}

fn read_grants(section: &Section<'_>, kinds: &BTreeSet<String>, base: &Path, files: &mut Vec<PathBuf>) -> Grants {
    let mut settings: BTreeMap<String, String> = BTreeMap::new();
    for entry in section.section("settings").entries() {
        settings.extend(entry.text().map(|value| (entry.name, value)));
    }
    let secrets = read_secrets(&section.section("secrets"), &mut settings, base, files);
    let accesses = [("read", StoreAccess::Read), ("read-write", StoreAccess::ReadWrite)];
    let stores = section.section("stores").entries().into_iter();
    Grants {
        absent: BTreeSet::new(),
        outbound: section.elements("outbound").iter().filter_map(outbound::read).collect(),
        settings,
        secrets,
        stores: stores.filter_map(|entry| Some((entry.name.clone(), entry.choice(&accesses)?))).collect(),
        enqueue: section
            .entry("enqueue")
            .map(|entry| entry.elements().iter().filter_map(|kind| read_kind(kind, kinds)).collect()),
        annotate: section.elements("annotate").iter().filter_map(|kind| read_kind(kind, kinds)).collect(),
    }
}

/// Puts the secrets' values among the settings and gives back their names.
fn read_secrets(
    section: &Section<'_>,
    settings: &mut BTreeMap<String, String>,
    base: &Path,
    files: &mut Vec<PathBuf>,
) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for entry in section.entries() {
        let value = secrets::read(&entry, base, files);
        if settings.contains_key(&entry.name) {
            entry.error("has the name of a setting; a handler reads both under one name");
        } else if let Some(value) = value {
            settings.insert(entry.name.clone(), value);
            names.insert(entry.name);
        }
    }
    names
}

fn read_kind(entry: &Entry<'_>, kinds: &BTreeSet<String>) -> Option<String> {
    let name = entry.text()?;
    if !kinds.contains(&name) {
        let allowed = one_of(kinds.iter().map(|kind| format!("{kind:?}")));
        entry.error(format!("there is no kind {name:?}; allowed is {allowed}"));
    }
    Some(name)
}
