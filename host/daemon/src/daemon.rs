//! The daemon's shared state: the queue, the sandbox, the configuration in force and the attempts in memory. It starts
//! no task itself; `serve` does.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, PoisonError, RwLock, atomic::AtomicBool},
};

use leasehold_domain::{Digest, HandlerName, JobId, TimestampMs, redaction::FingerprintKey, refusals::Refusals};
use leasehold_sandbox::{Prepared, REHEARSALS_MAX, Sandbox};
use leasehold_store::Store;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::sync::{Notify, Semaphore, broadcast, watch};

use crate::{
    alerts::Alerts,
    artefacts::Artefacts,
    clock::Clock,
    config::Config,
    maintenance::reaper::{InHand, NextReap},
    metrics,
    running::RunningAttempts,
};

/// How many ends of jobs a waiting caller may lag behind before it looks the job up again.
const ENDED_BACKLOG: usize = 4_096;

/// The configuration in force and the components that are ready to run under it.
#[derive(Clone)]
pub(crate) struct InForce {
    pub(crate) config: Arc<Config>,
    /// Ready components. A handler's grants are part of what was prepared.
    pub(crate) prepared: HashMap<(HandlerName, Digest), Prepared>,
    /// Handlers whose current version is ready.
    pub(crate) servable: Vec<HandlerName>,
    /// Handlers whose current version is not, or that have none, while another live one is: it serves the replays that
    /// are bound to it.
    pub(crate) serves_replays: Vec<HandlerName>,
    /// Stored components that are missing or damaged.
    pub(crate) damaged: Vec<Digest>,
    /// Kinds that an operator has paused.
    pub(crate) paused: BTreeSet<String>,
    /// What tells equal masked values from others; absent without the sealing key.
    pub(crate) fingerprints: Option<FingerprintKey>,
}

/// One daemon.
pub struct Daemon {
    pub(crate) store: Store,
    pub(crate) sandbox: Sandbox,
    pub(crate) artefacts: Artefacts,
    pub(crate) clock: Clock,
    pub(crate) running: RunningAttempts,
    pub(crate) alerts: Alerts,
    pub(crate) metrics: PrometheusHandle,
    in_force: RwLock<Arc<InForce>>,
    /// Serialises what changes which versions are live or under which configuration.
    pub(crate) changing_handlers: tokio::sync::Mutex<()>,
    /// Serialises pausing, which waits for no compiler.
    pub(crate) pausing: tokio::sync::Mutex<()>,
    /// Rung when a job may have become claimable.
    pub(crate) claimable: Notify,
    /// Rung when a job was put in that waits for a time of the wall clock.
    pub(crate) scheduled: Notify,
    /// When the reaper has to look next.
    pub(crate) next_reap: NextReap,
    /// Leases whose worker is gone and whose settlements are on their way.
    pub(crate) in_hand: InHand,
    /// Set once the daemon takes no further leases.
    pub(crate) stopping: AtomicBool,
    /// Held while leases are taken, until their attempts are in memory.
    pub(crate) leasing: tokio::sync::Mutex<()>,
    /// The places for rehearsals, beside the slots for jobs.
    pub(crate) rehearsals: Arc<Semaphore>,
    ended: broadcast::Sender<JobId>,
    /// Rung when a member of a bulk replay may have become due.
    pub(crate) bulk_replay_due: Notify,
    pub(crate) bulk_replay_changes: watch::Sender<()>,
    pub(crate) replay_ends: watch::Sender<()>,
    /// The calls that were refused in this minute.
    pub(crate) refusals: Mutex<Refusals>,
}

impl Daemon {
    pub(crate) fn new(
        store: Store,
        sandbox: Sandbox,
        artefacts: Artefacts,
        config: Config,
        metrics: PrometheusHandle,
    ) -> Self {
        let clock = Clock::start(store.persisted_clock_ms());
        let in_force = InForce {
            config: Arc::new(config),
            prepared: HashMap::new(),
            servable: Vec::new(),
            serves_replays: Vec::new(),
            damaged: Vec::new(),
            paused: BTreeSet::new(),
            fingerprints: store.fingerprint_key(),
        };
        Self {
            store,
            sandbox,
            artefacts,
            clock,
            running: RunningAttempts::default(),
            alerts: Alerts::new(),
            metrics,
            in_force: RwLock::new(Arc::new(in_force)),
            changing_handlers: tokio::sync::Mutex::default(),
            pausing: tokio::sync::Mutex::default(),
            claimable: Notify::new(),
            scheduled: Notify::new(),
            next_reap: NextReap::default(),
            in_hand: InHand::default(),
            stopping: AtomicBool::new(false),
            leasing: tokio::sync::Mutex::default(),
            rehearsals: Arc::new(Semaphore::new(REHEARSALS_MAX)),
            ended: broadcast::Sender::new(ENDED_BACKLOG),
            bulk_replay_due: Notify::new(),
            bulk_replay_changes: watch::Sender::default(),
            replay_ends: watch::Sender::default(),
            refusals: Mutex::default(),
        }
    }

    /// The queue.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The configuration in force. Whoever holds it keeps it through a reload.
    pub fn config(&self) -> Arc<Config> {
        Arc::clone(&self.in_force().config)
    }

    /// The queue's time.
    pub fn now_ms(&self) -> TimestampMs {
        self.clock.now_ms()
    }

    /// The measurements in Prometheus' text form, without those that have to be asked of the queue first.
    pub fn rendered_metrics(&self) -> String {
        metrics::damaged(self.store.damage().is_some());
        self.metrics.render()
    }

    /// The ids of jobs as they end. A receiver that lags looks its job up again.
    pub fn ended_jobs(&self) -> broadcast::Receiver<JobId> {
        self.ended.subscribe()
    }

    #[cfg(test)]
    pub(crate) fn waiting_for_ends(&self) -> usize {
        self.ended.receiver_count()
    }

    pub(crate) fn job_ended(&self, job: JobId) {
        // Nobody may be waiting.
        let _ = self.ended.send(job);
    }

    pub(crate) fn in_force(&self) -> Arc<InForce> {
        Arc::clone(&self.in_force.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes what is in force, whole and with nobody else's change in between. Attempts that have begun keep theirs.
    pub(crate) fn change_in_force(&self, change: impl FnOnce(&mut InForce)) {
        let mut in_force = self.in_force.write().unwrap_or_else(PoisonError::into_inner);
        let mut changed = InForce::clone(&in_force);
        change(&mut changed);
        *in_force = Arc::new(changed);
        drop(in_force);
        self.claimable.notify_one();
    }
}
