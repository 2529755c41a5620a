//! What every command shares: the options that stand before or behind any of them, and the daemon they lead to.

use std::{future::Future, path::PathBuf};

use clap::Args;
use leasehold_api::Client;

use super::{Failure, Output, socket};

/// Options that every command takes.
#[derive(Debug, Clone, Args)]
pub struct GlobalOptions {
    /// The daemon's socket [default: the one that the configuration names]
    #[arg(long, global = true, env = "LEASEHOLD_SOCKET", value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// The configuration file
    #[arg(long, global = true, env = "LEASEHOLD_CONFIG", value_name = "PATH", default_value = "config.toml")]
    pub config: PathBuf,
    /// Answer in JSON, errors too
    #[arg(long, global = true)]
    pub json: bool,
}

impl GlobalOptions {
    /// Where answers go.
    pub const fn output(&self) -> Output {
        Output::new(self.json)
    }
}

/// A daemon to ask and a place for its answers.
#[derive(Debug, Clone)]
pub struct Session {
    /// The daemon.
    pub client: Client,
    /// Where its answers go.
    pub output: Output,
}

impl Session {
    /// The session that the options lead to; nothing is connected yet.
    pub fn open(options: &GlobalOptions) -> Result<Self, Failure> {
        Ok(Self { client: Client::new(socket::locate(options)?), output: options.output() })
    }
}

/// Runs a command to its end on a runtime of this one thread.
pub fn block_on<T>(command: impl Future<Output = T>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::Failed {
        code: "runtime_failed",
        message: format!("the runtime could not be started: {error}"),
    })?;
    Ok(runtime.block_on(command))
}
