//! `leasehold audit`: what operators did, when and why.

use clap::{Args, Subcommand};
use leasehold_api::{AuditEntry, AuditFilter, Page};

use super::{
    Failure, Session, jobs,
    text::{table, time},
};

/// What to do with the audit log.
#[derive(Debug, Subcommand)]
pub enum AuditCommand {
    /// List what operators did, the newest first
    Ls(ListArguments),
}

/// Which part of it to list.
#[derive(Debug, Args)]
pub struct ListArguments {
    /// How many at most
    #[arg(long)]
    limit: Option<u32>,
    /// Where to go on: what the list before named
    #[arg(long)]
    cursor: Option<String>,
}

/// Runs the command.
pub async fn run(command: AuditCommand, session: &Session) -> Result<(), Failure> {
    let AuditCommand::Ls(ListArguments { limit, cursor }) = command;
    let page = session.client.audit(&AuditFilter { limit, cursor }).await?;
    session.output.show(&page, listed)
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
    let shown = table(["ID", "AT", "BY", "DID", "TO", "DETAIL"], page.items.iter().map(row));
    jobs::with_more(shown, page.next_cursor.as_deref())
}
