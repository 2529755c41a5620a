//! A handler that makes notes on other jobs' records: those that its payload lists, within a step or outside of any. It
//! can be told to fail at its first attempts, after the notes. It never looks at the other jobs.

use leasehold_guest::{
    Failure, Job, StepError, Success, once,
    records::{Note, annotate},
};
use serde::Deserialize;

/// The payload.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Told {
    notes: Vec<ToldNote>,
    /// Whether they are made within a step.
    #[serde(default)]
    in_step: bool,
    /// How many attempts fail.
    #[serde(default)]
    fails: u32,
}

/// One note.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ToldNote {
    kind: String,
    job: u64,
    key: String,
    class: String,
    text: String,
}

fn make(notes: Vec<ToldNote>) -> Result<(), Failure> {
    for ToldNote { kind, job, key, class, text } in notes {
        annotate(Note { kind, job, key, class, text })?;
    }
    Ok(())
}

#[leasehold_guest::handler]
fn handle(job: Job<Told>) -> Result<Success, Failure> {
    let Told { notes, in_step, fails } = job.payload;
    if in_step {
        once("note", "", |_key| make(notes).map_err(StepError::not_applied))?;
    } else {
        make(notes)?;
    }
    if job.attempts_used <= fails {
        return Err(Failure::retry("handler.told", "as told"));
    }
    Ok(Success::done())
}
