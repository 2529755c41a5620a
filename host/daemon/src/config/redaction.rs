//! The section `[redaction]`, and what a kind adds to it: which fields are personal data, and whether detectors look for
//! it in others. It never masks anything itself.

use std::collections::BTreeMap;

use leasehold_domain::redaction::{FieldPath, Rules};

use super::reader::{Entry, Section, one_of};

/// Names and paths of fields.
#[derive(Debug, Clone, Default)]
struct Fields {
    names: Vec<String>,
    paths: Vec<FieldPath>,
}

/// What is masked in every kind, and the data classes that kinds refer to.
#[derive(Debug)]
pub(super) struct Redaction {
    common: Fields,
    classes: BTreeMap<String, Fields>,
    detects: bool,
}

impl Redaction {
    pub(super) fn read(section: &Section<'_>) -> Self {
        let common = Fields::read(section);
        let classes = section.section("classes").entries().into_iter().map(|entry| {
            let class = entry.section();
            let fields = Fields::read(&class);
            class.refuse_unknown();
            (entry.name, fields)
        });
        let redaction = Self { common, classes: classes.collect(), detects: section.boolean("detectors", true) };
        section.refuse_unknown();
        redaction
    }

    /// The rules of one kind: the common ones, its own and those of its data classes.
    pub(super) fn rules_of_kind(&self, section: &Section<'_>) -> Rules {
        let mut fields = self.common.clone();
        fields.add(Fields::read(section));
        for class in section.elements("classes") {
            fields.add(self.class(&class).unwrap_or_default());
        }
        section.refuse_unknown();
        self.rules(fields)
    }

    /// The rules that mask every field that any data class names.
    pub(super) fn everything(&self) -> Rules {
        let mut fields = self.common.clone();
        self.classes.values().for_each(|class| fields.add(class.clone()));
        self.rules(fields)
    }

    fn rules(&self, fields: Fields) -> Rules {
        Rules::new(fields.names, fields.paths).with_detectors(self.detects)
    }

    fn class(&self, entry: &Entry<'_>) -> Option<Fields> {
        let name = entry.text()?;
        let fields = self.classes.get(&name).cloned();
        if fields.is_none() {
            let allowed = one_of(self.classes.keys().map(|name| format!("{name:?}")));
            entry.error(format!("there is no data class {name:?} in [redaction.classes]; allowed is {allowed}"));
        }
        fields
    }
}

impl Fields {
    fn read(section: &Section<'_>) -> Self {
        Self {
            names: section.elements("names").iter().filter_map(read_name).collect(),
            paths: section.elements("paths").iter().filter_map(read_path).collect(),
        }
    }

    fn add(&mut self, mut more: Self) {
        self.names.append(&mut more.names);
        self.paths.append(&mut more.paths);
    }
}

fn read_name(entry: &Entry<'_>) -> Option<String> {
    let name = entry.text()?;
    if name.is_empty() || name.starts_with('$') {
        entry.error("is no field's name; a path beginning with $ belongs under paths");
        return None;
    }
    Some(name)
}

fn read_path(entry: &Entry<'_>) -> Option<FieldPath> {
    let parsed = entry.text()?.parse();
    parsed.map_err(|error: leasehold_domain::redaction::PathError| entry.error(error.to_string())).ok()
}
