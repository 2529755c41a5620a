//! Handler versions: stored, checked before they go live, switched while the daemon runs. A version goes live only when
//! its component has been validated, compiled, linked with exactly what its handler was granted, and tried out.

use std::sync::Arc;

use leasehold_domain::{Digest, HandlerName, HandlerState, HandlerVersion};
use leasehold_sandbox::{ComponentError, Prepared};
use leasehold_store::{Activated, PutVersion, Retired, StoreError, StoredVersion, VersionRow};

use crate::{
    artefacts::ArtefactError,
    config::{Config, ConfigErrors},
    daemon::{Daemon, InForce},
    metrics,
};

/// Why a version could not be stored, activated or retired. The version before it stays live.
#[derive(Debug, thiserror::Error)]
pub enum HandlerError {
    /// The component can't be used.
    #[error(transparent)]
    Component(#[from] ComponentError),
    /// The stored component can't be used.
    #[error(transparent)]
    Artefact(#[from] ArtefactError),
    /// Other bytes are stored under this name.
    #[error(
        "{version} is stored with other bytes (digest {stored}); a stored version never changes, so give this one another version"
    )]
    OtherBytes {
        /// The version.
        version: HandlerVersion,
        /// What is stored.
        stored: Digest,
    },
    /// There is no such version.
    #[error("{version} is not stored; push it first")]
    NotStored {
        /// The version.
        version: HandlerVersion,
    },
    /// The handler is not in the configuration.
    #[error("handler {handler} is not configured; add a section [handlers.{handler}] and reload")]
    NotConfigured {
        /// The handler.
        handler: HandlerName,
    },
    /// The component does not say what it is.
    #[error("the component carries no name and version; give both, or build it with the SDK's macro")]
    NoIdentity,
    /// The name or version is not acceptable.
    #[error("{0}")]
    Identity(String),
    /// The queue refused.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl HandlerError {
    /// The stable code of the error.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Component(error) => error.code(),
            Self::Artefact(_) => "component_damaged",
            Self::OtherBytes { .. } => "version_exists_with_other_bytes",
            Self::NotStored { .. } => "version_not_stored",
            Self::NotConfigured { .. } => "handler_not_configured",
            Self::NoIdentity => "component_without_identity",
            Self::Identity(_) => "invalid_handler_version",
            Self::Store(error) => error.code(),
        }
    }
}

/// A version that was pushed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pushed {
    /// Its name and version.
    pub version: HandlerVersion,
    /// Its component.
    pub digest: Digest,
    /// Whether it was stored before with the same bytes.
    pub same: bool,
}

/// Why a changed configuration was not taken over. The one before it stays in force.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// The file has errors.
    #[error("{0}")]
    Config(#[from] ConfigErrors),
    /// Something that only a start can change.
    #[error("{what} can't change while the daemon runs; restart it to take the change over")]
    NeedsRestart {
        /// The keys.
        what: String,
    },
    /// A live version could not run under the changed grants.
    #[error("{version} is live and can't run under the changed configuration: {error}")]
    Version {
        /// The version.
        version: HandlerVersion,
        /// Why.
        error: Box<HandlerError>,
    },
    /// The queue refused.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl ReloadError {
    /// The stable code of the error.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Config(_) => "config_invalid",
            Self::NeedsRestart { .. } => "needs_restart",
            Self::Version { error, .. } => error.code(),
            Self::Store(error) => error.code(),
        }
    }
}

impl Daemon {
    /// Stores a component as a version, staged. Name and version come from the component where they are not given.
    pub async fn push_handler(
        &self,
        bytes: &[u8],
        name: Option<&str>,
        version: Option<&str>,
        actor: &str,
    ) -> Result<Pushed, HandlerError> {
        let inspection = self.sandbox.inspect(bytes)?;
        let name = name.map(str::to_owned).or(inspection.name).ok_or(HandlerError::NoIdentity)?;
        let version = version.map(str::to_owned).or(inspection.version).ok_or(HandlerError::NoIdentity)?;
        let version =
            HandlerVersion::new(&name, &version).map_err(|error| HandlerError::Identity(error.to_string()))?;
        let digest = Digest::of(bytes);
        if let Some(stored) = self.store.version(&version).await?.filter(|stored| stored.digest != digest) {
            return Err(HandlerError::OtherBytes { version, stored: stored.digest });
        }
        // The file is durable before the row names it: a crash in between leaves a file that nothing names.
        self.artefacts.put(bytes)?;
        let row = StoredVersion { version: version.clone(), digest, size_bytes: bytes.len() as u64 };
        match self.store.put_version(row, actor, self.now_ms()).await? {
            PutVersion::OtherBytes { stored } => Err(HandlerError::OtherBytes { version, stored }),
            put => {
                self.serve_repaired(digest).await?;
                Ok(Pushed { version, digest, same: put == PutVersion::Same })
            }
        }
    }

    /// A component that was missing or damaged is intact once its bytes were pushed again; the live versions that it is
    /// of serve their jobs from then on.
    async fn serve_repaired(&self, digest: Digest) -> Result<(), HandlerError> {
        let _one_at_a_time = self.changing_handlers.lock().await;
        if !self.in_force().damaged.contains(&digest) {
            return Ok(());
        }
        self.mark_intact(digest);
        let versions = self.store.versions().await?;
        for row in versions.iter().filter(|row| takes_attempts(row) && row.digest == digest) {
            let prepared = self.prepare(&self.config(), &row.version.name, digest).await?;
            self.add_prepared(row, prepared);
            tracing::info!(version = %row.version, "a damaged handler version was put right and runs again");
        }
        Ok(self.refresh_handlers().await?)
    }

    /// Makes a stored version current, once its component has been checked. Answers the versions that drain.
    pub async fn activate_handler(
        &self,
        version: &HandlerVersion,
        keep_live: bool,
        actor: &str,
    ) -> Result<Vec<HandlerVersion>, HandlerError> {
        let _one_at_a_time = self.changing_handlers.lock().await;
        let not_stored = || HandlerError::NotStored { version: version.clone() };
        let row = self.store.version(version).await?.ok_or_else(not_stored)?;
        let config = self.config();
        let prepared = self.prepare(&config, &row.version.name, row.digest).await.inspect_err(|error| {
            tracing::error!(%version, code = error.code(), %error, "a handler version can't go live");
            self.note_damage(row.digest, error);
        })?;
        self.mark_intact(row.digest);
        self.add_prepared(&row, prepared);
        let activated = self.store.activate_version(version, keep_live, actor, self.now_ms()).await?;
        let Activated::Current { drained } = activated else { return Err(not_stored()) };
        self.refresh_handlers().await?;
        tracing::info!(%version, drained = drained.len(), "a handler version went live");
        Ok(drained)
    }

    /// Lets a version take no new attempts.
    pub async fn retire_handler(&self, version: &HandlerVersion, actor: &str) -> Result<HandlerState, HandlerError> {
        let _one_at_a_time = self.changing_handlers.lock().await;
        match self.store.retire_version(version, actor, self.now_ms()).await? {
            Retired::NotStored => Err(HandlerError::NotStored { version: version.clone() }),
            Retired::Now(state) => {
                self.refresh_handlers().await?;
                Ok(state)
            }
        }
    }

    /// Reads the configuration's file again and takes it over whole, or not at all.
    pub async fn reload(&self, actor: &str) -> Result<(), ReloadError> {
        let _one_at_a_time = self.changing_handlers.lock().await;
        let before = self.in_force();
        let config = Config::load(&before.config.path)?;
        refuse_what_needs_a_restart(&before.config, &config)?;
        let versions = self.store.versions().await?;
        let mut in_force = InForce {
            config: Arc::new(config),
            prepared: std::collections::HashMap::new(),
            servable: Vec::new(),
            damaged: before.damaged.clone(),
            paused: before.paused.clone(),
            fingerprints: before.fingerprints.clone(),
        };
        for row in versions.iter().filter(|row| takes_attempts(row)) {
            if !in_force.config.handlers.contains_key(&row.version.name) || before.damaged.contains(&row.digest) {
                continue;
            }
            let prepared = self
                .prepare(&in_force.config, &row.version.name, row.digest)
                .await
                .map_err(|error| ReloadError::Version { version: row.version.clone(), error: Box::new(error) })?;
            in_force.prepared.insert((row.version.name.clone(), row.digest), prepared);
        }
        in_force.servable = servable(&versions, &in_force);
        self.store
            .record_act(
                actor,
                "config.reload",
                &before.config.path.display().to_string(),
                serde_json::json!({}),
                self.now_ms(),
            )
            .await?;
        self.put_in_force(in_force);
        if let Err(error) = self.store.let_go_held_lanes().await {
            // The configuration is in force all the same; held lanes go on when one of their jobs ends.
            tracing::error!(code = error.code(), %error, "lanes that were held back could not be let go");
        }
        self.claimable.notify_one();
        Ok(())
    }

    /// Makes the live versions ready at a start. One that can't be is reported and takes no attempts.
    pub(crate) async fn prepare_live_handlers(&self) -> Result<(), StoreError> {
        for row in self.store.versions().await?.iter().filter(|row| takes_attempts(row)) {
            match self.prepare(&self.config(), &row.version.name, row.digest).await {
                Ok(prepared) => self.add_prepared(row, prepared),
                Err(error) => {
                    tracing::error!(version = %row.version, code = error.code(), %error, "a live handler version can't run; its jobs wait");
                    self.note_damage(row.digest, &error);
                }
            }
        }
        self.refresh_handlers().await
    }

    /// The ready component of a version. One that went live a moment ago may have to be made ready first.
    pub(crate) async fn prepared(
        &self,
        in_force: &InForce,
        handler: &HandlerName,
        digest: Digest,
    ) -> Result<Prepared, HandlerError> {
        match in_force.prepared.get(&(handler.clone(), digest)) {
            Some(prepared) => Ok(prepared.clone()),
            None => self.prepare(&in_force.config, handler, digest).await,
        }
    }

    async fn prepare(&self, config: &Config, handler: &HandlerName, digest: Digest) -> Result<Prepared, HandlerError> {
        let granted =
            config.handlers.get(handler).ok_or_else(|| HandlerError::NotConfigured { handler: handler.clone() })?;
        let bytes = self.artefacts.get(digest)?;
        Ok(self.sandbox.prepare(digest, &bytes, &granted.grants, &granted.limits).await?)
    }

    fn add_prepared(&self, row: &VersionRow, prepared: Prepared) {
        let mut in_force = InForce::clone(&self.in_force());
        in_force.prepared.insert((row.version.name.clone(), row.digest), prepared);
        self.put_in_force(in_force);
    }

    /// Remembers that a version's stored component is missing or damaged, if that is what the error says.
    fn note_damage(&self, digest: Digest, error: &HandlerError) {
        let mut in_force = InForce::clone(&self.in_force());
        if matches!(error, HandlerError::Artefact(_)) && !in_force.damaged.contains(&digest) {
            in_force.damaged.push(digest);
            self.put_in_force(in_force);
        }
    }

    fn mark_intact(&self, digest: Digest) {
        let mut in_force = InForce::clone(&self.in_force());
        in_force.damaged.retain(|damaged| *damaged != digest);
        self.put_in_force(in_force);
    }

    /// Takes over which versions are current, and lets go of the components of versions that take no attempts.
    async fn refresh_handlers(&self) -> Result<(), StoreError> {
        let versions = self.store.versions().await?;
        let mut in_force = InForce::clone(&self.in_force());
        in_force.prepared.retain(|(name, digest), _| {
            versions.iter().any(|row| takes_attempts(row) && row.version.name == *name && row.digest == *digest)
        });
        in_force.servable = servable(&versions, &in_force);
        self.put_in_force(in_force);
        for row in &versions {
            metrics::version(
                row.version.name.as_str(),
                &row.version.version.to_string(),
                row.state == HandlerState::Live,
            );
        }
        Ok(())
    }
}

fn takes_attempts(row: &VersionRow) -> bool {
    row.state == HandlerState::Live
}

fn servable(versions: &[VersionRow], in_force: &InForce) -> Vec<HandlerName> {
    let ready = |row: &&VersionRow| in_force.prepared.contains_key(&(row.version.name.clone(), row.digest));
    versions.iter().filter(|row| row.current).filter(ready).map(|row| row.version.name.clone()).collect()
}

fn refuse_what_needs_a_restart(before: &Config, after: &Config) -> Result<(), ReloadError> {
    let mut changed = Vec::new();
    if before.daemon != after.daemon {
        changed.push("[daemon]");
    }
    if before.sandbox.slots != after.sandbox.slots
        || before.sandbox.stack_max_bytes != after.sandbox.stack_max_bytes
        || before.sandbox.component_max_bytes != after.sandbox.component_max_bytes
        || before.sandbox.limits.memory_max_bytes != after.sandbox.limits.memory_max_bytes
    {
        changed.push("slots, stack_max, component_max and memory_max of [sandbox]");
    }
    if before.queue.durability != after.queue.durability
        || before.queue.wal_autocheckpoint_pages != after.queue.wal_autocheckpoint_pages
    {
        changed.push("durability and wal_autocheckpoint_pages of [queue]");
    }
    if before.outboxes != after.outboxes {
        changed.push("[outbox]");
    }
    if changed.is_empty() { Ok(()) } else { Err(ReloadError::NeedsRestart { what: changed.join(", ") }) }
}
