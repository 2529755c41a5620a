//! A released daemon as a process in a directory of its own, on the disk that the build is on.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::OnceLock,
};

use anyhow::{Context, ensure};
use tempfile::TempDir;

use crate::client::Client;

/// A daemon that runs. It is killed when it is dropped.
pub struct Daemon {
    directory: TempDir,
    process: Child,
}

/// The released binary, built first if it has to be, or another one that `BENCH_BINARY` names.
pub fn binary() -> anyhow::Result<PathBuf> {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    if let Some(binary) = BINARY.get() {
        return Ok(binary.clone());
    }
    if let Some(binary) = std::env::var_os("BENCH_BINARY") {
        return Ok(BINARY.get_or_init(|| binary.into()).clone());
    }
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--release", "--package", "leasehold", "--message-format", "json"]);
    // What cargo tells a bench of itself would have build scripts run again.
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("CARGO_")) {
        cargo.env_remove(name);
    }
    let built = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).stderr(Stdio::inherit()).output()?;
    ensure!(built.status.success(), "the daemon does not build");
    let messages = String::from_utf8(built.stdout)?;
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let mut executables = messages.filter_map(|message| message["executable"].as_str().map(PathBuf::from));
    let binary = executables.next_back().context("cargo names no executable")?;
    Ok(BINARY.get_or_init(|| binary).clone())
}

/// A new directory on the disk that the build is on: the system's own may be memory.
pub fn directory() -> anyhow::Result<TempDir> {
    let bench = std::env::current_exe()?;
    Ok(tempfile::tempdir_in(bench.parent().context("the bench has no directory")?)?)
}

/// A component of the tests by its name and version.
#[must_use]
pub fn component(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../tests/guests/components/{name}.wasm"))
}

impl Daemon {
    /// A daemon with an empty database and the handler that only reads its payload. `queue` and `rest` are lines of
    /// the configuration: under `[queue]`, and after everything else.
    pub fn start(queue: &str, rest: &str) -> anyhow::Result<Self> {
        let config = format!(
            "[queue]\nqueue_depth_max = 10000000\n{queue}\n[handlers.bench-parse]\n[kinds.bench]\nhandler = \"bench-parse\"\n\
             owner = \"bench\"\n{rest}\n"
        );
        let daemon = Self::start_with(&config)?;
        daemon.push(&component("bench-parse@1.0.0"))?;
        Ok(daemon)
    }

    /// A daemon with an empty database, no handler and a configuration of its own.
    pub fn start_with(config: &str) -> anyhow::Result<Self> {
        let directory = directory()?;
        fs::write(directory.path().join("config.toml"), config)?;
        let process = serve(directory.path())?;
        Ok(Self { directory, process })
    }

    /// Stops it, as an operator does.
    pub fn stop(&mut self) -> anyhow::Result<()> {
        let id = i32::try_from(self.process.id()).ok().and_then(rustix::process::Pid::from_raw);
        rustix::process::kill_process(id.context("no process")?, rustix::process::Signal::TERM)?;
        self.process.wait()?;
        Ok(())
    }

    /// Starts it again on the same directory.
    pub fn restart(&mut self) -> anyhow::Result<()> {
        self.process = serve(self.directory.path())?;
        Ok(())
    }

    /// Stores a component, a file `NAME@VERSION.wasm`, and makes it live.
    pub fn push(&self, file: &Path) -> anyhow::Result<()> {
        let stem = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        let (name, version) = stem.split_once('@').context("the file is not named NAME@VERSION.wasm")?;
        let status = Command::new(binary()?)
            .args(["handlers", "push", "--activate", "--config"])
            .arg(self.directory.path().join("config.toml"))
            .args(["--name", name, "--version", version])
            .arg(file)
            .stdout(Stdio::null())
            .status()?;
        ensure!(status.success(), "{} does not go live", file.display());
        Ok(())
    }

    /// A new connection to it.
    pub fn client(&self) -> anyhow::Result<Client> {
        Client::connect(&self.data().join("leasehold.sock"))
    }

    /// Where its files are.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        self.directory.path().join("leasehold-data")
    }

    /// The size of the database's file and of its log, in bytes.
    pub fn file_bytes(&self) -> anyhow::Result<(u64, u64)> {
        let size = |name: &str| Ok(fs::metadata(self.data().join(name))?.len());
        let log = size("leasehold.db-wal").or_else(|error: std::io::Error| {
            if error.kind() == std::io::ErrorKind::NotFound { Ok(0) } else { Err(error) }
        })?;
        Ok((size("leasehold.db")?, log))
    }

    /// The process's id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.process.id()
    }
}

/// What the handler that does what it is told is granted, since its component imports all of it.
pub const MISBEHAVE: &str = "[handlers.misbehave]
stores = { s = \"read-write\" }
settings = { greeting = \"hello\" }
outbound = [\"GET,POST http://127.0.0.1:9\"]
";

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Starts the process and waits until it says that it is ready.
fn serve(directory: &Path) -> anyhow::Result<Child> {
    let mut process = Command::new(binary()?)
        .arg("serve")
        .arg("--config")
        .arg(directory.join("config.toml"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut log = BufReader::new(process.stderr.take().context("no log")?);
    let mut said = String::new();
    while !said.contains("ready socket") {
        ensure!(log.read_line(&mut said)? > 0, "the daemon did not start:\n{said}");
    }
    // The log goes on being read, so that the daemon never waits for it.
    std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
    Ok(process)
}
