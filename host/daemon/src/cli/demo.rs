//! `leasehold demo`: tells the whole story on a daemon of its own.

use clap::Args;

use super::Failure;

/// Tell the whole story, step by step, on a real daemon in a temporary directory
///
/// A handler is shipped, an order is charged, a defect becomes a dead letter, its replay is refused, the fix is swapped in
/// and the replay goes through. Each step is checked; the exit status is 0 only when all of them held.
#[derive(Debug, Args)]
pub struct DemoArguments {
    /// Keep the daemon's directory afterwards
    #[arg(long)]
    keep: bool,
}

/// Runs the command.
pub async fn run(arguments: DemoArguments) -> Result<(), Failure> {
    crate::demo::run(arguments.keep)
        .await
        .map_err(|error| Failure::Failed { code: "demo_failed", message: format!("{error} [{}]", error.code()) })
}
