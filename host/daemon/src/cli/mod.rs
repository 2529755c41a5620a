//! The command line: reads arguments, asks the daemon through its API, and shows the answer. It never changes the database:
//! `doctor` and `backup` read it, with or without a daemon.

mod alerts;
mod audit;
mod backup;
mod bulk_replay;
mod completions;
mod config;
mod demo;
mod dlq;
mod doctor;
mod enqueue;
mod enqueue_file;
mod failure;
mod handlers;
mod incidents;
mod jobs;
mod kinds;
mod log;
mod output;
mod payload;
mod rehearse;
mod reload;
mod replays;
mod reveal;
mod serve;
mod session;
mod socket;
mod stats;
mod text;
mod tokens;
mod usage;

use std::{env, process::ExitCode};

use clap::{Parser, Subcommand};

pub use failure::Failure;
pub use output::Output;
pub use session::{GlobalOptions, Session};

/// A job queue for one host: leases, sandboxed handlers, effects applied once, replays that are safe.
#[derive(Debug, Parser)]
#[command(name = "leasehold", version, after_help = failure::EXIT_CODES)]
pub struct Cli {
    #[command(flatten)]
    global: GlobalOptions,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the daemon
    ///
    /// SIGTERM and SIGINT let running handlers finish within the grace time; a second signal stops at once. SIGHUP reloads
    /// the configuration.
    Serve,
    Demo(demo::DemoArguments),
    Enqueue(Box<enqueue::EnqueueArguments>),
    /// Look at jobs, cancel them, wait for them
    #[command(subcommand)]
    Jobs(jobs::JobsCommand),
    /// Look at dead letters, rehearse, replay and discard them
    #[command(subcommand)]
    Dlq(dlq::DlqCommand),
    /// Look at bulk replays, stop, resume and wait for them
    #[command(subcommand)]
    Replays(replays::ReplaysCommand),
    /// Deal with dead letters that arrive: open, edit and close incidents
    #[command(subcommand)]
    Incidents(incidents::IncidentsCommand),
    /// See what needs somebody now, and whom that was sent to
    #[command(subcommand)]
    Alerts(alerts::AlertsCommand),
    /// Store handlers and switch their versions
    #[command(subcommand)]
    Handlers(handlers::HandlersCommand),
    /// Look at kinds, pause and resume them
    #[command(subcommand)]
    Kinds(kinds::KindsCommand),
    /// See what operators did
    #[command(subcommand)]
    Audit(audit::AuditCommand),
    /// Make tokens for callers of the API, list them and take them back
    #[command(subcommand)]
    Tokens(tokens::TokensCommand),
    /// See at a glance what waits, runs and died
    Stats,
    Backup(backup::BackupArguments),
    /// Check the configuration, the files, the disk, the database and the handlers
    ///
    /// Prints a line for each check: ok, warn or fail. The exit code is 1 when any of them failed.
    Doctor,
    /// Check a configuration
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Apply the changed configuration, whole or not at all
    Reload,
    /// Write a shell's completion script
    Completions(completions::CompletionsArguments),
}

/// Runs the command that the process was started with.
pub fn run() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return misread(&error),
    };
    let output = cli.global.output();
    match execute(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !matches!(failure, Failure::OutputClosed) {
                output.failure(&failure);
            }
            failure.exit_code().into()
        }
    }
}

/// A request for help, or arguments that make no command; the latter is said in JSON where JSON was asked for.
fn misread(error: &clap::Error) -> ExitCode {
    let wants_json = env::args_os().any(|argument| argument == "--json");
    if error.use_stderr() && wants_json {
        Output::new(true).failure(&Failure::usage(usage::explained(&error.to_string())));
    } else {
        // A reader that has gone away is the only thing that can go wrong here.
        let _ = error.print();
    }
    u8::try_from(error.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from)
}

fn execute(cli: Cli) -> Result<(), Failure> {
    let Cli { global, command } = cli;
    match command {
        Command::Serve => serve::run(&global),
        Command::Demo(arguments) => session::block_on(demo::run(arguments))?,
        Command::Config(command) => config::run(command, &global),
        // Inspecting needs no daemon, and so no configuration that says where one is.
        Command::Handlers(handlers::HandlersCommand::Inspect(arguments)) => {
            handlers::inspect(&arguments, global.output())
        }
        Command::Backup(arguments) => backup::run(&arguments, &global),
        Command::Doctor => session::block_on(doctor::run(&global))?,
        Command::Completions(arguments) => completions::run(&arguments, global.output()),
        command => session::block_on(ask(command, Session::open(&global)?))?,
    }
}

/// The commands that ask the daemon.
async fn ask(command: Command, session: Session) -> Result<(), Failure> {
    match command {
        Command::Enqueue(arguments) => enqueue::run(*arguments, &session).await,
        Command::Jobs(command) => jobs::run(command, &session).await,
        Command::Dlq(command) => dlq::run(command, &session).await,
        Command::Replays(command) => replays::run(command, &session).await,
        Command::Incidents(command) => incidents::run(command, &session).await,
        Command::Alerts(command) => alerts::run(command, &session).await,
        Command::Handlers(command) => handlers::run(command, &session).await,
        Command::Kinds(command) => kinds::run(command, &session).await,
        Command::Audit(command) => audit::run(command, &session).await,
        Command::Tokens(command) => tokens::run(command, &session).await,
        Command::Stats => stats::run(&session).await,
        Command::Reload => reload::run(&session).await,
        Command::Serve
        | Command::Demo(_)
        | Command::Config(_)
        | Command::Backup(_)
        | Command::Doctor
        | Command::Completions(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_free_of_contradictions() {
        Cli::command().debug_assert();
    }

    #[test]
    fn o5_the_exit_codes_are_in_the_help() {
        let help = Cli::command().render_long_help().to_string();
        assert!((0..=6).all(|code| help.contains(&format!("\n  {code}  "))), "{help}");
    }

    #[test]
    fn r6_one_is_replayed_by_its_id_and_many_by_their_kind() {
        let parsed = |arguments: &[&str]| Cli::try_parse_from([&["leasehold", "dlq", "replay"], arguments].concat());
        for allowed in [
            &["7", "--reason", "r"][..],
            &["7", "--reason", "r", "--payload", "{}", "--step", "a=applied"],
            &["--kind", "k", "--dry-run"],
            &["--kind", "k", "--reason", "r", "--class", "c", "--since", "2h", "--rate", "20/s", "--probe", "--yes"],
        ] {
            assert!(parsed(allowed).is_ok(), "{allowed:?}");
        }
        for refused in [
            &["--reason", "r"][..],
            &["7"],
            &["7", "--dry-run"],
            &["7", "--reason", "r", "--dry-run"],
            &["7", "--reason", "r", "--yes"],
            &["7", "--reason", "r", "--rate", "1/s"],
            &["7", "--reason", "r", "--kind", "k"],
            &["--kind", "k"],
            &["--kind", "k", "--reason", "r", "--payload", "{}"],
            &["--kind", "k", "--reason", "r", "--step", "a=applied"],
            &["--kind", "k", "--reason", "r", "--rate", "0"],
            &["--kind", "k", "--reason", "r", "--cause", "bad luck"],
        ] {
            assert!(parsed(refused).is_err(), "{refused:?}");
        }
    }

    #[test]
    fn f1_a_file_and_a_payload_exclude_each_other() {
        let parsed = |arguments: &[&str]| Cli::try_parse_from([&["leasehold", "enqueue"], arguments].concat());
        assert!(parsed(&["pay", "--payload", "{}"]).is_ok());
        assert!(parsed(&["--file", "jobs.jsonl", "pay"]).is_ok());
        assert!(parsed(&["pay", "--payload", "{}", "--file", "jobs.jsonl"]).is_err());
        assert!(parsed(&["pay"]).is_err());
        assert!(parsed(&["pay", "--payload", "{}", "--delay", "5m", "--run-at", "2026-03-01T09:30:00Z"]).is_err());
    }
}
