//! Reads its payload and is done: what an attempt costs when the handler itself costs next to nothing.

use leasehold_guest::{Failure, Job, Success};
use serde::Deserialize;

/// A payload like that of a small e-mail.
#[derive(Deserialize)]
struct Message {
    to: String,
    #[serde(default)]
    subject: String,
    #[serde(default)]
    text: String,
}

#[leasehold_guest::handler]
fn handle(job: Job<Message>) -> Result<Success, Failure> {
    let message = job.payload;
    // Something has to depend on what was read, or the optimiser drops the reading.
    if message.to.len() + message.subject.len() + message.text.len() == 0 {
        return Err(Failure::poison("payload.empty", "the payload says nothing"));
    }
    Ok(Success::done())
}
