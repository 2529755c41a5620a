//! What a handler may reach beyond its job: plain data from the configuration, read by the sandbox.

use std::collections::{BTreeMap, BTreeSet};

/// Everything a handler was granted.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Grants {
    /// Destinations of outbound HTTP.
    pub outbound: Vec<OutboundGrant>,
    /// Settings and secrets, by the name under which the guest reads them.
    pub settings: BTreeMap<String, String>,
    /// The names in `settings` whose values are secrets.
    pub secrets: BTreeSet<String>,
    /// Names of settings and secrets that are configured and have no value at the moment.
    pub absent: BTreeSet<String>,
    /// Key-value stores, by name.
    pub stores: BTreeMap<String, StoreAccess>,
    /// Kinds that the handler may enqueue through the outbox; all kinds when absent.
    pub enqueue: Option<BTreeSet<String>>,
    /// Kinds on whose jobs' records the handler may make notes.
    pub annotate: BTreeSet<String>,
}

impl Grants {
    /// Whether the handler was granted settings at all, be it that none of them has a value now.
    #[must_use]
    pub fn reads_settings(&self) -> bool {
        !self.settings.is_empty() || !self.absent.is_empty()
    }
}

impl std::fmt::Debug for Grants {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Values are left out: a secret must not reach a log through a debug print.
        f.debug_struct("Grants")
            .field("outbound", &self.outbound)
            .field("settings", &self.settings.keys().collect::<Vec<_>>())
            .field("stores", &self.stores)
            .field("enqueue", &self.enqueue)
            .field("annotate", &self.annotate)
            .finish_non_exhaustive()
    }
}

/// One destination of outbound HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboundGrant {
    /// `http` or `https`.
    pub scheme: String,
    /// A host name or address literal; `*.example.org` stands for any subdomain, `*` for any host.
    pub host: String,
    /// The port; the scheme's own when absent in the configuration.
    pub port: u16,
    /// Methods, in upper case.
    pub methods: BTreeSet<String>,
    /// Whether the host may resolve to a private, loopback or link-local address.
    pub private: bool,
    /// Whether methods other than GET, HEAD and OPTIONS may leave the host outside an open step.
    pub outside_step: bool,
}

/// How a handler may use a key-value store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StoreAccess {
    /// Reads alone.
    Read,
    /// Reads and writes.
    ReadWrite,
}

/// Bounds of one attempt, whatever its handler does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptLimits {
    /// Linear memory in all, in bytes.
    pub memory_max_bytes: usize,
    /// Table elements in all.
    pub table_elements_max: usize,
    /// The guest's result, in bytes.
    pub output_max_bytes: usize,
    /// The guest's log, in bytes.
    pub log_max_bytes: usize,
    /// The guest's log, in lines.
    pub log_lines_max: usize,
    /// Calls into the host that keep or send something: requests, stored values, enqueued jobs, steps.
    pub host_calls_max: usize,
    /// The bytes that such calls keep with the attempt.
    pub effects_max_bytes: usize,
    /// The answer to one outbound request, in bytes.
    pub response_max_bytes: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h6_settings_are_granted_also_while_none_of_them_has_a_value() {
        let with_value = Grants { settings: [("url".to_owned(), "x".to_owned())].into(), ..Grants::default() };
        let without_value = Grants { absent: ["url".to_owned()].into(), ..Grants::default() };
        assert!(with_value.reads_settings());
        assert!(without_value.reads_settings());
        assert!(!Grants::default().reads_settings());
    }

    #[test]
    fn d2_a_debug_print_of_grants_names_settings_and_shows_no_value() {
        let settings = [("smtp_password".to_owned(), "hunter2".to_owned())].into();
        let grants = Grants { settings, annotate: ["mail.send".to_owned()].into(), ..Grants::default() };
        let shown = format!("{grants:?}");
        assert!(shown.contains("smtp_password") && shown.contains("mail.send"), "{shown}");
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}
