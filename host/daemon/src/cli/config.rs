//! `leasehold config check`: says everything that is wrong with a configuration, with its line and what is allowed.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::{Failure, GlobalOptions};
use crate::config::Config;

/// What to do with a configuration.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Check a configuration, and the secrets that it names, without starting anything
    Check(CheckArguments),
}

/// Which file to check.
#[derive(Debug, Args)]
pub struct CheckArguments {
    /// The file [default: the one of --config]
    file: Option<PathBuf>,
}

/// Runs the command.
pub fn run(command: ConfigCommand, options: &GlobalOptions) -> Result<(), Failure> {
    let ConfigCommand::Check(CheckArguments { file }) = command;
    let path = file.as_ref().unwrap_or(&options.config);
    let config = Config::load(path)?;
    options.output().show(&summary(&config), |_| {
        let (kinds, handlers) = (config.kinds.len(), config.handlers.len());
        format!("{} is valid: {kinds} kinds, {handlers} handlers", path.display())
    })
}

fn summary(config: &Config) -> Value {
    let kinds: Vec<_> = config.kinds.keys().map(leasehold_domain::Kind::as_str).collect();
    let handlers: Vec<_> = config.handlers.keys().map(leasehold_domain::HandlerName::as_str).collect();
    // A path need not be text.
    let (file, socket) = (config.path.display().to_string(), config.daemon.socket.display().to_string());
    json!({ "file": file, "valid": true, "kinds": kinds, "handlers": handlers, "socket": socket })
}
