//! The same functions that a component imports, answered by the mock host of this thread.

use super::{state::MockBegun, with_state};
use crate::{
    BeginError, CompleteError,
    host::Begun,
    http::{Error, Request, Response, url_parts},
    keyvalue,
    log::Level,
    outbox::{EnqueueError, NewJob},
    records::{AnnotateError, Note},
};

pub(crate) fn begin(name: &str, fingerprint: &[u8]) -> Result<Begun, BeginError> {
    Ok(match with_state(|state| state.begin(name, fingerprint))? {
        MockBegun::Fresh => Begun::Fresh(OpenStep(())),
        MockBegun::InDoubt => Begun::InDoubt(OpenStep(())),
        MockBegun::Applied(result) => Begun::Applied(result),
    })
}

/// A step that is open; the mock host knows which, since there is one at a time.
pub(crate) struct OpenStep(());

// The methods have the shape that a component's resource gives them.
#[allow(
    clippy::unused_self,
    clippy::unnecessary_wraps,
    reason = "the component's side needs the resource, and may fail"
)]
impl OpenStep {
    pub(crate) fn idempotency_key(&self) -> String {
        with_state(|state| state.idempotency_key())
    }

    pub(crate) fn complete(self, result: &[u8]) -> Result<(), CompleteError> {
        with_state(|state| state.complete(result))
    }

    pub(crate) fn take_back(self) -> Result<(), CompleteError> {
        with_state(super::state::State::take_back);
        Ok(())
    }
}

impl Drop for OpenStep {
    fn drop(&mut self) {
        // A panic in the handler drops the step too; what is not open any more stays as it is.
        with_state(super::state::State::drop_step);
    }
}

#[allow(clippy::unnecessary_wraps, reason = "the real host may refuse a job")]
pub(crate) fn enqueue(job: NewJob) -> Result<(), EnqueueError> {
    with_state(|state| state.enqueue(job));
    Ok(())
}

pub(crate) fn annotate(note: Note) -> Result<(), AnnotateError> {
    with_state(|state| state.annotate(note))
}

pub(crate) fn log(level: Level, _context: &str, message: &str) {
    with_state(|state| state.logs.push((level, message.into())));
}

pub(crate) fn now_ms() -> u64 {
    with_state(|state| state.now_ms)
}

pub(crate) fn sleep_ms(duration_ms: u64) {
    with_state(|state| state.now_ms = state.now_ms.saturating_add(duration_ms));
}

/// Bytes that count up: a test wants to know what comes.
pub(crate) fn random_bytes(length: usize) -> Vec<u8> {
    (0..=u8::MAX).cycle().take(length).collect()
}

#[allow(clippy::unnecessary_wraps, reason = "the real host may fail to read a setting")]
pub(crate) fn setting(name: &str) -> Result<Option<String>, String> {
    Ok(with_state(|state| state.settings.get(name).cloned()))
}

pub(crate) fn send(request: &Request) -> Result<Response, Error> {
    let parts = url_parts(&request.url)?;
    let url = format!("{}://{}{}", parts.scheme, parts.authority, parts.path);
    with_state(|state| state.send(request, url))
}

pub(crate) fn open_store(name: &str) -> Result<Bucket, keyvalue::Error> {
    let is_granted = with_state(|state| state.stores.contains_key(name));
    if is_granted { Ok(Bucket(name.into())) } else { Err(keyvalue::Error::NoSuchStore) }
}

/// An open key-value store, by its name.
pub(crate) struct Bucket(String);

#[allow(clippy::unnecessary_wraps, reason = "the real host may fail to read a value")]
impl Bucket {
    pub(crate) fn get(&self, key: &str) -> Result<Option<Vec<u8>>, keyvalue::Error> {
        Ok(with_state(|state| state.value(&self.0, key)))
    }

    pub(crate) fn set(&self, key: &str, value: &[u8]) -> Result<(), keyvalue::Error> {
        with_state(|state| state.set_value(&self.0, key, Some(value.into())))
    }

    pub(crate) fn delete(&self, key: &str) -> Result<(), keyvalue::Error> {
        with_state(|state| state.set_value(&self.0, key, None))
    }

    pub(crate) fn exists(&self, key: &str) -> Result<bool, keyvalue::Error> {
        Ok(self.get(key)?.is_some())
    }
}
