//! The demo's daemon: this very program, as a process of its own. It is never left running.

use std::{path::Path, process::Stdio};

use leasehold_api::Client;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    process::{Child, Command},
    sync::oneshot,
};

use super::{DemoError, io};

/// A daemon that runs.
pub(super) struct DaemonProcess {
    child: Child,
    client: Client,
}

impl DaemonProcess {
    /// Starts it and waits until it says that it is ready. Its log goes to `daemon.log`.
    pub(super) async fn start(directory: &Path, config: &Path) -> Result<Self, DemoError> {
        let program = std::env::current_exe().map_err(io("this program"))?;
        let mut child = Command::new(program)
            .args(["serve", "--config"])
            .arg(config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(io("the daemon's process"))?;
        let log = tokio::fs::File::create(directory.join("daemon.log")).await.map_err(io("the daemon's log"))?;
        let (ready, is_ready) = oneshot::channel();
        if let Some(stderr) = child.stderr.take() {
            tokio::spawn(keep_log(BufReader::new(stderr), log, ready));
        }
        match is_ready.await {
            Ok(Ok(())) => {
                Ok(Self { child, client: Client::new(directory.join("leasehold-data").join("leasehold.sock")) })
            }
            Ok(Err(log)) => Err(DemoError::NotReady { log }),
            Err(_) => Err(DemoError::NotReady { log: String::new() }),
        }
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// The process's id, which a hot swap does not change.
    pub(super) fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// Stops it as an init system does, and waits for its end.
    pub(super) async fn stop(&mut self) -> Result<(), DemoError> {
        if let Some(id) = self.child.id().and_then(|id| i32::try_from(id).ok()).and_then(rustix::process::Pid::from_raw)
        {
            // A process that has ended by itself needs no signal.
            let _ = rustix::process::kill_process(id, rustix::process::Signal::TERM);
        }
        self.child.wait().await.map(drop).map_err(io("the daemon's end"))
    }
}

/// Copies the log to its file and tells when the daemon is ready, or what it said last before it ended.
async fn keep_log(
    stderr: BufReader<tokio::process::ChildStderr>,
    mut file: tokio::fs::File,
    ready: oneshot::Sender<Result<(), String>>,
) {
    let mut lines = stderr.lines();
    let mut ready = Some(ready);
    let mut last = String::new();
    while let Ok(Some(line)) = lines.next_line().await {
        // A log that can't be written is missing afterwards, which a check of the story shows.
        let _ = file.write_all(format!("{line}\n").as_bytes()).await;
        let _ = file.flush().await;
        if line.contains("ready socket=")
            && let Some(ready) = ready.take()
        {
            let _ = ready.send(Ok(()));
        }
        last = line;
    }
    if let Some(ready) = ready {
        let _ = ready.send(Err(last));
    }
}
