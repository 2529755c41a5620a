//! `leasehold handlers`: stores components, switches their versions, and inspects a component without the daemon.

use std::{fs, path::PathBuf};

use clap::{Args, Subcommand};
use leasehold_api::{ActivateQuery, HandlerView, Page, PushAnswer, RetireAnswer};
use leasehold_sandbox::Inspection;
use serde_json::json;

use super::{
    Failure, Output, Session,
    text::{self, fields, short_digest, table, time, yes},
};

/// What to do with handlers.
#[derive(Debug, Subcommand)]
pub enum HandlersCommand {
    /// Store a component; a version that is stored never changes
    Push(PushArguments),
    /// List stored versions
    Ls,
    /// Show a version
    Show(VersionArguments),
    /// Make a version current: new attempts run on it, running ones finish on theirs
    Activate(ActivateArguments),
    /// Take a version out of service once its running attempts have ended
    Retire(VersionArguments),
    /// Show what a component imports and exports, and what would have to be granted; asks no daemon
    Inspect(InspectArguments),
}

/// What to look into.
#[derive(Debug, Args)]
pub struct InspectArguments {
    /// The component
    file: PathBuf,
}

/// One stored version.
#[derive(Debug, Args)]
pub struct VersionArguments {
    /// The version, name@1.2.3
    #[arg(value_name = "NAME@VERSION")]
    version: String,
}

/// What to store.
#[derive(Debug, Args)]
pub struct PushArguments {
    /// The component
    file: PathBuf,
    /// The handler's name [default: the one that the component carries]
    #[arg(long)]
    name: Option<String>,
    /// The version, such as 1.2.3 [default: the one that the component carries]
    #[arg(long)]
    version: Option<String>,
    /// Make the version current as well
    #[arg(long)]
    activate: bool,
}

/// What to make current.
#[derive(Debug, Args)]
pub struct ActivateArguments {
    /// The version, name@1.2.3
    #[arg(value_name = "NAME@VERSION")]
    version: String,
    /// Keep the former version live for jobs that are bound to it
    #[arg(long)]
    keep_live: bool,
}

/// Runs the command.
pub async fn run(command: HandlersCommand, session: &Session) -> Result<(), Failure> {
    match command {
        HandlersCommand::Push(arguments) => push(arguments, session).await,
        HandlersCommand::Ls => {
            let page = session.client.handlers().await?;
            session.output.show(&page, listed)
        }
        HandlersCommand::Show(VersionArguments { version }) => {
            let handler = session.client.handler(&version).await?;
            session.output.show(&handler, shown)
        }
        HandlersCommand::Activate(ActivateArguments { version, keep_live }) => {
            let handler = session.client.activate_handler(&version, ActivateQuery { keep_live }).await?;
            session.output.show(&handler, standing)
        }
        HandlersCommand::Inspect(arguments) => inspect(&arguments, session.output),
        HandlersCommand::Retire(VersionArguments { version }) => {
            let retired = session.client.retire_handler(&version).await?;
            session.output.show(&retired, |retired| standing(&retired.handler))?;
            if let (false, Some(warning)) = (session.output.is_json(), unserved(&retired)) {
                session.output.note(&warning);
            }
            Ok(())
        }
    }
}

async fn push(arguments: PushArguments, session: &Session) -> Result<(), Failure> {
    let component = read(&arguments.file)?;
    let named = named(arguments.name, arguments.version, &component)?;
    let pushed = session.client.push_handler(named.as_deref(), component.into()).await?;
    if !arguments.activate {
        return session.output.show(&pushed, stored);
    }
    if !session.output.is_json() {
        // Said before the activation, which may fail: the version is stored all the same.
        session.output.text(&stored(&pushed))?;
    }
    let activated = session.client.activate_handler(&pushed.version, ActivateQuery::default()).await?;
    session.output.show(&json!({ "pushed": pushed, "activated": activated }), |_| standing(&activated))
}

/// The version to store under, if it is not all the component's own. What is not given comes from the component.
fn named(name: Option<String>, version: Option<String>, component: &[u8]) -> Result<Option<String>, Failure> {
    if name.is_none() && version.is_none() {
        return Ok(None);
    }
    let own = look_into(component)?;
    match (name.or(own.name), version.or(own.version)) {
        (Some(name), Some(version)) => Ok(Some(format!("{name}@{version}"))),
        _ => {
            Err(Failure::usage("the component carries no name and version of its own; give both --name and --version"))
        }
    }
}

fn look_into(component: &[u8]) -> Result<Inspection, Failure> {
    leasehold_sandbox::inspect(component)
        .map_err(|error| Failure::Failed { code: error.code(), message: error.to_string() })
}

/// Looks into a component on this side of the socket.
pub fn inspect(arguments: &InspectArguments, output: Output) -> Result<(), Failure> {
    let inspection = look_into(&read(&arguments.file)?)?;
    let needs: Vec<_> =
        inspection.needs.iter().map(|need| json!({ "import": need.import, "grant": need.grant })).collect();
    let shown = json!({
        "name": inspection.name, "version": inspection.version, "imports": inspection.imports,
        "exports": inspection.exports, "needs": needs, "never": inspection.never,
    });
    output.show(&shown, |_| inspected(&inspection))
}

fn inspected(inspection: &Inspection) -> String {
    let or_none = |text: &Option<String>| text.as_deref().map_or_else(|| "-".to_owned(), text::escape);
    let list = |lines: Vec<String>| if lines.is_empty() { "-".to_owned() } else { lines.join("\n") };
    let escaped = |names: &[String]| list(names.iter().map(|name| text::escape(name)).collect());
    [
        fields([("Name", or_none(&inspection.name)), ("Version", or_none(&inspection.version))]),
        text::section(
            "Has to be granted, where it is not",
            &list(inspection.needs.iter().map(|need| text::escape(&need.to_string())).collect()),
        ),
        text::section("Can't be granted, so that it never goes live", &escaped(&inspection.never)),
        text::section("Imports", &escaped(&inspection.imports)),
        text::section("Exports", &escaped(&inspection.exports)),
    ]
    .join("\n")
}

fn read(file: &PathBuf) -> Result<Vec<u8>, Failure> {
    fs::read(file).map_err(|error| Failure::unreadable(file.display(), &error))
}

fn stored(pushed: &PushAnswer) -> String {
    let (version, digest) = (text::escape(&pushed.version), text::escape(&short_digest(&pushed.digest)));
    let became = if pushed.already_stored { "was stored already, with the same bytes" } else { "is stored" };
    format!("{version} ({digest}) {became}")
}

fn standing(handler: &HandlerView) -> String {
    let current = if handler.current { ": new attempts run on it" } else { "" };
    format!("{} is {}{current}", text::escape(&handler.version), handler.state.as_str())
}

/// What nobody serves any more, if that is so.
fn unserved(retired: &RetireAnswer) -> Option<String> {
    if retired.waiting.is_empty() {
        return None;
    }
    let kinds: Vec<_> = retired.waiting.keys().map(String::as_str).collect();
    let jobs: u64 = retired.waiting.values().sum();
    let kinds = kinds.join(", ");
    Some(format!(
        "warning: no version of this handler is live now; {jobs} jobs of kinds {kinds} wait until one is (leasehold handlers activate)"
    ))
}

fn listed(page: &Page<HandlerView>) -> String {
    let row = |handler: &HandlerView| {
        [
            handler.version.clone(),
            handler.state.as_str().to_owned(),
            yes(handler.current),
            if handler.intact { "intact" } else { "DAMAGED" }.to_owned(),
            handler.running.to_string(),
            short_digest(&handler.digest),
            time(Some(handler.stored_at)),
            handler.stored_by.clone(),
        ]
    };
    let header = ["VERSION", "STATE", "CURRENT", "COMPONENT", "RUNNING", "DIGEST", "STORED", "BY"];
    table(header, page.items.iter().map(row))
}

fn shown(handler: &HandlerView) -> String {
    fields([
        ("Version", handler.version.clone()),
        ("Digest", handler.digest.clone()),
        ("State", handler.state.as_str().to_owned()),
        ("Current", yes(handler.current)),
        ("Component", if handler.intact { "intact" } else { "missing or damaged" }.to_owned()),
        ("Size", format!("{} bytes", handler.size_bytes)),
        ("Running", handler.running.to_string()),
        ("Stored", time(Some(handler.stored_at))),
        ("Stored by", handler.stored_by.clone()),
        ("Activated", time(handler.activated_at)),
    ])
}
