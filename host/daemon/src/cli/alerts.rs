//! `leasehold alerts`: what needs somebody now, what to do about it, and the pages that were sent.

use clap::{Args, Subcommand};
use leasehold_api::{AlertView, PageFilter, PageView};

use super::{
    Failure, Session,
    text::{fields, table, time},
};

/// What to look at.
#[derive(Debug, Subcommand)]
pub enum AlertsCommand {
    /// List what is wrong with the daemon, and dead letters for which no incident is open
    Ls,
    /// List the pages that dead letters were worth, the newest first
    Pages(PagesArguments),
}

/// Which part of the list.
#[derive(Debug, Args)]
pub struct PagesArguments {
    /// How many at most
    #[arg(long)]
    limit: Option<u32>,
    /// Where to go on: what the list before named
    #[arg(long)]
    cursor: Option<String>,
}

/// Runs the command.
pub async fn run(command: AlertsCommand, session: &Session) -> Result<(), Failure> {
    match command {
        AlertsCommand::Ls => {
            let alerts = session.client.alerts().await?;
            session.output.show(&alerts, |alerts| listed(&alerts.items))
        }
        AlertsCommand::Pages(PagesArguments { limit, cursor }) => {
            let list = session.client.pages(&PageFilter { limit, cursor }).await?;
            session.output.page(&list, |list| pages(&list.items))
        }
    }
}

fn listed(alerts: &[AlertView]) -> String {
    if alerts.is_empty() {
        return "no alerts".to_owned();
    }
    let one = |alert: &AlertView| {
        fields([
            ("Alert", alert.alert.clone()),
            ("About", alert.subject.clone().unwrap_or_default()),
            ("Since", time(Some(alert.since))),
            ("Meaning", alert.meaning.clone()),
            ("Found", alert.detail.clone()),
            ("To do", alert.to_do.clone()),
        ])
    };
    alerts.iter().map(one).collect::<Vec<_>>().join("\n\n")
}

/// Pages as a table.
pub fn pages(pages: &[PageView]) -> String {
    let header =
        ["ID", "KIND", "ERROR", "ARRIVED", "LATEST", "MADE", "SENT", "BY", "FAILURES", "LAST ERROR", "INCIDENT"];
    let row = |page: &PageView| {
        [
            page.id.to_string(),
            page.kind.clone(),
            page.error_class.clone(),
            page.arrivals.to_string(),
            page.dead_letter_id.to_string(),
            time(Some(page.made_at)),
            time(page.sent_at),
            page.sent_by.clone().unwrap_or_default(),
            page.failures.to_string(),
            page.last_error.clone().unwrap_or_default(),
            page.incident_id.map(|id| id.to_string()).unwrap_or_default(),
        ]
    };
    table(header, pages.iter().map(row))
}
