//! What the mock host knows, and the rules by which it keeps steps, stored values and jobs. They are the contract's rules,
//! made small: one job, one attempt at a time.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::Answers;
use crate::{
    BeginError, CompleteError,
    http::{Error, ErrorKind, Method, Request, Response},
    keyvalue,
    log::Level,
    outbox::NewJob,
    records::{AnnotateError, Note},
};

/// What a step is between attempts. A step that is not recorded is fresh.
pub(super) enum StepRecord {
    /// The effect was applied.
    Applied { result: Vec<u8> },
    /// The effect may have been applied; a preset has no fingerprint and goes with any.
    InDoubt { fingerprint: Option<Vec<u8>> },
}

/// A step that is open.
struct Open {
    name: String,
    fingerprint: Vec<u8>,
    was_in_doubt: bool,
    unsafe_requests: u32,
    effects: Vec<Effect>,
}

/// Something that becomes real with the job's success.
enum Effect {
    Set { store: String, key: String, value: Option<Vec<u8>> },
    Enqueue(NewJob),
    Annotate(Note),
}

/// Everything that the mock host knows.
#[derive(Default)]
pub(super) struct State {
    pub(super) now_ms: u64,
    pub(super) settings: BTreeMap<String, String>,
    pub(super) stores: BTreeMap<String, BTreeMap<String, Vec<u8>>>,
    pub(super) read_only_stores: BTreeSet<String>,
    pub(super) answers: Answers,
    pub(super) requests: Vec<SentRequest>,
    pub(super) steps: BTreeMap<String, StepRecord>,
    pub(super) begin_error: Option<BeginError>,
    pub(super) complete_error: Option<CompleteError>,
    pub(super) enqueued: Vec<NewJob>,
    pub(super) kinds_to_annotate: BTreeSet<String>,
    pub(super) notes: Vec<Note>,
    pub(super) logs: Vec<(Level, String)>,
    open: Option<Open>,
    begun_by_attempt: BTreeSet<String>,
    step_effects: Vec<Effect>,
    attempt_effects: Vec<Effect>,
}

/// How the mock host answered the beginning of a step.
pub(super) enum MockBegun {
    Fresh,
    InDoubt,
    Applied(Vec<u8>),
}

impl State {
    /// An attempt begins: what an earlier one did outside of steps is forgotten.
    pub(super) fn begin_attempt(&mut self) {
        self.drop_step();
        self.begun_by_attempt.clear();
        self.attempt_effects.clear();
    }

    /// An attempt has ended: with its success all effects become real, the applied steps' first.
    pub(super) fn end_attempt(&mut self, is_success: bool) {
        if !is_success {
            return;
        }
        let mut effects = std::mem::take(&mut self.step_effects);
        effects.append(&mut self.attempt_effects);
        for effect in effects {
            match effect {
                Effect::Enqueue(job) => self.enqueued.push(job),
                Effect::Annotate(note) => self.note(note),
                Effect::Set { store, key, value } => {
                    let store = self.stores.entry(store).or_default();
                    match value {
                        Some(value) => store.insert(key, value),
                        None => store.remove(&key),
                    };
                }
            }
        }
    }

    pub(super) fn begin(&mut self, name: &str, fingerprint: &[u8]) -> Result<MockBegun, BeginError> {
        if let Some(error) = self.begin_error.take() {
            return Err(error);
        }
        let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._-".contains(&byte);
        if name.is_empty() || name.len() > 64 || !name.bytes().all(is_plain) {
            return Err(BeginError::InvalidName);
        }
        if self.open.is_some() || !self.begun_by_attempt.insert(name.into()) {
            return Err(BeginError::Conflict);
        }
        let was_in_doubt = match self.steps.get(name) {
            Some(StepRecord::Applied { result }) => return Ok(MockBegun::Applied(result.clone())),
            Some(StepRecord::InDoubt { fingerprint: Some(known) }) if known != fingerprint => {
                return Err(BeginError::Conflict);
            }
            Some(StepRecord::InDoubt { .. }) => true,
            None => false,
        };
        self.open = Some(Open {
            name: name.into(),
            fingerprint: fingerprint.into(),
            was_in_doubt,
            unsafe_requests: 0,
            effects: Vec::new(),
        });
        Ok(if was_in_doubt { MockBegun::InDoubt } else { MockBegun::Fresh })
    }

    pub(super) fn idempotency_key(&self) -> String {
        let name = self.open.as_ref().map(|open| open.name.as_bytes()).unwrap_or_default();
        format!("mock-{}", hex::encode(name))
    }

    pub(super) fn complete(&mut self, result: &[u8]) -> Result<(), CompleteError> {
        if let Some(error) = self.complete_error.take() {
            return Err(error);
        }
        let open = self.open.take().expect("only an open step can be completed");
        self.steps.insert(open.name, StepRecord::Applied { result: result.into() });
        self.step_effects.extend(open.effects);
        Ok(())
    }

    pub(super) fn take_back(&mut self) {
        if let Some(open) = self.open.take() {
            self.steps.remove(&open.name);
        }
    }

    /// The guest let go of an open step: it is in doubt if an unsafe request left under it, or if it was before.
    pub(super) fn drop_step(&mut self) {
        let Some(open) = self.open.take() else { return };
        if open.unsafe_requests > 0 || open.was_in_doubt {
            self.steps.insert(open.name, StepRecord::InDoubt { fingerprint: Some(open.fingerprint) });
        }
    }

    fn keep(&mut self, effect: Effect) {
        match &mut self.open {
            Some(open) => open.effects.push(effect),
            None => self.attempt_effects.push(effect),
        }
    }

    pub(super) fn enqueue(&mut self, job: NewJob) {
        self.keep(Effect::Enqueue(job));
    }

    pub(super) fn annotate(&mut self, note: Note) -> Result<(), AnnotateError> {
        if !self.kinds_to_annotate.contains(&note.kind) {
            return Err(AnnotateError::Denied);
        }
        self.keep(Effect::Annotate(note));
        Ok(())
    }

    /// Of one key, one note is made.
    fn note(&mut self, note: Note) {
        let name = |note: &Note| (note.job, note.class.clone(), note.key.clone());
        if !self.notes.iter().any(|other| name(other) == name(&note)) {
            self.notes.push(note);
        }
    }

    pub(super) fn set_value(&mut self, store: &str, key: &str, value: Option<Vec<u8>>) -> Result<(), keyvalue::Error> {
        if self.read_only_stores.contains(store) {
            return Err(keyvalue::Error::AccessDenied);
        }
        self.keep(Effect::Set { store: store.into(), key: key.into(), value });
        Ok(())
    }

    /// The value as this job sees it: its own latest write, else what is stored.
    pub(super) fn value(&self, store: &str, key: &str) -> Option<Vec<u8>> {
        let in_step = self.open.iter().flat_map(|open| open.effects.iter());
        let own =
            self.step_effects.iter().chain(&self.attempt_effects).chain(in_step).rev().find_map(
                |effect| match effect {
                    Effect::Set { store: of_store, key: of_key, value } if of_store == store && of_key == key => {
                        Some(value)
                    }
                    _ => None,
                },
            );
        own.map_or_else(|| self.stores.get(store)?.get(key).cloned(), Clone::clone)
    }

    pub(super) fn send(&mut self, request: &Request, url: String) -> Result<Response, Error> {
        let mut headers = request.headers.clone();
        if !matches!(request.method, Method::Get | Method::Head | Method::Options) {
            let key = self.idempotency_key();
            let has_own_key = headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("idempotency-key"));
            let denied = |reason: &str| Error::new(ErrorKind::Denied, reason);
            let open = self.open.as_mut().ok_or_else(|| denied("an unsafe request outside of a step"))?;
            if open.unsafe_requests > 0 && !has_own_key {
                return Err(denied("a second unsafe request in one step"));
            }
            open.unsafe_requests += 1;
            if !has_own_key {
                headers.push(("idempotency-key".into(), key));
            }
        }
        self.requests.push(SentRequest { method: request.method, url, headers, body: request.body.clone() });
        let answer = self.answers.pop_front().expect("the handler sent a request for which the test has no answer");
        let mut response = answer.0.map_err(|kind| Error::new(kind, "as scripted"))?;
        response.is_cut_off = response.body.len() > request.body_max_bytes;
        response.body.truncate(request.body_max_bytes);
        Ok(response)
    }
}

/// A request that left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentRequest {
    /// The method.
    pub method: Method,
    /// The URL as it goes to the host: without a fragment, with a path.
    pub url: String,
    /// The headers, with the idempotency key that the host adds in a step.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl SentRequest {
    /// The first header of that name, whatever its case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }
}

/// What downstream answers to one request.
pub struct Answer(Result<Response, ErrorKind>);

impl Answer {
    /// An answer of that status, with no headers and no body.
    pub fn status(status: u16) -> Self {
        Self(Ok(Response { status, headers: Vec::new(), body: Vec::new(), is_cut_off: false }))
    }

    /// No answer, for that reason.
    pub fn error(kind: ErrorKind) -> Self {
        Self(Err(kind))
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        if let Ok(response) = &mut self.0 {
            response.headers.push((name.to_ascii_lowercase(), value.into()));
        }
        self
    }

    /// Sets the body.
    #[must_use]
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        if let Ok(response) = &mut self.0 {
            response.body = body.into();
        }
        self
    }

    /// Sets the body to this value as JSON.
    ///
    /// # Panics
    /// When the value can't be written as JSON.
    #[must_use]
    pub fn json(self, value: &impl Serialize) -> Self {
        self.body(serde_json::to_vec(value).expect("a scripted answer must serialise"))
    }
}
