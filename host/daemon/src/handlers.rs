//! Handler versions: stored, checked before they go live, switched while the daemon runs. A version goes live only when
//! its component has been validated, compiled, linked with exactly what its handler was granted, and tried out.

use std::sync::Arc;

use bytes::Bytes;
use leasehold_domain::{Digest, HandlerName, HandlerState, HandlerVersion};
use leasehold_sandbox::{ComponentError, Inspection, Prepared};
use leasehold_store::{Activated, PutVersion, Retired, StoreError, StoredVersion, VersionRow};

use crate::{
    alerts::{Alert, Met},
    artefacts::ArtefactError,
    blocking::off_thread,
    config::{Config, ConfigErrors},
    daemon::{Daemon, InForce},
    metrics,
    open_files::warn_of_open_files,
    panics,
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
        bytes: Bytes,
        name: Option<&str>,
        version: Option<&str>,
        actor: &str,
    ) -> Result<Pushed, HandlerError> {
        tracing::info!(bytes = bytes.len(), "a component came in; it is checked and stored");
        let (inspection, digest) = self.inspect(bytes.clone()).await?;
        let name = name.map(str::to_owned).or(inspection.name).ok_or(HandlerError::NoIdentity)?;
        let version = version.map(str::to_owned).or(inspection.version).ok_or(HandlerError::NoIdentity)?;
        let version =
            HandlerVersion::new(&name, &version).map_err(|error| HandlerError::Identity(error.to_string()))?;
        if let Some(stored) = self.store.version(&version).await?.filter(|stored| stored.digest != digest) {
            return Err(HandlerError::OtherBytes { version, stored: stored.digest });
        }
        // The file is durable before the row names it: a crash in between leaves a file that nothing names.
        let size_bytes = bytes.len() as u64;
        self.artefacts.put(bytes).await?;
        self.alerts.clear(Alert::ComponentDamaged, &digest.to_string());
        let row = StoredVersion { version: version.clone(), digest, size_bytes };
        match self.store.put_version(row, actor, self.now_ms()).await? {
            PutVersion::OtherBytes { stored } => Err(HandlerError::OtherBytes { version, stored }),
            put => {
                self.serve_repaired(digest).await?;
                Ok(Pushed { version, digest, same: put == PutVersion::Same })
            }
        }
    }

    /// What a component says of itself, and its digest.
    pub(crate) async fn inspect(&self, bytes: Bytes) -> Result<(Inspection, Digest), HandlerError> {
        let sandbox = self.sandbox.clone();
        // The bytes are anybody's: a panic over them is their failure.
        let look =
            move || panics::caught(|| sandbox.inspect(&bytes).map(|inspection| (inspection, Digest::of(&bytes))));
        let failed = || ComponentError::Host { message: "looking at it failed; the daemon's log says more".to_owned() };
        Ok(off_thread(look).await.ok_or_else(failed)??)
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
            self.note_damage(&row, error);
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
        let path = before.config.path.clone();
        // It reads files, those of secrets too, which may lie on a file system that hangs.
        let config = off_thread(move || Config::load(&path)).await?;
        refuse_what_needs_a_restart(&before.config, &config)?;
        let versions = self.store.versions().await?;
        let config = Arc::new(config);
        let mut prepared = std::collections::HashMap::new();
        for row in versions.iter().filter(|row| takes_attempts(row)) {
            if !config.handlers.contains_key(&row.version.name) || before.damaged.contains(&row.digest) {
                continue;
            }
            let ready = self
                .prepare(&config, &row.version.name, row.digest)
                .await
                .inspect_err(|error| self.alert_damage(row, error))
                .map_err(|error| ReloadError::Version { version: row.version.clone(), error: Box::new(error) })?;
            prepared.insert((row.version.name.clone(), row.digest), ready);
        }
        self.store
            .record_act(
                actor,
                "config.reload",
                &before.config.path.display().to_string(),
                serde_json::json!({}),
                self.now_ms(),
            )
            .await?;
        warn_of_open_files(&config);
        // Not between a claim and the start of what it leased: that has taken its permits under the figures before.
        let leasing = self.leasing.lock().await;
        self.change_in_force(|in_force| {
            in_force.config = config;
            in_force.prepared = prepared;
            serve_with(in_force, &versions);
        });
        drop(leasing);
        if let Err(error) = self.store.let_go_held_lanes().await {
            // The configuration is in force all the same; held lanes go on when one of their jobs ends.
            tracing::error!(code = error.code(), %error, "lanes that were held back could not be let go");
        }
        self.claimable.notify_one();
        // Pages may have another way to go.
        self.alerts.due.notify_one();
        Ok(())
    }

    /// Makes the live versions ready at a start. One that can't be is reported and takes no attempts.
    pub(crate) async fn prepare_live_handlers(&self) -> Result<(), StoreError> {
        for row in self.store.versions().await?.iter().filter(|row| takes_attempts(row)) {
            match self.prepare(&self.config(), &row.version.name, row.digest).await {
                Ok(prepared) => self.add_prepared(row, prepared),
                Err(error) => {
                    tracing::error!(version = %row.version, code = error.code(), %error, "a live handler version can't run; its jobs wait");
                    self.note_damage(row, &error);
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
        tracing::info!(%handler, %digest, "a component is made ready");
        let bytes = self.artefacts.get(digest).await?;
        Ok(self.sandbox.prepare(handler, digest, &bytes, &granted.grants, &granted.limits).await?)
    }

    fn add_prepared(&self, row: &VersionRow, prepared: Prepared) {
        self.change_in_force(|in_force| {
            in_force.prepared.insert((row.version.name.clone(), row.digest), prepared);
        });
    }

    /// Remembers that a version's stored component is missing or damaged, if that is what the error says.
    fn note_damage(&self, row: &VersionRow, error: &HandlerError) {
        self.alert_damage(row, error);
        let digest = row.digest;
        if matches!(error, HandlerError::Artefact(_)) && !self.in_force().damaged.contains(&digest) {
            self.change_in_force(|in_force| in_force.damaged.push(digest));
        }
    }

    /// Raises the alert for a stored component that is missing or damaged, if that is what the error says.
    pub(crate) fn alert_damage(&self, row: &VersionRow, error: &HandlerError) {
        if matches!(error, HandlerError::Artefact(_)) {
            let met = Met::new(Alert::ComponentDamaged, error.code(), error.to_string());
            let met = Met { subject: row.version.to_string(), holder: row.digest.to_string(), ..met };
            self.alerts.raise(met, self.now_ms());
        }
    }

    fn mark_intact(&self, digest: Digest) {
        self.alerts.clear(Alert::ComponentDamaged, &digest.to_string());
        self.change_in_force(|in_force| in_force.damaged.retain(|damaged| *damaged != digest));
    }

    /// Takes over which versions are current, and lets go of the components of versions that take no attempts.
    async fn refresh_handlers(&self) -> Result<(), StoreError> {
        let versions = self.store.versions().await?;
        self.change_in_force(|in_force| {
            in_force.prepared.retain(|(name, digest), _| {
                versions.iter().any(|row| takes_attempts(row) && row.version.name == *name && row.digest == *digest)
            });
            serve_with(in_force, &versions);
        });
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

/// Notes which handlers serve jobs, and which only replays, with the components that are ready.
fn serve_with(in_force: &mut InForce, versions: &[VersionRow]) {
    let is_ready = |row: &&VersionRow| in_force.prepared.contains_key(&(row.version.name.clone(), row.digest));
    let ready: Vec<_> = versions.iter().filter(|row| takes_attempts(row)).filter(is_ready).collect();
    in_force.servable = ready.iter().filter(|row| row.current).map(|row| row.version.name.clone()).collect();
    in_force.serves_replays = ready.iter().map(|row| row.version.name.clone()).collect();
    in_force.serves_replays.retain(|handler| !in_force.servable.contains(handler));
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
    if before.api != after.api {
        changed.push("[api]");
    }
    if before.outboxes != after.outboxes {
        changed.push("[outbox]");
    }
    if changed.is_empty() { Ok(()) } else { Err(ReloadError::NeedsRestart { what: changed.join(", ") }) }
}
