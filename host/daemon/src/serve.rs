//! A daemon from its start to its end: open, recover, serve, drain, close. Each step is done before the next begins;
//! nothing half starts.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use leasehold_domain::StopReason;
use leasehold_sandbox::{Sandbox, SandboxConfig, SandboxError};
use leasehold_store::{Durability, OpenError, Store, StoreError, StoreOptions};
use tokio::{
    net::{TcpListener, UnixListener},
    signal::unix::{Signal, SignalKind, signal},
    sync::watch,
    task::JoinSet,
};

use crate::{
    alerts::{Alert, Met},
    artefacts::{ArtefactError, Artefacts},
    blocking::off_thread,
    config::{self, Config},
    daemon::Daemon,
    dispatcher, http,
    maintenance::{
        bulk_replays, free_pages, handlers_folder, heartbeats, pages, reaper, recovery, relay, retention, wall_clock,
    },
    metrics,
    open_files::warn_of_open_files,
    refused, stop_marker,
};

/// How long a start waits for what the process before left behind.
const RECOVERY_PATIENCE: Duration = Duration::from_secs(10);
/// How long a stop waits for the end of attempts whose guests it has stopped: long enough to write them down, and not for
/// ever when the disk is full.
const RELEASE_PATIENCE: Duration = Duration::from_secs(5);
/// How long a stop waits for requests that are being answered.
const HTTP_PATIENCE: Duration = Duration::from_secs(5);
/// How long a stop at once takes to note which attempts ran.
const NOTE_PATIENCE: Duration = Duration::from_secs(1);
/// The exit status of a daemon that was told to stop at once.
const STOPPED_AT_ONCE: i32 = 130;

/// Why a daemon could not start or go on.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The database can't be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The sandbox can't be started.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// The directory of stored components can't be used.
    #[error(transparent)]
    Artefacts(#[from] ArtefactError),
    /// The queue failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A file, a socket or a signal can't be used.
    #[error("{what}: {error}")]
    Io {
        /// What was tried.
        what: String,
        /// Why it failed.
        error: std::io::Error,
    },
    /// The metrics can't be set up.
    #[error("the metrics can't be set up: {0}")]
    Metrics(String),
}

impl ServeError {
    /// The stable code of the error.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Open(error) => error.code(),
            Self::Sandbox(_) => "sandbox",
            Self::Artefacts(_) => "handlers_directory",
            Self::Store(error) => error.code(),
            Self::Io { .. } => "io",
            Self::Metrics(_) => "metrics",
        }
    }
}

/// Serves until a signal ends it.
pub async fn serve(config: Config) -> Result<(), ServeError> {
    let mut terminate = listen_for(SignalKind::terminate())?;
    let mut interrupt = listen_for(SignalKind::interrupt())?;
    let mut hang_up = listen_for(SignalKind::hangup())?;
    // Listened to so that a write beyond a limit on the size of files fails like one on a full disk, and does not kill.
    let _file_too_large = listen_for(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))?;
    let (daemon, socket, tcp) = start(config).await?;
    let (stop_http, http_stopped) = watch::channel(false);
    let mut servers = JoinSet::new();
    servers.spawn(http::serve(socket, Arc::clone(&daemon), told(http_stopped.clone())));
    if let Some(tcp) = tcp {
        servers.spawn(http::serve(tcp, Arc::clone(&daemon), told(http_stopped)));
    }
    loop {
        tokio::select! {
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            // On a task of its own: a reload may compile, and a signal to stop must not wait for that.
            _ = hang_up.recv() => drop(tokio::spawn(reload(Arc::clone(&daemon)))),
        }
    }
    tracing::info!("stopping: no further leases are taken");
    let stop = async {
        drain(&daemon).await;
        stop_http.send_replace(true);
        let _ = tokio::time::timeout(HTTP_PATIENCE, servers.join_all()).await;
        daemon.record_last_refusals().await;
        let closing = Arc::clone(&daemon);
        let _ = tokio::task::spawn_blocking(move || closing.store.close()).await;
    };
    tokio::select! {
        () = stop => {}
        _ = terminate.recv() => stop_at_once(&daemon).await,
        _ = interrupt.recv() => stop_at_once(&daemon).await,
    }
    let _ = std::fs::remove_file(&daemon.config().daemon.socket);
    tracing::info!("stopped");
    Ok(())
}

/// Resolves when what is watched has become true, or nobody can make it so any more.
async fn told(mut watched: watch::Receiver<bool>) {
    let _ = watched.wait_for(|is_so| *is_so).await;
}

fn listen_for(kind: SignalKind) -> Result<Signal, ServeError> {
    signal(kind).map_err(|error| ServeError::Io { what: "listening for signals".into(), error })
}

/// Everything up to the first answer. The lock comes first, so that a second daemon changes nothing.
async fn start(config: Config) -> Result<(Arc<Daemon>, UnixListener, Option<TcpListener>), ServeError> {
    let store = Store::open(&store_options(&config))?;
    let sandbox = Sandbox::new(sandbox_config(&config))?;
    let artefacts = Artefacts::open(config.daemon.data_dir.join("handlers"))?;
    let metrics = metrics::install().map_err(|error| ServeError::Metrics(error.to_string()))?;
    tracing::info!(sandbox = %sandbox.describe(), memory_total_bytes = config.sandbox.memory_total_max_bytes, data_dir = %config.daemon.data_dir.display(), "started");
    let socket = config.daemon.socket.clone();
    warn_of_absent_secrets(&config);
    warn_of_open_files(&config);
    let daemon = Arc::new(Daemon::new(store, sandbox, artefacts, config, metrics));
    daemon.read_paused_kinds().await?;
    daemon.prepare_live_handlers().await?;
    tokio::spawn(metrics::fold(daemon.metrics.clone()));
    tokio::spawn(pages::run(Arc::clone(&daemon)));
    match daemon.store.key_problem() {
        None => start_work(&daemon).await.or_else(serve_reads_alone)?,
        Some(problem) => {
            tracing::error!(code = "key_unavailable", %problem, "reads go on, nothing is enqueued or leased; put the key back and start again");
            let met = Met::new(Alert::KeyUnavailable, "key_unavailable", problem.to_string());
            daemon.alerts.raise(met, daemon.now_ms());
        }
    }
    tokio::spawn(refused::run(Arc::clone(&daemon)));
    let tcp = listen_on_tcp(&daemon).await?;
    let listener = http::bind(&socket)
        .map_err(|error| ServeError::Io { what: format!("listening on {}", socket.display()), error })?;
    tracing::info!(socket = %socket.display(), "ready");
    Ok((daemon, listener, tcp))
}

async fn listen_on_tcp(daemon: &Daemon) -> Result<Option<TcpListener>, ServeError> {
    let Some(address) = daemon.config().api.listen else { return Ok(None) };
    let failed = |error| ServeError::Io { what: format!("listening on {address} (listen under [api])"), error };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    tracing::info!(address = %bound, "listening on TCP, for callers with a token");
    if !bound.ip().to_canonical().is_loopback() {
        tracing::warn!(address = %bound, "other machines can reach the API; tokens and jobs travel in the clear unless a proxy with TLS stands in front");
    }
    Ok(Some(listener))
}

/// A damaged database is still good for reading what can be read; it was told what is wrong when it was found.
fn serve_reads_alone(error: StoreError) -> Result<(), StoreError> {
    if error.is_damage() { Ok(()) } else { Err(error) }
}

/// Starts everything that leases and settles. What the process before left behind is given back first; when that can't
/// be written yet, on a full disk say, it goes on while the daemon serves.
async fn start_work(daemon: &Arc<Daemon>) -> Result<(), StoreError> {
    let orphaned = recovery::orphaned(daemon).await?;
    let recovery = tokio::spawn(recovery::run(Arc::clone(daemon), orphaned));
    tokio::spawn(heartbeats::run(Arc::clone(daemon)));
    tokio::spawn(retention::run(Arc::clone(daemon)));
    tokio::spawn(free_pages::run(Arc::clone(daemon)));
    tokio::spawn(wall_clock::run(Arc::clone(daemon)));
    tokio::spawn(wall_clock::watch_for_suspends(Arc::clone(daemon)));
    let _ = tokio::time::timeout(RECOVERY_PATIENCE, recovery).await;
    tokio::spawn(reaper::run(Arc::clone(daemon)));
    tokio::spawn(bulk_replays::run(Arc::clone(daemon)));
    if let Some(folder) = daemon.config().daemon.handlers_folder.clone() {
        tokio::spawn(handlers_folder::run(Arc::clone(daemon), folder));
    }
    for (name, outbox) in &daemon.config().outboxes {
        tokio::spawn(relay::run(Arc::clone(daemon), name.clone(), outbox.clone()));
    }
    tokio::spawn(dispatcher::run(Arc::clone(daemon)));
    Ok(())
}

fn store_options(config: &Config) -> StoreOptions {
    StoreOptions {
        directory: config.daemon.data_dir.clone(),
        key_file: config.daemon.key_file.clone(),
        durability: match config.queue.durability {
            config::Durability::Full => Durability::Full,
            config::Durability::Normal => Durability::Normal,
        },
        wal_autocheckpoint_pages: config.queue.wal_autocheckpoint_pages,
        batch_time: StoreOptions::BATCH_TIME,
    }
}

fn sandbox_config(config: &Config) -> SandboxConfig {
    SandboxConfig {
        slots: config.sandbox.slots as usize,
        memory_max_bytes: config.sandbox.limits.memory_max_bytes,
        stack_max_bytes: config.sandbox.stack_max_bytes,
        component_max_bytes: config.sandbox.component_max_bytes,
        compiled_directory: config.daemon.data_dir.join("compiled"),
    }
}

fn warn_of_absent_secrets(config: &Config) {
    for (handler, granted) in &config.handlers {
        for secret in &granted.grants.absent {
            tracing::warn!(%handler, %secret, "an optional secret is not set; jobs that need it will fail");
        }
    }
}

async fn reload(daemon: Arc<Daemon>) {
    match daemon.reload("signal:SIGHUP").await {
        Ok(()) => tracing::info!("the configuration was reloaded"),
        Err(error) => {
            tracing::error!(code = error.code(), %error, "the configuration was not reloaded; the one before stays in force");
        }
    }
}

/// Lets running guests finish within the grace time, while their leases are still extended; then stops them, which
/// releases their leases.
async fn drain(daemon: &Daemon) {
    daemon.stopping.store(true, Ordering::SeqCst);
    daemon.claimable.notify_one();
    // What a claim that is under way leases is run or released like the rest.
    drop(daemon.leasing.lock().await);
    let grace_ms = u64::try_from(daemon.config().daemon.shutdown_grace_ms).unwrap_or(0);
    if tokio::time::timeout(Duration::from_millis(grace_ms), all_ended(daemon)).await.is_err() {
        tracing::warn!(
            attempts = daemon.running.len(),
            "the grace time is over; guests are stopped and their leases released"
        );
        daemon.running.stop_all(StopReason::Shutdown);
        if tokio::time::timeout(RELEASE_PATIENCE, all_ended(daemon)).await.is_err() {
            tracing::error!(
                attempts = daemon.running.len(),
                "leases could not be released; the next start gives them back"
            );
        }
    }
}

async fn all_ended(daemon: &Daemon) {
    loop {
        let mut ended = std::pin::pin!(daemon.running.ended.notified());
        // Enrolled before the look, so that no end falls between the two.
        ended.as_mut().enable();
        if daemon.running.len() == 0 {
            return;
        }
        ended.await;
    }
}

/// A second signal. What is not settled stays leased; the next start gives it back, and blames nobody for it.
async fn stop_at_once(daemon: &Daemon) {
    tracing::warn!("stopping at once; the next start gives the leases back");
    let note = async {
        // What a claim that is under way leases is noted like the rest.
        let _leasing = daemon.leasing.lock().await;
        let (data_dir, attempts) = (daemon.config().daemon.data_dir.clone(), daemon.running.tokens());
        off_thread(move || stop_marker::write(&data_dir, &attempts)).await
    };
    // A disk that hangs must not keep the daemon.
    match tokio::time::timeout(NOTE_PATIENCE, note).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            tracing::error!(%error, "it could not be noted that an operator stopped the daemon; it counts as a crash");
        }
        Err(_) => {
            tracing::error!("it could not be noted in time that an operator stopped the daemon; it counts as a crash");
        }
    }
    std::process::exit(STOPPED_AT_ONCE);
}
