//! The component's imports behind this crate's own types. Each function is one call of the host.

pub(crate) use super::outgoing_http::send;
use crate::{
    BeginError, CompleteError,
    bindings::{
        leasehold::job::{
            outbox::{self, EnqueueError as WitEnqueueError},
            records::{self, AnnotateError as WitAnnotateError},
            steps::{self, BeginError as WitBeginError, Begun as WitBegun, CompleteError as WitCompleteError},
        },
        wasi::{
            clocks::{monotonic_clock, wall_clock},
            config::store as config,
            keyvalue::store::{self as keyvalue, Error as WitKeyvalueError},
            logging::logging,
            random::random,
        },
    },
    host::Begun,
    keyvalue::Error as KeyvalueError,
    log::Level,
    outbox::{EnqueueError, NewJob},
    records::{AnnotateError, Note},
};

/// Begins a step.
pub(crate) fn begin(name: &str, fingerprint: &[u8]) -> Result<Begun, BeginError> {
    match steps::begin(name, fingerprint) {
        Ok(WitBegun::Fresh(step)) => Ok(Begun::Fresh(OpenStep(step))),
        Ok(WitBegun::InDoubt(step)) => Ok(Begun::InDoubt(OpenStep(step))),
        Ok(WitBegun::Applied(result)) => Ok(Begun::Applied(result)),
        Err(WitBeginError::InProgress) => Err(BeginError::InProgress),
        Err(WitBeginError::LeaseLost) => Err(BeginError::LeaseLost),
        Err(WitBeginError::Conflict) => Err(BeginError::Conflict),
        Err(WitBeginError::InvalidName) => Err(BeginError::InvalidName),
        Err(WitBeginError::Unavailable) => Err(BeginError::Unavailable),
    }
}

/// A step that is open; dropping it leaves it open for the host to judge.
pub(crate) struct OpenStep(steps::Step);

impl OpenStep {
    pub(crate) fn idempotency_key(&self) -> String {
        self.0.idempotency_key()
    }

    pub(crate) fn complete(self, result: &[u8]) -> Result<(), CompleteError> {
        self.0.complete(result).map_err(complete_error)
    }

    pub(crate) fn take_back(self) -> Result<(), CompleteError> {
        self.0.take_back().map_err(complete_error)
    }
}

fn complete_error(error: WitCompleteError) -> CompleteError {
    match error {
        WitCompleteError::Stale => CompleteError::Stale,
        WitCompleteError::TooLarge => CompleteError::TooLarge,
        WitCompleteError::Unavailable => CompleteError::Unavailable,
    }
}

/// Hands a job to the outbox.
pub(crate) fn enqueue(job: NewJob) -> Result<(), EnqueueError> {
    let job = outbox::NewJob {
        kind: job.kind,
        key: job.key,
        lane: job.lane,
        content_type: job.content_type,
        payload: job.payload,
        delay_ms: job.delay_ms,
        metadata: job.metadata,
    };
    outbox::enqueue(&job).map_err(|error| match error {
        WitEnqueueError::UnknownKind => EnqueueError::UnknownKind,
        WitEnqueueError::TooLarge(limit) => EnqueueError::TooLarge(limit),
        WitEnqueueError::Invalid(reason) => EnqueueError::Invalid(reason),
    })
}

/// Hands a note to the host.
pub(crate) fn annotate(note: Note) -> Result<(), AnnotateError> {
    let Note { kind, job, key, class, text } = note;
    records::annotate(&records::Note { kind, job, key, class, text }).map_err(|error| match error {
        WitAnnotateError::Denied => AnnotateError::Denied,
        WitAnnotateError::TooLarge(limit) => AnnotateError::TooLarge(limit),
        WitAnnotateError::Invalid(reason) => AnnotateError::Invalid(reason),
    })
}

/// Writes to the job's log.
pub(crate) fn log(level: Level, context: &str, message: &str) {
    let level = match level {
        Level::Debug => logging::Level::Debug,
        Level::Info => logging::Level::Info,
        Level::Warn => logging::Level::Warn,
        Level::Error => logging::Level::Error,
        Level::Critical => logging::Level::Critical,
    };
    logging::log(level, context, message);
}

/// The wall clock.
pub(crate) fn now_ms() -> u64 {
    let now = wall_clock::now();
    now.seconds * 1000 + u64::from(now.nanoseconds / 1_000_000)
}

/// Waits in the host.
pub(crate) fn sleep_ms(duration_ms: u64) {
    monotonic_clock::subscribe_duration(duration_ms.saturating_mul(1_000_000)).block();
}

/// Random bytes.
pub(crate) fn random_bytes(length: usize) -> Vec<u8> {
    random::get_random_bytes(length as u64)
}

/// A setting, or why it can't be read.
pub(crate) fn setting(name: &str) -> Result<Option<String>, String> {
    config::get(name).map_err(|error| match error {
        config::Error::Upstream(reason) | config::Error::Io(reason) => reason,
    })
}

/// Opens a key-value store.
pub(crate) fn open_store(name: &str) -> Result<Bucket, KeyvalueError> {
    keyvalue::open(name).map(Bucket).map_err(keyvalue_error)
}

/// An open key-value store.
pub(crate) struct Bucket(keyvalue::Bucket);

impl Bucket {
    pub(crate) fn get(&self, key: &str) -> Result<Option<Vec<u8>>, KeyvalueError> {
        self.0.get(key).map_err(keyvalue_error)
    }

    pub(crate) fn set(&self, key: &str, value: &[u8]) -> Result<(), KeyvalueError> {
        self.0.set(key, value).map_err(keyvalue_error)
    }

    pub(crate) fn delete(&self, key: &str) -> Result<(), KeyvalueError> {
        self.0.delete(key).map_err(keyvalue_error)
    }

    pub(crate) fn exists(&self, key: &str) -> Result<bool, KeyvalueError> {
        self.0.exists(key).map_err(keyvalue_error)
    }
}

fn keyvalue_error(error: WitKeyvalueError) -> KeyvalueError {
    match error {
        WitKeyvalueError::NoSuchStore => KeyvalueError::NoSuchStore,
        WitKeyvalueError::AccessDenied => KeyvalueError::AccessDenied,
        WitKeyvalueError::Other(reason) => KeyvalueError::Other(reason),
    }
}
