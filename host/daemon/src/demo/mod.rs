//! `leasehold demo`: the whole story on a real daemon in a directory of its own, with a real HTTP server as the payment
//! provider. Each step is checked against what the provider counted and what the daemon answers; nothing is staged.

mod checks;
mod process;
mod provider;
mod story;

use std::path::PathBuf;

use checks::Narrator;
use process::DaemonProcess;
use provider::Provider;

/// Why the demo could not be told to its end.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// Something that the story says did not hold.
    #[error("{failed} of {checked} checks did not hold; the daemon's files are in {directory}")]
    NotHeld {
        /// How many did not hold.
        failed: usize,
        /// How many there were.
        checked: usize,
        /// Where to look.
        directory: PathBuf,
    },
    /// The daemon refused what it should have done.
    #[error("the daemon refused a step of the demo: {0}")]
    Client(#[from] leasehold_api::ClientError),
    /// A file, a process or a socket can't be used.
    #[error("{what}: {error}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        error: std::io::Error,
    },
    /// The daemon did not come up.
    #[error("the daemon ended before it was ready: {log}")]
    NotReady {
        /// What it said last.
        log: String,
    },
}

impl DemoError {
    /// The stable code of the error.
    pub fn code(&self) -> &str {
        match self {
            Self::NotHeld { .. } => "demo_not_held",
            Self::Client(error) => error.code(),
            Self::Io { .. } => "io",
            Self::NotReady { .. } => "demo_daemon_failed",
        }
    }
}

fn io(what: &'static str) -> impl FnOnce(std::io::Error) -> DemoError {
    move |error| DemoError::Io { what, error }
}

/// Tells the story. The directory is left behind when it is to be kept or when something did not hold.
pub async fn run(keep: bool) -> Result<(), DemoError> {
    let directory =
        tempfile::Builder::new().prefix("leasehold-demo-").tempdir().map_err(io("a temporary directory"))?;
    let provider = Provider::start().await.map_err(io("the provider's server"))?;
    let config = directory.path().join("config.toml");
    std::fs::write(&config, config_text(provider.url())).map_err(io("the demo's configuration"))?;
    let mut daemon = DaemonProcess::start(directory.path(), &config).await?;
    let mut narrator = Narrator::default();
    let told = story::tell(&mut narrator, &daemon, &provider, directory.path()).await;
    daemon.stop().await?;
    let (checked, failed) = narrator.counts();
    if told.is_err() || failed > 0 || keep {
        let directory = directory.keep();
        told?;
        if failed > 0 {
            return Err(DemoError::NotHeld { failed, checked, directory });
        }
        println!("\nThe daemon's files are in {}.", directory.display());
    }
    println!("\nAll {checked} checks held.\n\n{}", how_to_go_on());
    Ok(())
}

/// The configuration that the demo runs on.
fn config_text(provider: &str) -> String {
    format!(
        r#"# The demo's configuration.
[handlers.charge-card]
outbound = ["POST {provider}"]
settings = {{ endpoint = "{provider}" }}

[kinds."order.charge"]
handler = "charge-card"
owner = "the demo"
attempts = 2
backoff = {{ min = "50ms", max = "200ms" }}
visibility_timeout = "1s"
heartbeat = "200ms"
deadline = "20s"
in_doubt = "begin-again"
redact = {{ names = ["card", "email"] }}

[errors]
"downstream.unavailable" = "retry"
"downstream.rate_limited" = "rate-limited"
"downstream.refused" = "rejected"
"#
    )
}

fn how_to_go_on() -> String {
    let program = std::env::current_exe().map_or_else(|_| "leasehold".into(), |path| path.display().to_string());
    format!(
        "To go on:\n\
         \x20 {program} serve --config config.toml          # your own daemon; the file explains itself\n\
         \x20 {program} handlers push HANDLER.wasm --activate\n\
         \x20 {program} enqueue KIND --payload '{{\"…\": …}}'\n\
         \x20 {program} jobs ls; {program} dlq ls\n\
         \x20 {program} --help"
    )
}
