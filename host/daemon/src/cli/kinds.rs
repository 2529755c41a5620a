//! `leasehold kinds`: how the kinds stand; pausing and resuming them.

use clap::{Args, Subcommand};
use leasehold_api::{KindView, Page};
use serde_json::json;

use super::{
    Failure, Session,
    text::{escape, table, time},
};

/// What to do with kinds.
#[derive(Debug, Subcommand)]
pub enum KindsCommand {
    /// List kinds and how they stand
    ///
    /// STANDING says what becomes of a kind's ready jobs. "taking jobs": they are leased onto the live version as there is
    /// room. "paused": an operator holds them back, until `kinds resume`. "no live version": there is nothing to run one
    /// on, until `handlers activate`. "jobs wait for a version": the same, and there are jobs already. "not configured":
    /// the configuration has no such kind any more. "nothing runs": the daemon leases no job of any kind; `doctor` says
    /// why.
    Ls,
    /// Stop a kind's jobs from being leased; running ones go on
    Pause(KindArguments),
    /// Let a kind's jobs be leased again
    Resume(KindArguments),
}

/// One kind.
#[derive(Debug, Args)]
pub struct KindArguments {
    /// The kind
    kind: String,
}

/// Runs the command.
pub async fn run(command: KindsCommand, session: &Session) -> Result<(), Failure> {
    match command {
        KindsCommand::Ls => {
            let page = session.client.kinds().await?;
            session.output.show(&page, listed)
        }
        KindsCommand::Pause(KindArguments { kind }) => {
            session.client.pause_kind(&kind).await?;
            session.output.show(&json!({ "kind": kind, "paused": true }), |_| format!("{} is paused", escape(&kind)))
        }
        KindsCommand::Resume(KindArguments { kind }) => {
            session.client.resume_kind(&kind).await?;
            session.output.show(&json!({ "kind": kind, "paused": false }), |_| format!("{} runs again", escape(&kind)))
        }
    }
}

pub fn listed(page: &Page<KindView>) -> String {
    let header = ["KIND", "STANDING", "LIVE VERSION", "WAITING", "READY", "RUNNING", "DEAD", "OLDEST READY", "OWNER"];
    let row = |kind: &KindView| {
        let depth = |state: &str| kind.depth.get(state).copied().unwrap_or_default().to_string();
        [
            kind.kind.clone(),
            standing(kind).to_owned(),
            kind.live_version.clone().unwrap_or_default(),
            depth("waiting"),
            depth("ready"),
            depth("leased"),
            kind.dead_letters.to_string(),
            time(kind.oldest_ready_at),
            kind.owner.clone().unwrap_or_default(),
        ]
    };
    table(header, page.items.iter().map(row))
}

const fn standing(kind: &KindView) -> &'static str {
    match (kind.paused, &kind.handler, kind.waiting_for_handler, &kind.live_version) {
        _ if kind.nothing_runs.is_some() => "nothing runs",
        (true, ..) => "paused",
        (_, None, ..) => "not configured",
        (_, _, true, _) => "jobs wait for a version",
        (_, _, _, None) => "no live version",
        _ => "taking jobs",
    }
}
