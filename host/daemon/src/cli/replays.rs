//! `leasehold replays`: lists, shows, stops, resumes and waits for bulk replays.

use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use leasehold_api::{
    BulkReplayChange, BulkReplayCounts, BulkReplayFilter, BulkReplayMember, BulkReplayMemberFilter, BulkReplayState,
    BulkReplayView, Page, WaitQuery,
};

use super::{
    Failure, Session, bulk_replay,
    bulk_replay::number,
    payload,
    text::{fields, section, short_digest, table, time},
};

/// How long one call waits; a longer wait is made of several, so that a daemon that restarts is found again.
const WAIT_STEP_MS: u64 = 20_000;
/// How long one call waits while somebody watches.
const WATCHED_STEP_MS: u64 = 500;

/// What to do with bulk replays.
#[derive(Debug, Subcommand)]
pub enum ReplaysCommand {
    /// List bulk replays, the newest first
    Ls(PageArguments),
    /// Show a bulk replay: how far it is, how its jobs ended, and why members were refused
    Show(BulkArguments),
    /// List the members of a bulk replay in the order of their turns
    Members(MembersArguments),
    /// Let no further member go; jobs that were replayed go on
    Stop(BulkArguments),
    /// Let a stopped bulk replay go on; after a probe that failed, the next member is the probe
    Resume(BulkArguments),
    /// Wait until every member has had its turn, or it has stopped, and the replayed jobs have ended
    Wait(WaitArguments),
}

/// One bulk replay.
#[derive(Debug, Args)]
pub struct BulkArguments {
    /// The bulk replay's id
    id: i64,
}

/// A page of a list.
#[derive(Debug, Args)]
pub struct PageArguments {
    /// How many at most
    #[arg(long)]
    limit: Option<u32>,
    /// Where to go on: what the list before named
    #[arg(long)]
    cursor: Option<String>,
}

/// Which members to list.
#[derive(Debug, Args)]
pub struct MembersArguments {
    /// The bulk replay's id
    id: i64,
    /// In this state: pending, replayed or refused
    #[arg(long)]
    state: Option<String>,
    #[command(flatten)]
    page: PageArguments,
}

/// How long to wait for a bulk replay.
#[derive(Debug, Args)]
pub struct WaitArguments {
    /// The bulk replay's id
    id: i64,
    /// How long at most, such as 30s [default: until nothing of it is under way]
    #[arg(long, value_parser = payload::duration_ms)]
    timeout: Option<u64>,
}

/// Runs the command.
pub async fn run(command: ReplaysCommand, session: &Session) -> Result<(), Failure> {
    match command {
        ReplaysCommand::Ls(PageArguments { limit, cursor }) => {
            let page = session.client.bulk_replays(&BulkReplayFilter { limit, cursor }).await?;
            session.output.page(&page, listed)
        }
        ReplaysCommand::Show(BulkArguments { id }) => {
            let view = session.client.bulk_replay(id).await?;
            session.output.show(&view, shown)
        }
        ReplaysCommand::Members(MembersArguments { id, state, page: PageArguments { limit, cursor } }) => {
            let filter = BulkReplayMemberFilter { state, limit, cursor };
            let page = session.client.bulk_replay_members(id, &filter).await?;
            session.output.page(&page, members)
        }
        ReplaysCommand::Stop(BulkArguments { id }) => {
            let change = session.client.stop_bulk_replay(id).await?;
            session.output.show(&change, stopped)
        }
        ReplaysCommand::Resume(BulkArguments { id }) => {
            let change = session.client.resume_bulk_replay(id).await?;
            session.output.show(&change, resumed)
        }
        ReplaysCommand::Wait(arguments) => wait(&arguments, session).await,
    }
}

async fn wait(arguments: &WaitArguments, session: &Session) -> Result<(), Failure> {
    let begun = Instant::now();
    let limit = arguments.timeout.map(Duration::from_millis);
    let progress = progress_bar(session);
    let step_ms = if progress.is_hidden() { WAIT_STEP_MS } else { WATCHED_STEP_MS };
    loop {
        let left = limit.map(|limit| limit.saturating_sub(begun.elapsed()));
        let left_ms = left.map_or(step_ms, |left| u64::try_from(left.as_millis()).unwrap_or(step_ms));
        let query = WaitQuery { timeout_ms: Some(left_ms.min(step_ms)) };
        let view = session.client.wait_for_bulk_replay(arguments.id, &query).await?;
        progress.set_length(view.counts.members);
        progress.set_position(view.counts.members - view.counts.pending);
        progress.set_message(progressed(&view));
        let is_late = limit.is_some_and(|limit| begun.elapsed() >= limit);
        if view.settled || is_late {
            progress.finish_and_clear();
            return waited(&view, begun.elapsed(), session);
        }
    }
}

/// Progress on a terminal; nothing elsewhere or beside JSON.
fn progress_bar(session: &Session) -> ProgressBar {
    let target = if session.output.is_json() { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    let progress = ProgressBar::with_draw_target(None, target);
    match ProgressStyle::with_template("{wide_bar} {pos}/{len} {msg}") {
        Ok(style) => progress.with_style(style),
        Err(_) => progress,
    }
}

fn progressed(view: &BulkReplayView) -> String {
    let BulkReplayCounts { running, done, suppressed, dead, refused, .. } = &view.counts;
    format!("{}: {running} running, {} done, {dead} dead, {refused} refused", view.state.as_str(), done + suppressed)
}

fn waited(view: &BulkReplayView, waited: Duration, session: &Session) -> Result<(), Failure> {
    session.output.show(view, shown)?;
    if !view.settled {
        return Err(Failure::BulkTimedOut {
            id: view.id,
            state: view.state.as_str(),
            waited_seconds: waited.as_secs(),
        });
    }
    match why_not_well(view) {
        None => Ok(()),
        Some(why) => Err(Failure::BulkEndedOtherwise { id: view.id, why }),
    }
}

/// What kept a bulk replay from ending well, if anything.
fn why_not_well(view: &BulkReplayView) -> Option<String> {
    let BulkReplayCounts { refused, dead, cancelled, .. } = view.counts;
    if view.state == BulkReplayState::Stopped {
        return Some(format!("has stopped: {}", view.stop_reason.clone().unwrap_or_default()));
    }
    let counts = [(refused, "were refused"), (dead, "died again"), (cancelled, "were cancelled")];
    let bad: Vec<_> =
        counts.into_iter().filter(|(count, _)| *count > 0).map(|(n, what)| format!("{n} {what}")).collect();
    (!bad.is_empty()).then(|| format!("is done: of {} {}", number(view.counts.members, "member"), bad.join(", ")))
}

fn listed(page: &Page<BulkReplayView>) -> String {
    let header = [
        "ID", "STATE", "KIND", "ONTO", "MEMBERS", "PENDING", "RUNNING", "DONE", "DEAD", "REFUSED", "STARTED", "BY",
        "REASON",
    ];
    let row = |view: &BulkReplayView| {
        let counts = &view.counts;
        [
            view.id.to_string(),
            view.state.as_str().to_owned(),
            view.selection.kind.clone(),
            view.version.clone(),
            counts.members.to_string(),
            counts.pending.to_string(),
            counts.running.to_string(),
            (counts.done + counts.suppressed).to_string(),
            counts.dead.to_string(),
            counts.refused.to_string(),
            time(Some(view.started_at)),
            view.actor.clone(),
            view.reason.clone(),
        ]
    };
    table(header, page.items.iter().map(row))
}

fn members(page: &Page<BulkReplayMember>) -> String {
    let header = ["DEAD LETTER", "JOB", "STATE", "AT", "REPLAY", "RESULT", "CODE", "WHY"];
    let row = |member: &BulkReplayMember| {
        [
            member.dead_letter_id.to_string(),
            member.job_id.to_string(),
            member.state.clone(),
            time(member.at),
            member.replay_id.map(|replay| replay.to_string()).unwrap_or_default(),
            member.result.clone().unwrap_or_default(),
            member.code.clone().unwrap_or_default(),
            member.detail.clone().unwrap_or_default(),
        ]
    };
    table(header, page.items.iter().map(row))
}

fn stopped(change: &BulkReplayChange) -> String {
    let view = &change.bulk_replay;
    let already = if change.changed { "" } else { " already" };
    let pending = number(view.counts.pending, "member");
    format!("bulk replay {} is stopped{already}; {pending} had no turn: leasehold replays resume {}", view.id, view.id)
}

fn resumed(change: &BulkReplayChange) -> String {
    let view = &change.bulk_replay;
    let already = if change.changed { "goes on" } else { "is running already" };
    format!("bulk replay {} {already}; {} to go", view.id, number(view.counts.pending, "member"))
}

/// What the preview saw and the bulk replay has not taken, in a line each.
pub fn left_out(counts: &BulkReplayCounts) -> Vec<String> {
    let reasons = [
        (counts.left_out_closed, "of the preview had been replayed or discarded by then"),
        (counts.left_out_in_others, "of the preview wait for their turn in another bulk replay"),
    ];
    reasons.into_iter().filter(|(count, _)| *count > 0).map(|(count, why)| format!("{count} {why}")).collect()
}

fn shown(view: &BulkReplayView) -> String {
    let mut parts = vec![fields(facts(view))];
    if !view.refused.is_empty() {
        parts.push(section("Refused at their turn", &bulk_replay::refused(&view.refused)));
    }
    parts.join("\n\n")
}

fn facts(view: &BulkReplayView) -> Vec<(&'static str, String)> {
    let BulkReplayCounts { members, pending, replayed, refused, running, done, suppressed, dead, cancelled, .. } =
        &view.counts;
    let selection = &view.selection;
    let digest = short_digest(&view.digest);
    vec![
        ("Bulk replay", view.id.to_string()),
        ("State", view.state.as_str().to_owned()),
        ("Why", view.stop_reason.clone().unwrap_or_default()),
        ("Kind", selection.kind.clone()),
        ("Class", selection.class.clone().unwrap_or_default()),
        ("Cause", selection.cause.map(|cause| cause.as_str().to_owned()).unwrap_or_default()),
        ("Died on", selection.died_on.clone().unwrap_or_default()),
        ("Died since", time(selection.since)),
        ("Died before", time(selection.until)),
        ("Onto", format!("{} ({digest})", view.version)),
        ("By", view.actor.clone()),
        ("Reason", view.reason.clone()),
        ("Override", view.override_reason.clone().unwrap_or_default()),
        ("Rate", view.rate.clone().unwrap_or_default()),
        ("Probe", if view.probe { "one first" } else { "" }.to_owned()),
        ("Started", time(Some(view.started_at))),
        ("Stopped", time(view.stopped_at)),
        ("Stopped by", view.stopped_by.clone().unwrap_or_default()),
        ("Done", time(view.done_at)),
        ("Members", format!("{members}: {replayed} replayed, {refused} refused, {pending} pending")),
        (
            "Replayed jobs",
            format!("{done} done, {suppressed} suppressed, {dead} dead, {cancelled} cancelled, {running} not ended"),
        ),
        ("Left out", left_out(&view.counts).join("; ")),
    ]
}
