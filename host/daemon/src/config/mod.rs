//! The configuration: one TOML file, read once into validated types. It never starts anything, and a file with an error
//! in it yields nothing but its errors.
//!
//! Each section has a file of its own, which holds its type, its defaults and its checks; `reader` knows TOML and lines.

mod actors;
mod alerts;
mod api;
mod daemon;
mod errors;
mod handlers;
mod kinds;
mod outbound;
mod outbox;
mod queue;
mod reader;
mod redaction;
mod sandbox;
mod secrets;
#[cfg(test)]
mod tests;
pub(crate) mod units;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use leasehold_domain::{
    ErrorClass, HandlerName, Kind, KindPolicy, Treatment, Vocabulary, error_class::UNCLASSIFIED, redaction::Rules,
    token::TokenName,
};
use toml::de::DeTable;

pub use self::{
    actors::{Actor, ActorRule, Caller, Role},
    alerts::{AlertsConfig, Channel, Webhook},
    api::ApiConfig,
    daemon::{DaemonConfig, LogFormat},
    errors::{ConfigError, ConfigErrors},
    handlers::HandlerConfig,
    outbox::OutboxConfig,
    queue::{Durability, QueueConfig},
    sandbox::SandboxSettings,
};
use self::{
    reader::{Findings, Section},
    redaction::Redaction,
};

/// A validated configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The file it was read from.
    pub path: PathBuf,
    /// The daemon's files and manners.
    pub daemon: DaemonConfig,
    /// The queue's bounds and retention.
    pub queue: QueueConfig,
    /// The sandbox's size and the limits of an attempt.
    pub sandbox: SandboxSettings,
    /// When somebody is paged, and how.
    pub alerts: AlertsConfig,
    /// How the API is served beside its Unix socket.
    pub api: ApiConfig,
    /// Who may do what.
    pub actors: Vec<ActorRule>,
    /// What is done about each class of error.
    pub vocabulary: Vocabulary,
    /// What each handler may reach.
    pub handlers: BTreeMap<HandlerName, HandlerConfig>,
    /// Tables of applications that are relayed into the queue.
    pub outboxes: BTreeMap<String, OutboxConfig>,
    /// The rules of each kind.
    pub kinds: BTreeMap<Kind, Arc<KindPolicy>>,
    /// What is masked in each kind.
    redaction: BTreeMap<Kind, Rules>,
    /// What is masked in a kind that is no longer configured.
    redaction_of_others: Rules,
}

impl Config {
    /// Reads and validates a file, and the secrets that it names.
    pub fn load(path: &Path) -> Result<Self, ConfigErrors> {
        let text = std::fs::read_to_string(path).map_err(|error| ConfigErrors::unreadable(path, &error))?;
        Self::parse(&text, path)
    }

    /// Validates a configuration's text, and reads the secrets that it names. Relative paths in it are relative to the
    /// directory of `path`.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ConfigErrors> {
        let findings = Findings::new(text);
        let (table, syntax_errors) = DeTable::parse_recoverable(text);
        for error in &syntax_errors {
            findings.add(&error.span().unwrap_or(0..0), "", format!("is no valid TOML: {}", error.message()));
        }
        if !syntax_errors.is_empty() {
            // What else seems wrong may only follow from what could not be read.
            return Err(ConfigErrors::new(path, findings.into_errors()));
        }
        let config = Self::read(&Section::root(&findings, table.get_ref()), path);
        let errors = findings.into_errors();
        if errors.is_empty() { Ok(config) } else { Err(ConfigErrors::new(path, errors)) }
    }

    fn read(root: &Section<'_>, path: &Path) -> Self {
        let base = path.parent().unwrap_or(Path::new(""));
        let queue = QueueConfig::read(&root.section("queue"));
        let sandbox = SandboxSettings::read(&root.section("sandbox"));
        let redaction = Redaction::read(&root.section("redaction"));
        let (kinds_section, handlers_section) = (root.section("kinds"), root.section("handlers"));
        let handlers = handlers::read(&handlers_section, &kinds_section, &sandbox.limits, base);
        let kinds = kinds::read(&kinds_section, &handlers_section, &redaction);
        let config = Self {
            path: path.to_owned(),
            daemon: DaemonConfig::read(&root.section("daemon"), base),
            alerts: alerts::read(&root.section("alerts"), base),
            api: ApiConfig::read(&root.section("api")),
            actors: actors::read(&root.section("actors")),
            vocabulary: read_vocabulary(&root.section("errors")),
            redaction_of_others: redaction.everything(),
            redaction: kinds.iter().map(|(kind, read)| (kind.clone(), read.rules.clone())).collect(),
            kinds: kinds.into_iter().map(|(kind, read)| (kind, Arc::new(read.policy))).collect(),
            outboxes: outbox::read(&root.section("outbox"), base),
            queue,
            sandbox,
            handlers,
        };
        config.sandbox.check_handlers(&root.section("sandbox"), &config.handlers);
        config.check_key_retention(root);
        config.check_ended_retention(root);
        root.refuse_unknown();
        config
    }

    /// What is masked in a kind. A kind that is not configured, any more or yet, has every data class masked.
    pub fn redaction_rules(&self, kind: &Kind) -> &Rules {
        self.redaction.get(kind).unwrap_or(&self.redaction_of_others)
    }

    /// Whether what looks like personal data or a secret is masked where no policy names it.
    pub fn detects(&self) -> bool {
        self.redaction_of_others.detects()
    }

    /// Who a user of this machine is to the daemon, if anybody.
    pub fn actor_for_uid(&self, uid: u32) -> Option<Actor> {
        self.actor_for(&Caller::Uid(uid))
    }

    /// Who a token's bearer is to the daemon, where the configuration says so.
    pub fn actor_for_token(&self, name: &TokenName) -> Option<Actor> {
        self.actor_for(&Caller::Token(name.clone()))
    }

    fn actor_for(&self, caller: &Caller) -> Option<Actor> {
        self.actors.iter().find(|rule| rule.caller == *caller).map(|rule| rule.actor.clone())
    }

    /// A job is forgotten whole when its key is, so it can't be kept longer.
    fn check_ended_retention(&self, root: &Section<'_>) {
        let (ended_ms, key_ms) = (self.queue.ended_retention_ms, self.queue.key_retention_ms);
        if ended_ms > key_ms {
            let message = format!(
                "{} is above key_retention, {}; a job is forgotten with its key, so raise key_retention or lower this",
                units::duration_text(ended_ms),
                units::duration_text(key_ms)
            );
            root.section("queue").error("ended_retention", message);
        }
    }

    /// A key that expired before the last retry of its job would let a second job in under the same key.
    fn check_key_retention(&self, root: &Section<'_>) {
        let retention_ms = self.queue.key_retention_ms;
        for (kind, policy) in &self.kinds {
            let horizon = leasehold_domain::retention::retry_horizon(policy);
            if retention_ms <= horizon.total_ms {
                let message = format!(
                    "{} = {} s is not above the retry horizon of kind {kind}: {}; raise key_retention or lower the kind's figures",
                    units::duration_text(retention_ms),
                    retention_ms / 1000,
                    horizon.arithmetic
                );
                root.section("queue").error("key_retention", message);
            }
        }
    }
}

/// The section `[errors]`: what is done about each class.
fn read_vocabulary(section: &Section<'_>) -> Vocabulary {
    let treatments = [
        ("retry", Treatment::Retry),
        ("rate-limited", Treatment::RateLimited),
        ("rejected", Treatment::Rejected),
        ("poison", Treatment::Poison),
    ];
    Vocabulary::new(section.entries().into_iter().filter_map(|entry| {
        let class = ErrorClass::new(&entry.name);
        if class.as_str() != entry.name || entry.name == UNCLASSIFIED {
            entry.error("is no class that can be mapped; a class is 1 to 64 of a-z, 0-9, '.', '_' and '-'");
        }
        Some((class, entry.choice(&treatments)?))
    }))
}
