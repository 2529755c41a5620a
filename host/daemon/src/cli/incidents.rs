//! `leasehold incidents`: opens, edits and closes incidents, and shows what they have to do with.

use clap::{Args, Subcommand};
use leasehold_api::{
    CloseIncidentRequest, EditIncidentRequest, IncidentFilter, IncidentGroup, IncidentState, IncidentSummary,
    IncidentView, OpenIncidentRequest, Page,
};

use super::{
    Failure, Session, alerts,
    text::{fields, section, table, time},
};

/// What to do with incidents.
#[derive(Debug, Subcommand)]
pub enum IncidentsCommand {
    /// List incidents, the newest first
    Ls(ListArguments),
    /// Show an incident with its counts by version and the pages that it was opened upon
    Show(ShowArguments),
    /// Open an incident: until it is closed, dead letters that it covers are counted on it and page nobody
    Open(OpenArguments),
    /// Say which version is fixed, of an incident that is open or closed
    Edit(EditArguments),
    /// Close an incident: dead letters of what it covered are counted anew and page again
    Close(CloseArguments),
}

/// Which incidents to list.
#[derive(Debug, Args)]
pub struct ListArguments {
    /// In this state [default: all]
    #[arg(long, value_parser = state, value_name = "open|closed")]
    state: Option<IncidentState>,
    /// How many at most
    #[arg(long)]
    limit: Option<u32>,
    /// Where to go on: what the list before named
    #[arg(long)]
    cursor: Option<String>,
}

/// One incident.
#[derive(Debug, Args)]
pub struct ShowArguments {
    /// The incident's id
    id: i64,
}

/// What the incident is for.
#[derive(Debug, Args)]
pub struct OpenArguments {
    /// The kind whose dead letters it covers
    #[arg(long)]
    kind: String,
    /// One error class of it [default: every class]
    #[arg(long)]
    class: Option<String>,
    /// What is known; it is kept in the clear
    #[arg(long)]
    note: String,
    /// The first version that is fixed: what died before it is replayed onto it or a later one. It need not be stored yet
    #[arg(long, value_name = "[NAME@]VERSION")]
    fixed_in: Option<String>,
}

/// What to change.
#[derive(Debug, Args)]
pub struct EditArguments {
    /// The incident's id
    id: i64,
    /// The first version that is fixed
    #[arg(long, value_name = "[NAME@]VERSION", required_unless_present = "no_fixed_in")]
    fixed_in: Option<String>,
    /// No version is known to be fixed
    #[arg(long, conflicts_with = "fixed_in")]
    no_fixed_in: bool,
}

/// How it ended.
#[derive(Debug, Args)]
pub struct CloseArguments {
    /// The incident's id
    id: i64,
    /// What came of it; it is kept in the clear
    #[arg(long)]
    note: String,
    /// The first version that is fixed [default: what was said before]
    #[arg(long, value_name = "[NAME@]VERSION")]
    fixed_in: Option<String>,
}

/// Runs the command.
pub async fn run(command: IncidentsCommand, session: &Session) -> Result<(), Failure> {
    let client = &session.client;
    let incident = match command {
        IncidentsCommand::Ls(ListArguments { state, limit, cursor }) => {
            let page = client.incidents(&IncidentFilter { state, limit, cursor }).await?;
            return session.output.page(&page, listed);
        }
        IncidentsCommand::Show(ShowArguments { id }) => client.incident(id).await?,
        IncidentsCommand::Open(OpenArguments { kind, class, note, fixed_in }) => {
            client.open_incident(&OpenIncidentRequest { kind, error_class: class, note, fixed_in }).await?
        }
        IncidentsCommand::Edit(EditArguments { id, fixed_in, no_fixed_in: _ }) => {
            client.edit_incident(id, &EditIncidentRequest { fixed_in }).await?
        }
        IncidentsCommand::Close(CloseArguments { id, note, fixed_in }) => {
            client.close_incident(id, &CloseIncidentRequest { note, fixed_in }).await?
        }
    };
    session.output.show(&incident, shown)
}

fn state(text: &str) -> Result<IncidentState, String> {
    let allowed = || IncidentState::ALL.map(IncidentState::as_str).join(", ");
    IncidentState::parse(text).ok_or_else(|| format!("the states of an incident are {}", allowed()))
}

fn listed(page: &Page<IncidentSummary>) -> String {
    let header = ["ID", "KIND", "CLASS", "STATE", "OPENED", "BY", "FIXED IN", "ARRIVED", "STILL OPEN", "NOTE"];
    let row = |incident: &IncidentSummary| {
        [
            incident.id.to_string(),
            incident.kind.clone(),
            incident.error_class.clone().unwrap_or_else(|| "every".to_owned()),
            incident.state.to_string(),
            time(Some(incident.opened_at)),
            incident.opened_by.clone(),
            incident.fixed_in.clone().unwrap_or_default(),
            incident.arrivals.to_string(),
            incident.open_dead_letters.to_string(),
            incident.note.clone(),
        ]
    };
    table(header, page.items.iter().map(row))
}

fn shown(incident: &IncidentView) -> String {
    let mut parts = vec![fields(facts(&incident.summary))];
    if !incident.groups.is_empty() {
        parts.push(section("Dead letters", &groups(&incident.groups)));
    }
    if !incident.pages.is_empty() {
        parts.push(section("Pages that it was opened upon", &alerts::pages(&incident.pages)));
    }
    parts.join("\n\n")
}

fn facts(incident: &IncidentSummary) -> Vec<(&'static str, String)> {
    vec![
        ("Incident", incident.id.to_string()),
        ("Kind", incident.kind.clone()),
        ("Class", incident.error_class.clone().unwrap_or_else(|| "every".to_owned())),
        ("State", incident.state.to_string()),
        ("Note", incident.note.clone()),
        ("Fixed in", incident.fixed_in.clone().unwrap_or_default()),
        ("Opened", time(Some(incident.opened_at))),
        ("Opened by", incident.opened_by.clone()),
        ("Closed", time(incident.closed_at)),
        ("Closed by", incident.closed_by.clone().unwrap_or_default()),
        ("Closing note", incident.closing_note.clone().unwrap_or_default()),
        ("Arrived while open", incident.arrivals.to_string()),
        ("Dead letters still open", incident.open_dead_letters.to_string()),
    ]
}

fn groups(groups: &[IncidentGroup]) -> String {
    let row = |group: &IncidentGroup| {
        [
            group.error_class.clone(),
            group.handler.clone().unwrap_or_default(),
            group.arrivals.to_string(),
            group.open_dead_letters.to_string(),
        ]
    };
    table(["ERROR", "HANDLER", "ARRIVED", "STILL OPEN"], groups.iter().map(row))
}
