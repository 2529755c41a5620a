//! `leasehold:job/records`: notes on the records of other jobs, kept with the open step or the attempt. Nothing is written
//! here, and whether the other job exists is not looked up: that is known when the note becomes real.

use leasehold_domain::{Effect, ErrorClass, JobId, Kind, Note};

use crate::{
    bindings::leasehold::job::records::{AnnotateError, Host, Note as WitNote},
    state::GuestState,
};

/// The longest text of a note, and the longest key of one.
const TEXT_MAX_BYTES: usize = 4 << 10;
const KEY_MAX_BYTES: usize = 256;

impl Host for GuestState {
    async fn annotate(&mut self, note: WitNote) -> wasmtime::Result<Result<(), AnnotateError>> {
        self.attempt.count_call()?;
        if !self.attempt.grants.annotate.contains(&note.kind) {
            return Ok(Err(AnnotateError::Denied));
        }
        let note = match checked(note) {
            Ok(note) => note,
            Err(error) => return Ok(Err(error)),
        };
        self.attempt.count_kept(note.key.len() + note.text.len())?;
        self.attempt.ledger().keep(Effect::Annotate(note));
        Ok(Ok(()))
    }
}

fn checked(note: WitNote) -> Result<Note, AnnotateError> {
    for (what, text, max) in [("text", &note.text, TEXT_MAX_BYTES), ("key", &note.key, KEY_MAX_BYTES)] {
        if text.len() > max {
            let length = text.len();
            return Err(AnnotateError::TooLarge(format!("the {what} has {length} bytes; at most {max} are allowed")));
        }
    }
    let class = ErrorClass::new(&note.class);
    // A class always stays readable, so that anything else than a short name must not stand for one.
    if class.as_str() != note.class {
        return Err(AnnotateError::Invalid("a class is of the form [a-z0-9._-]{1,64}".into()));
    }
    Ok(Note {
        kind: Kind::new(note.kind).map_err(|error| AnnotateError::Invalid(error.to_string()))?,
        job: JobId(i64::try_from(note.job).map_err(|_| AnnotateError::Invalid("no job has that id".into()))?),
        key: note.key,
        class,
        text: note.text,
    })
}
