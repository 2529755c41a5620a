//! Takes a bounce notification: its recipient goes on the suppression list, and a note on the record of the job that sent
//! the mail.
//!
//! **Payload**: `{"recipient": "…", "type": "hard", "message_id": "…", "id": "…"}`; further fields are left alone. Whoever
//! receives the provider's notifications enqueues them so, with the notification's id as the job's key.
//!
//! | field | also read as | |
//! |---|---|---|
//! | `recipient` | `email`, `Email` | |
//! | `type` | `Type`, `bounceType` | `hard` (`permanent`), `soft` (`transient`) or `complaint` (`spam report`, `abuse`), in any case, with or without `bounce` |
//! | `message_id` | `messageId`, `MessageID` | the id that the provider answered the send with; optional |
//! | `id` | `ID`, `feedbackId` | the notification's own id; optional |
//!
//! **Key-value stores**: `suppressions`, to read and to write, shared with `email-send`, and `messages`, to read, where
//! `email-send` keeps which job sent a message; without it no notes are made. **Notes**: on jobs of the kind `email.send`,
//! which has to be granted, under the classes `email.hard_bounce`, `email.soft_bounce` and `email.complaint`.
//!
//! A hard bounce and a complaint list the recipient at once; a soft bounce only makes its note. A notification that comes
//! twice leaves the same list and one note: an entry that is there stays as it is, and the note's key is the notification's
//! id. One that comes before the send's own answer is known looks for the send again, as a job of its own kind, which has
//! to be granted in `enqueue`: after a second, and each time four times as long after the last, for about six hours. A
//! recipient never goes into a message, a note or a log.

mod notification;

use leasehold_guest::{
    Failure, Job, Success, keyvalue, log,
    outbox::{self, EnqueueError, NewJob},
    records::{AnnotateError, Note, annotate},
};

use notification::{Kind, Notification};

/// The kind of the jobs that send.
const SEND: &str = "email.send";
/// The delay before the send is looked for again, and how it grows.
const FIRST_DELAY_MS: u64 = 1_000;
const DELAY_FACTOR: u64 = 4;
/// How many times the send is looked for again.
const LOOKED_MAX: u32 = 8;

/// Lists the recipient, unless the bounce is a soft one, and notes the bounce on the send's record.
#[leasehold_guest::handler]
fn handle(job: Job<Notification>) -> Result<Success, Failure> {
    let recipient = email_address::normalised(&job.payload.recipient)?;
    let (reason, class): (Option<&[u8]>, _) = match job.payload.kind()? {
        Kind::Hard => (Some(b"hard_bounce"), "email.hard_bounce"),
        Kind::Complaint => (Some(b"complaint"), "email.complaint"),
        Kind::Soft => (None, "email.soft_bounce"),
    };
    if let Some(reason) = reason {
        let suppressions = keyvalue::open("suppressions")?;
        if !suppressions.exists(&recipient)? {
            suppressions.set(&recipient, reason)?;
        }
    }
    note(&job, class)?;
    Ok(Success::done())
}

/// Makes the note on the send's record, or looks for the send again later.
fn note(job: &Job<Notification>, class: &str) -> Result<(), Failure> {
    let Some(message_id) = job.payload.message_id() else { return Ok(()) };
    let stored = match keyvalue::open("messages") {
        Ok(messages) => messages.get(message_id)?,
        // Without the store nobody wants notes.
        Err(keyvalue::Error::AccessDenied | keyvalue::Error::NoSuchStore) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let Some(stored) = stored else { return look_again(job) };
    let Some(send) = std::str::from_utf8(&stored).ok().and_then(|id| id.parse().ok()) else {
        log::warn("what the store `messages` holds for the message is no job's id");
        return Ok(());
    };
    let text = match class {
        "email.complaint" => "the recipient complained about the message",
        "email.hard_bounce" => "the message bounced for good",
        _ => "the message bounced for now",
    };
    // Without an id of its own, all notifications of a class about one message are the same.
    let key = job.payload.id.clone().unwrap_or_default();
    match annotate(Note { kind: SEND.into(), job: send, key, class: class.into(), text: text.into() }) {
        // The recipient is listed all the same: that matters more than the note.
        Err(AnnotateError::TooLarge(why) | AnnotateError::Invalid(why)) => {
            log::warn(format!("the bounce is on no job's record: {why}"));
            Ok(())
        }
        noted => Ok(noted?),
    }
}

fn look_again(job: &Job<Notification>) -> Result<(), Failure> {
    let looked = job.payload.looked;
    if looked >= LOOKED_MAX {
        log::info("no job is known to have sent the message; the bounce is on no job's record");
        return Ok(());
    }
    let mut again = job.payload.clone();
    again.looked = looked + 1;
    // The first job's key, so that a run again enqueues the same job.
    let first = job.key.strip_suffix(&format!("/{looked}")).unwrap_or(&job.key);
    let mut next = NewJob::json(&job.kind, &again)?;
    next.key = Some(format!("{first}/{}", looked + 1));
    next.lane.clone_from(&job.lane);
    next.delay_ms = FIRST_DELAY_MS * DELAY_FACTOR.pow(looked);
    match outbox::enqueue(next) {
        Err(EnqueueError::TooLarge(why) | EnqueueError::Invalid(why)) => {
            log::warn(format!("the send is not looked for again, and the bounce is on no job's record: {why}"));
            Ok(())
        }
        enqueued => Ok(enqueued?),
    }
}

#[cfg(test)]
mod tests;
