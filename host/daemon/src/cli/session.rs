//! What every command shares: the options that stand before or behind any of them, and the daemon they lead to.

use std::{env, future::Future, path::PathBuf};

use clap::Args;
use leasehold_api::Client;

use super::{Failure, Output, socket};

/// The environment variable of the token that is sent. No option has it: the arguments of a process are everybody's to see.
const TOKEN: &str = "LEASEHOLD_TOKEN";

/// Options that every command takes.
#[derive(Debug, Clone, Args)]
pub struct GlobalOptions {
    /// The daemon's socket [default: the one that the configuration names]
    #[arg(long, global = true, env = "LEASEHOLD_SOCKET", value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// The daemon's address, http://HOST:PORT, in place of its socket; the token comes from `LEASEHOLD_TOKEN`
    #[arg(long, global = true, env = "LEASEHOLD_URL", value_name = "URL", conflicts_with = "socket")]
    pub url: Option<String>,
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

    /// For a command that works on this machine's files: one that was told of another daemon would answer for the wrong one.
    pub fn refuse_url(&self, why: &str) -> Result<(), Failure> {
        let Some(url) = &self.url else { return Ok(()) };
        let message = format!("{why}, and not what is behind {url}: run it there, without --url and LEASEHOLD_URL");
        Err(Failure::usage(message))
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
        let client = match &options.url {
            Some(url) => Client::at(url)?,
            None => Client::new(socket::locate(options)?),
        };
        let client = match env::var(TOKEN) {
            Ok(token) if !token.trim().is_empty() => client.with_token(token.trim())?,
            _ => client,
        };
        Ok(Self { client, output: options.output() })
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
