//! Gives a page to a program on its standard input. No shell reads its arguments, it inherits nothing of the daemon's
//! environment but the search path, and it is killed with its children when its time is over.

use std::{
    path::Path,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::{
    io::AsyncWriteExt as _,
    process::{Child, Command},
};

use super::{document::Document, send::too_slow};

/// Runs the program to its end. The page was taken when it ends with 0.
pub(super) async fn run(
    program: &Path,
    arguments: &[String],
    page: &Document,
    timeout: Duration,
) -> Result<(), String> {
    let mut child = start(program, arguments, page)?;
    match tokio::time::timeout(timeout, feed(&mut child, &page.body)).await {
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) => Err(format!("the command ended with {status}")),
        Ok(Err(error)) => Err(format!("the command could not be waited for: {error}")),
        Err(_) => {
            kill(&child);
            // It can't outlast the kill; whatever it ended with, it took too long.
            let _ = child.wait().await;
            Err(too_slow("the command", timeout))
        }
    }
}

fn start(program: &Path, arguments: &[String], page: &Document) -> Result<Child, String> {
    let search_path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    Command::new(program)
        .args(arguments)
        .env_clear()
        .env("PATH", search_path)
        .env("LEASEHOLD_PAGE_ID", &page.id)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| format!("the command could not be started: {error}"))
}

async fn feed(child: &mut Child, body: &str) -> std::io::Result<ExitStatus> {
    if let Some(mut stdin) = child.stdin.take() {
        // A program that does not read to the end may have its reasons; its exit status says whether it took the page.
        let _ = stdin.write_all(body.as_bytes()).await;
        let _ = stdin.write_all(b"\n").await;
    }
    child.wait().await
}

/// Kills the program and what it started, which are a process group of their own.
fn kill(child: &Child) {
    let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    if let Some(group) = group {
        // It may have ended by itself in this moment.
        let _ = kill_process_group(group, Signal::KILL);
    }
}
