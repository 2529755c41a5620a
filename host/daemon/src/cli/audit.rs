//! `leasehold audit`: what operators did, when and why, and what they were refused.

use clap::{Args, Subcommand};
use leasehold_api::{AuditEntry, AuditFilter, Page, Timestamp};

use super::{
    Failure, Session, payload,
    text::{table, time},
};

/// What to do with the audit log.
#[derive(Debug, Subcommand)]
pub enum AuditCommand {
    /// List what operators did and were refused, the newest first
    Ls(ListArguments),
}

/// Which part of it to list.
#[derive(Debug, Args)]
pub struct ListArguments {
    /// Of this actor
    #[arg(long)]
    actor: Option<String>,
    /// This act, such as `dead_letter.replay`, or all acts on dead letters: `dead_letter`
    #[arg(long)]
    action: Option<String>,
    /// On this job, dead letter, version, kind or token
    #[arg(long)]
    subject: Option<String>,
    /// From this time on: 2026-03-01T09:30:00Z, or 24h for the last 24 hours
    #[arg(long, value_name = "TIME", value_parser = payload::time_or_ago)]
    since: Option<Timestamp>,
    /// Before this time, written likewise
    #[arg(long, value_name = "TIME", value_parser = payload::time_or_ago)]
    until: Option<Timestamp>,
    /// How many at most
    #[arg(long)]
    limit: Option<u32>,
    /// Where to go on: what the list before named
    #[arg(long)]
    cursor: Option<String>,
}

impl From<ListArguments> for AuditFilter {
    fn from(arguments: ListArguments) -> Self {
        let ListArguments { actor, action, subject, since, until, limit, cursor } = arguments;
        Self { actor, action, subject, since, until, limit, cursor }
    }
}

/// Runs the command.
pub async fn run(command: AuditCommand, session: &Session) -> Result<(), Failure> {
    let AuditCommand::Ls(arguments) = command;
    let page = session.client.audit(&arguments.into()).await?;
    session.output.page(&page, listed)
}

fn listed(page: &Page<AuditEntry>) -> String {
    let row = |entry: &AuditEntry| {
        [
            entry.id.to_string(),
            time(Some(entry.at)),
            entry.actor.clone(),
            entry.action.clone(),
            entry.subject.clone(),
            entry.detail.to_string(),
        ]
    };
    table(["ID", "AT", "BY", "DID", "TO", "DETAIL"], page.items.iter().map(row))
}
