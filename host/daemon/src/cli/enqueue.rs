//! `leasehold enqueue`: one job from the command line. A file of jobs is `enqueue_file`'s.

use std::path::PathBuf;

use clap::Args;
use leasehold_api::{EnqueueAnswer, EnqueueRequest, Timestamp};

use super::{
    Failure, Session, enqueue_file, payload,
    payload::{Payload, PayloadSource},
};

/// Send jobs in.
#[derive(Debug, Args)]
pub struct EnqueueArguments {
    /// The job type; with --file, the kind of lines that name none
    #[arg(required_unless_present = "file")]
    kind: Option<String>,
    /// The payload: JSON, @FILE, or - for the standard input
    #[arg(long, value_name = "JSON|@FILE|-", required_unless_present = "file")]
    payload: Option<PayloadSource>,
    /// Send the payload as any bytes, not as JSON
    #[arg(long, requires = "payload")]
    bytes: bool,
    /// The payload's media type
    #[arg(long, value_name = "TYPE")]
    content_type: Option<String>,
    /// The job's idempotency key: sending it again gives the first job back [default: a fresh one]
    #[arg(long)]
    key: Option<String>,
    /// What the job shares a rate limit with: a customer, a host
    #[arg(long)]
    lane: Option<String>,
    /// Moves the job's place in line forward, a step each
    #[arg(long, allow_negative_numbers = true)]
    priority: Option<i32>,
    /// How long the job waits before it can run, such as 5m
    #[arg(long, value_parser = payload::duration_ms, conflicts_with = "run_at")]
    delay: Option<u64>,
    /// When the job can run, such as 2026-03-01T09:30:00Z
    #[arg(long, value_name = "TIME")]
    run_at: Option<Timestamp>,
    /// A name and a value that travel with the job; can be given several times
    #[arg(long = "meta", value_name = "NAME=VALUE", value_parser = payload::name_and_value)]
    metadata: Vec<(String, String)>,
    /// Send a JSON Lines file of jobs, or - for the standard input: what is wrong is named by its line, the rest goes in
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["payload", "content_type", "key", "lane", "priority", "delay", "run_at", "metadata"]
    )]
    file: Option<PathBuf>,
}

/// Runs the command.
pub async fn run(arguments: EnqueueArguments, session: &Session) -> Result<(), Failure> {
    if let Some(file) = &arguments.file {
        return enqueue_file::run(file, arguments.kind.as_deref(), session).await;
    }
    let answer = session.client.enqueue(&job(arguments)?).await?;
    session.output.show(&answer, shown)
}

fn job(arguments: EnqueueArguments) -> Result<EnqueueRequest, Failure> {
    let kind = arguments.kind.unwrap_or_default();
    let (json, base64) = match arguments.payload.map(|source| source.read(arguments.bytes)).transpose()? {
        Some(Payload::Json(json)) => (Some(json), None),
        Some(Payload::Base64(base64)) => (None, Some(base64)),
        None => (None, None),
    };
    Ok(EnqueueRequest {
        key: Some(arguments.key.map_or_else(fresh_key, Ok)?),
        lane: arguments.lane,
        payload: json,
        payload_base64: base64,
        content_type: arguments.content_type,
        priority: arguments.priority,
        delay_ms: arguments.delay,
        run_at: arguments.run_at,
        metadata: arguments.metadata.into_iter().collect(),
        ..EnqueueRequest::new(kind)
    })
}

/// A key that nobody has used. It is made before the first try, so that a job that has to be sent again because its
/// answer was lost is still one job.
pub fn fresh_key() -> Result<String, Failure> {
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(|error| Failure::Failed {
        code: "no_randomness",
        message: format!("no key could be made: {error}; name one with --key"),
    })?;
    Ok(format!("auto-{}", hex::encode(random)))
}

fn shown(answer: &EnqueueAnswer) -> String {
    let state = answer.state.as_str();
    let became = if answer.duplicate { "was there already" } else { "is in the queue" };
    format!("job {} {became} ({state})", answer.id)
}
