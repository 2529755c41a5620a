//! `leasehold dlq`: lists, shows, rehearses, replays and discards dead letters.

use clap::{Args, Subcommand};
use leasehold_api::{
    DeadLetterFilter, DeadLetterGroup, DeadLetterState, DeadLetterSummary, DeadLetterView, DiscardRequest,
    ReplayAnswer, ReplayRequest, ReplayView, StepResolution,
};
use leasehold_domain::Cause;
use serde_json::{json, value::RawValue};

use super::{
    Failure, Session, bulk_replay, jobs,
    payload::{PayloadSource, corrected},
    rehearse, reveal,
    text::{self, fields, section, short_digest, table, time},
};

/// What to do with dead letters.
#[derive(Debug, Subcommand)]
pub enum DlqCommand {
    /// List dead letters, the newest first
    Ls(ListArguments),
    /// Count open dead letters by kind, error class and version
    Groups,
    /// Show a dead letter, redacted, with the attempts of its job
    Show(ShowArguments),
    /// Send dead letters' jobs back onto a live version: one by its id, many by --kind
    Replay(Box<ReplayArguments>),
    /// Run a dead letter on any stored version with nothing applied, and see what it would do
    Rehearse(rehearse::RehearseArguments),
    /// Give a dead letter up
    Discard(DiscardArguments),
    Reveal(reveal::RevealArguments),
}

/// Which dead letters to list.
#[derive(Debug, Args)]
pub struct ListArguments {
    /// Of this kind
    #[arg(long)]
    kind: Option<String>,
    /// Of this cause
    #[arg(long, value_parser = cause)]
    cause: Option<Cause>,
    /// Of this error class
    #[arg(long)]
    class: Option<String>,
    /// In this state
    #[arg(long, value_parser = state, default_value = "open")]
    state: DeadLetterState,
    /// How many at most
    #[arg(long)]
    limit: Option<u32>,
    /// Where to go on: what the list before named
    #[arg(long)]
    cursor: Option<String>,
}

/// One dead letter.
#[derive(Debug, Args)]
pub struct ShowArguments {
    /// The dead letter's id
    id: i64,
}

/// How to replay a dead letter, or many.
#[derive(Debug, Args)]
pub struct ReplayArguments {
    /// The dead letter's id
    // Each option for many is named: one that asks only for a kind would be let through beside an id, and
    // `replay 7 --dry-run` would replay.
    #[arg(
        required_unless_present = "kind",
        conflicts_with_all = ["kind", "class", "cause", "died_on", "since", "until", "dry_run", "probe", "rate", "yes"]
    )]
    id: Option<i64>,
    /// Why; it is kept with the replay
    #[arg(long, required_unless_present = "dry_run")]
    reason: Option<String>,
    /// The live version to run on, NAME@1.2.0 or 1.2.0 [default: the handler's current one]
    #[arg(long, value_name = "NAME@VERSION")]
    version: Option<String>,
    /// Why to go ahead on a version that the job has died on, or that is older than an incident's fix
    #[arg(long)]
    override_reason: Option<String>,
    /// A corrected payload: JSON, @FILE, or - for the standard input
    #[arg(long, value_name = "JSON|@FILE|-", conflicts_with = "kind")]
    payload: Option<PayloadSource>,
    /// What is known of a step in doubt: NAME=applied, NAME=applied:RESULT (JSON), or NAME=not-applied
    #[arg(long = "step", value_name = "NAME=WHAT", value_parser = step, conflicts_with = "kind")]
    steps: Vec<(String, StepResolution)>,
    /// Send the corrected payload as any bytes, not as JSON
    #[arg(long, requires = "payload")]
    bytes: bool,
    #[command(flatten, next_help_heading = "Many dead letters")]
    many: bulk_replay::ManyArguments,
}

/// Why to give a dead letter up.
#[derive(Debug, Args)]
pub struct DiscardArguments {
    /// The dead letter's id
    id: i64,
    /// Why; it is kept in the audit log
    #[arg(long)]
    reason: String,
}

/// Runs the command.
pub async fn run(command: DlqCommand, session: &Session) -> Result<(), Failure> {
    match command {
        DlqCommand::Ls(arguments) => {
            let page = session.client.dead_letters(&arguments.into()).await?;
            session.output.page(&page, |page| summaries(&page.items))
        }
        DlqCommand::Groups => {
            let page = session.client.dead_letter_groups().await?;
            session.output.show(&page, |page| groups(&page.items))
        }
        DlqCommand::Show(ShowArguments { id }) => {
            let letter = session.client.dead_letter(id).await?;
            session.output.show(&letter, shown)
        }
        DlqCommand::Replay(arguments) => replay(*arguments, session).await,
        DlqCommand::Rehearse(arguments) => rehearse::run(arguments, session).await,
        DlqCommand::Reveal(arguments) => reveal::run(arguments, session).await,
        DlqCommand::Discard(DiscardArguments { id, reason }) => {
            session.client.discard(id, &DiscardRequest { reason }).await?;
            session
                .output
                .show(&json!({ "id": id, "state": "discarded" }), |_| format!("dead letter {id} is discarded"))
        }
    }
}

impl From<ListArguments> for DeadLetterFilter {
    fn from(arguments: ListArguments) -> Self {
        let ListArguments { kind, cause, class, state, limit, cursor } = arguments;
        Self { kind, cause, class, state: Some(state), limit, cursor }
    }
}

/// Reads a cause.
pub fn cause(text: &str) -> Result<Cause, String> {
    let allowed = || Cause::ALL.map(Cause::as_str).join(", ");
    Cause::parse(text).ok_or_else(|| format!("the causes are {}", allowed()))
}

fn state(text: &str) -> Result<DeadLetterState, String> {
    let allowed = || DeadLetterState::ALL.map(DeadLetterState::as_str).join(", ");
    DeadLetterState::parse(text).ok_or_else(|| format!("the states of a dead letter are {}", allowed()))
}

fn step(text: &str) -> Result<(String, StepResolution), String> {
    let form = || "a step is written NAME=applied, NAME=applied:RESULT or NAME=not-applied".to_owned();
    let (name, said) = text.split_once('=').ok_or_else(form)?;
    let (applied, result) = match said.split_once(':') {
        None if said == "applied" => (true, None),
        None if said == "not-applied" => (false, None),
        Some(("applied", result)) => {
            let result =
                RawValue::from_string(result.to_owned()).map_err(|error| format!("the result is no JSON: {error}"))?;
            (true, Some(result))
        }
        _ => return Err(form()),
    };
    Ok((name.to_owned(), StepResolution { applied, result }))
}

async fn replay(arguments: ReplayArguments, session: &Session) -> Result<(), Failure> {
    let reason = arguments.reason.unwrap_or_default();
    if let Some(kind) = arguments.many.kind.clone() {
        let said = bulk_replay::Said { reason, version: arguments.version, override_reason: arguments.override_reason };
        return bulk_replay::run(kind, arguments.many, said, session).await;
    }
    let (json, base64) = corrected(arguments.payload, arguments.bytes)?;
    let request = ReplayRequest {
        version: arguments.version,
        reason,
        override_reason: arguments.override_reason,
        payload: json,
        payload_base64: base64,
        steps: arguments.steps.into_iter().collect(),
    };
    let answer = session.client.replay(arguments.id.unwrap_or_default(), &request).await?;
    session.output.show(&answer, replayed)
}

fn replayed(answer: &ReplayAnswer) -> String {
    let ReplayAnswer { replay_id, job_id, version, digest } = answer;
    let (version, digest) = (text::escape(version), text::escape(&short_digest(digest)));
    format!("replay {replay_id}: job {job_id} is back in the queue, bound to {version} ({digest})")
}

/// Dead letters as a table.
pub fn summaries(letters: &[DeadLetterSummary]) -> String {
    let header = ["ID", "JOB", "KIND", "CAUSE", "ERROR", "STATE", "DIED", "ATTEMPT", "HANDLER", "DIGEST"];
    let row = |letter: &DeadLetterSummary| {
        [
            letter.id.to_string(),
            letter.job_id.to_string(),
            letter.kind.clone(),
            letter.cause.as_str().to_owned(),
            letter.error_class.clone(),
            letter.state.to_string(),
            time(Some(letter.died_at)),
            letter.attempt.to_string(),
            letter.handler.clone().unwrap_or_default(),
            letter.digest.as_deref().map(short_digest).unwrap_or_default(),
        ]
    };
    table(header, letters.iter().map(row))
}

fn groups(groups: &[DeadLetterGroup]) -> String {
    let header = ["KIND", "ERROR", "HANDLER", "OPEN", "FIRST DIED", "LAST DIED", "LATEST", "INCIDENT"];
    let row = |group: &DeadLetterGroup| {
        [
            group.kind.clone(),
            group.error_class.clone(),
            group.handler.clone().unwrap_or_default(),
            group.open_dead_letters.to_string(),
            time(Some(group.first_died_at)),
            time(Some(group.last_died_at)),
            group.latest_id.to_string(),
            group.incident_id.map(|id| id.to_string()).unwrap_or_default(),
        ]
    };
    table(header, groups.iter().map(row))
}

/// Replays as a table.
pub fn replays(replays: &[ReplayView]) -> String {
    let header =
        ["REPLAY", "DEAD LETTER", "BY", "ASKED FOR", "VERSION", "DIGEST", "PAYLOAD", "RESULT", "ENDED", "REASON"];
    let row = |replay: &ReplayView| {
        [
            replay.id.to_string(),
            replay.dead_letter_id.to_string(),
            replay.actor.clone(),
            time(Some(replay.requested_at)),
            replay.version.clone(),
            short_digest(&replay.digest),
            if replay.payload_corrected { "corrected" } else { "the same" }.to_owned(),
            replay.result.clone().unwrap_or_default(),
            time(replay.ended_at),
            replay.reason.clone(),
        ]
    };
    table(header, replays.iter().map(row))
}

fn shown(letter: &DeadLetterView) -> String {
    let mut parts = vec![fields(facts(letter))];
    parts.push(section("Payload, redacted", &text::block(&letter.redacted_payload)));
    parts.push(section("Attempts", &jobs::attempts(&letter.attempts)));
    if !letter.steps.is_empty() {
        parts.push(section("Steps", &jobs::steps(&letter.steps)));
    }
    if !letter.replays.is_empty() {
        parts.push(section("Replays", &replays(&letter.replays)));
    }
    if !letter.notes.is_empty() {
        parts.push(section("Notes", &jobs::notes(&letter.notes)));
    }
    parts.join("\n\n")
}

fn facts(letter: &DeadLetterView) -> Vec<(&'static str, String)> {
    let summary = &letter.summary;
    vec![
        ("Dead letter", summary.id.to_string()),
        ("Job", summary.job_id.to_string()),
        ("Kind", summary.kind.clone()),
        ("Lane", summary.lane.clone().unwrap_or_default()),
        ("Key", letter.key.clone()),
        ("State", summary.state.to_string()),
        ("Cause", summary.cause.as_str().to_owned()),
        ("Error", summary.error_class.clone()),
        ("Message", summary.message.clone()),
        ("Died", time(Some(summary.died_at))),
        ("Handler", summary.handler.clone().unwrap_or_default()),
        ("Digest", summary.digest.clone().unwrap_or_default()),
        ("Closed", time(letter.closed_at)),
        ("Closed by", letter.closed_by.clone().unwrap_or_default()),
        ("Payload digest", letter.payload_digest.clone().unwrap_or_default()),
        ("Original", if letter.original_kept { "kept, sealed" } else { "not kept" }.to_owned()),
    ]
}
