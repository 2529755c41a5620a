//! `leasehold jobs`: lists, shows, cancels and waits for jobs.

use std::time::{Duration, Instant};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use clap::{Args, Subcommand};
use leasehold_api::{
    AttemptView, JobFilter, JobStateAnswer, JobSummary, JobView, NoteView, Page, StepRunView, StepView, WaitQuery,
};
use leasehold_domain::JobState;

use super::{
    Failure, Session, dlq, payload,
    text::{self, fields, section, short_digest, table, time},
};

/// How long one call waits; a longer wait is made of several, so that a daemon that restarts is found again.
const WAIT_STEP_MS: u64 = 20_000;

/// What to do with jobs.
#[derive(Debug, Subcommand)]
pub enum JobsCommand {
    /// List jobs, the newest first
    Ls(ListArguments),
    /// Show a job with its attempts and steps
    Show(JobArguments),
    /// Cancel a job
    Cancel(JobArguments),
    /// Wait until a job has ended
    Wait(WaitArguments),
}

/// One job.
#[derive(Debug, Args)]
pub struct JobArguments {
    /// The job's id
    id: i64,
}

/// Which jobs to list.
#[derive(Debug, Args)]
pub struct ListArguments {
    /// Of this kind
    #[arg(long)]
    kind: Option<String>,
    /// In this state
    #[arg(long, value_parser = job_state)]
    state: Option<JobState>,
    /// The one that was sent with this key, of the kind that --kind names
    #[arg(long, requires = "kind")]
    key: Option<String>,
    /// Of this lane
    #[arg(long)]
    lane: Option<String>,
    /// How many at most
    #[arg(long)]
    limit: Option<u32>,
    /// Where to go on: what the list before named
    #[arg(long)]
    cursor: Option<String>,
}

/// How long to wait for a job.
#[derive(Debug, Args)]
pub struct WaitArguments {
    /// The job's id
    id: i64,
    /// How long at most, such as 30s [default: until it has ended]
    #[arg(long, value_parser = payload::duration_ms)]
    timeout: Option<u64>,
}

/// Runs the command.
pub async fn run(command: JobsCommand, session: &Session) -> Result<(), Failure> {
    match command {
        JobsCommand::Ls(arguments) => {
            let page = session.client.jobs(&arguments.into()).await?;
            session.output.page(&page, listed)
        }
        JobsCommand::Show(JobArguments { id }) => {
            let job = session.client.job(id).await?;
            session.output.show(&job, shown)
        }
        JobsCommand::Cancel(JobArguments { id }) => {
            let answer = session.client.cancel(id).await?;
            session.output.show(&answer, cancelled)
        }
        JobsCommand::Wait(arguments) => wait(&arguments, session).await,
    }
}

impl From<ListArguments> for JobFilter {
    fn from(arguments: ListArguments) -> Self {
        let ListArguments { kind, state, key, lane, limit, cursor } = arguments;
        Self { kind, state, key, lane, limit, cursor }
    }
}

fn job_state(text: &str) -> Result<JobState, String> {
    let allowed = || JobState::ALL.map(JobState::as_str).join(", ");
    JobState::parse(text).ok_or_else(|| format!("the states of a job are {}", allowed()))
}

async fn wait(arguments: &WaitArguments, session: &Session) -> Result<(), Failure> {
    let begun = Instant::now();
    let limit = arguments.timeout.map(Duration::from_millis);
    loop {
        let left = limit.map(|limit| limit.saturating_sub(begun.elapsed()));
        let left_ms = left.map_or(WAIT_STEP_MS, |left| u64::try_from(left.as_millis()).unwrap_or(WAIT_STEP_MS));
        let query = WaitQuery { timeout_ms: Some(left_ms.min(WAIT_STEP_MS)) };
        let answer = session.client.wait(arguments.id, &query).await?;
        if answer.ended || limit.is_some_and(|limit| begun.elapsed() >= limit) {
            return waited(&answer, begun.elapsed(), session);
        }
    }
}

fn waited(answer: &JobStateAnswer, waited: Duration, session: &Session) -> Result<(), Failure> {
    let JobStateAnswer { id, state, .. } = *answer;
    session.output.show(answer, |_| format!("job {id} is {}", state.as_str()))?;
    if !answer.ended {
        return Err(Failure::TimedOut { id, state, waited_seconds: waited.as_secs() });
    }
    if state == JobState::Done { Ok(()) } else { Err(Failure::EndedOtherwise { id, state }) }
}

fn cancelled(answer: &JobStateAnswer) -> String {
    let stopping = if answer.ended { "" } else { " and is being stopped" };
    format!("job {} is {}{stopping}", answer.id, answer.state.as_str())
}

fn listed(page: &Page<JobSummary>) -> String {
    let header = ["ID", "KIND", "STATE", "LANE", "ATTEMPT", "ENQUEUED", "VISIBLE OR ENDED", "BY"];
    let row = |job: &JobSummary| {
        [
            job.id.to_string(),
            job.kind.clone(),
            job.state.as_str().to_owned(),
            job.lane.clone().unwrap_or_default(),
            job.attempt.to_string(),
            time(Some(job.enqueued_at)),
            time(job.ended_at.or(job.visible_at)),
            job.enqueued_by.clone(),
        ]
    };
    table(header, page.items.iter().map(row))
}

fn shown(job: &JobView) -> String {
    let mut parts = vec![fields(facts(job))];
    if !job.attempts.is_empty() {
        parts.push(section("Attempts", &attempts(&job.attempts)));
    }
    if !job.steps.is_empty() {
        parts.push(section("Steps", &steps(&job.steps)));
    }
    if !job.dead_letters.is_empty() {
        parts.push(section("Dead letters", &dlq::summaries(&job.dead_letters)));
    }
    if !job.replays.is_empty() {
        parts.push(section("Replays", &dlq::replays(&job.replays)));
    }
    if !job.notes.is_empty() {
        parts.push(section("Notes", &notes(&job.notes)));
    }
    parts.join("\n\n")
}

fn facts(job: &JobView) -> Vec<(&'static str, String)> {
    let summary = &job.summary;
    let attempts_max = job.attempts_max.map(|max| format!(" of {max}")).unwrap_or_default();
    vec![
        ("Job", summary.id.to_string()),
        ("Kind", summary.kind.clone()),
        ("Lane", summary.lane.clone().unwrap_or_default()),
        ("State", summary.state.as_str().to_owned()),
        ("Priority", summary.priority.to_string()),
        ("Attempts", format!("{}{attempts_max} counted", summary.attempts_used)),
        ("Enqueued", time(Some(summary.enqueued_at))),
        ("Enqueued by", summary.enqueued_by.clone()),
        ("Visible", time(summary.visible_at)),
        ("Ended", time(summary.ended_at)),
        ("Reason", summary.reason.clone().unwrap_or_default()),
        ("Payload", format!("{} bytes, {}", summary.payload_bytes, summary.content_type)),
        ("Result", job.result_base64.as_deref().map(result).unwrap_or_default()),
    ]
}

/// A result as text where it is text, else as it came.
fn result(base64: &str) -> String {
    let text = BASE64_STANDARD.decode(base64).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    text.map_or_else(|| base64.to_owned(), |text| text::escape(&text))
}

/// Other jobs' notes as a table.
pub fn notes(notes: &[NoteView]) -> String {
    let row = |note: &NoteView| {
        [
            time(Some(note.at)),
            note.class.clone(),
            note.text.clone(),
            format!("job {} ({})", note.by_job_id, note.by_kind),
        ]
    };
    table(["AT", "CLASS", "NOTE", "BY"], notes.iter().map(row))
}

/// The attempts as a table, and under it their guests' traps and logs.
pub fn attempts(attempts: &[AttemptView]) -> String {
    let header = ["ATTEMPT", "STARTED", "ENDED", "HANDLER", "DIGEST", "ENDED AS", "ERROR", "IN DOUBT", "MESSAGE"];
    let row = |attempt: &AttemptView| {
        [
            attempt.number.to_string(),
            time(Some(attempt.started_at)),
            time(attempt.ended_at),
            attempt.handler.clone().unwrap_or_default(),
            attempt.digest.as_deref().map(short_digest).unwrap_or_default(),
            attempt.ended_as.clone().unwrap_or_else(|| "running".to_owned()),
            attempt.error_class.clone().unwrap_or_default(),
            attempt.in_doubt_steps.join(" "),
            attempt.message.clone().unwrap_or_default(),
        ]
    };
    let mut parts = vec![table(header, attempts.iter().map(row))];
    for attempt in attempts {
        for (title, text) in [("Trap", &attempt.trap), ("Log", &attempt.log)] {
            if let Some(text) = text.as_deref().filter(|text| !text.is_empty()) {
                parts.push(section(&format!("{title} of attempt {}", attempt.number), &text::block(text)));
            }
        }
    }
    parts.join("\n\n")
}

/// The steps as a table, a row for each run of an effect.
pub fn steps(steps: &[StepView]) -> String {
    let rows = steps.iter().flat_map(|step| step.runs.iter().map(move |run| step_row(step, run)));
    table(["STEP", "STATE", "RUN BY ATTEMPT", "BEGUN", "IN DOUBT THEN", "RUN ENDED AS"], rows)
}

fn step_row(step: &StepView, run: &StepRunView) -> [String; 6] {
    [
        step.name.clone(),
        step.state.clone(),
        run.attempt.to_string(),
        time(Some(run.begun_at)),
        text::yes(run.in_doubt),
        run.ended_as.clone().unwrap_or_else(|| "not known".to_owned()),
    ]
}
