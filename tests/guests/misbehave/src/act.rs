//! What the handler can be told to do: its payload. It holds no behaviour.

use serde::Deserialize;
use serde_json::Value;

/// The payload.
#[derive(Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub enum Act {
    /// Spins for ever.
    Loop,
    /// Allocates until the host refuses, touching every page; then panics as an allocator does, or goes on as told.
    Memory {
        #[serde(default = "Then::panic")]
        then: Then,
    },
    /// Recurses for ever: by calls alone, or with `wide` frames in linear memory.
    Stack {
        #[serde(default)]
        wide: bool,
    },
    Panic {
        #[serde(default = "told")]
        message: String,
    },
    Exit,
    Flood {
        lines: u64,
        #[serde(default = "line_length")]
        length: usize,
    },
    Output {
        bytes: usize,
    },
    Sleep {
        ms: u64,
    },
    /// Returns how many times this instance has counted.
    Count,
    /// Returns the wall clock as finely as the host tells it: seconds and nanoseconds.
    Now,
    /// Returns the job's fields and `payload`.
    Echo {
        #[serde(default)]
        payload: Value,
    },
    Fail {
        #[serde(rename = "as")]
        kind: As,
        class: String,
        #[serde(default = "told")]
        message: String,
        after_ms: Option<u64>,
    },
    Suppress {
        reason: String,
    },
    Step(StepAct),
    Get {
        url: String,
        timeout_ms: Option<u64>,
    },
    /// A POST outside of any step.
    Post {
        url: String,
        #[serde(default)]
        body: String,
        timeout_ms: Option<u64>,
    },
    Kv {
        ops: Vec<KeyvalueOp>,
        #[serde(default)]
        then: Then,
    },
    Enqueue {
        jobs: Vec<Outgoing>,
        #[serde(default)]
        then: Then,
    },
    Settings {
        name: String,
    },
    Log {
        text: String,
    },
}

/// A step and what is done in it, in this order: requests, key-value operations, jobs, then `inside`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepAct {
    pub name: String,
    /// What the fingerprint is made of.
    #[serde(default)]
    pub subject: String,
    /// Where to POST to; nowhere when absent.
    pub url: Option<String>,
    #[serde(default)]
    pub body: String,
    pub timeout_ms: Option<u64>,
    /// How many requests to send.
    #[serde(default = "one")]
    pub requests: u32,
    /// Whether the requests carry an `Idempotency-Key` of their own.
    #[serde(default)]
    pub own_key: bool,
    #[serde(default)]
    pub kv: Vec<KeyvalueOp>,
    #[serde(default)]
    pub enqueue: Vec<Outgoing>,
    #[serde(default)]
    pub inside: Inside,
    /// How large the stored result is made.
    #[serde(default)]
    pub result_bytes: usize,
    /// Whether the same name is begun again once the step has been completed.
    #[serde(default)]
    pub begin_twice: bool,
    #[serde(default)]
    pub then: Then,
}

/// How the effect ends.
#[derive(Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum Inside {
    #[default]
    Complete,
    Panic,
    Loop,
    /// Waits in the host for longer than any deadline.
    Hang,
    Sleep {
        ms: u64,
    },
    NotApplied,
    Unknown,
    /// Begins another step while this one is open.
    Nested,
}

/// How the attempt ends.
#[derive(Deserialize, Default, Clone, Copy, PartialEq)]
#[serde(rename_all = "snake_case")]
pub enum Then {
    #[default]
    Done,
    Suppressed,
    Retry,
    Rejected,
    Poison,
    Panic,
    Loop,
}

impl Then {
    fn panic() -> Self {
        Self::Panic
    }
}

/// A kind of failure.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum As {
    Retry,
    RateLimited,
    Rejected,
    Poison,
}

/// One operation on a key-value store.
#[derive(Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
pub enum KeyvalueOp {
    Get { store: String, key: String },
    Set { store: String, key: String, value: String },
    Delete { store: String, key: String },
    Exists { store: String, key: String },
}

/// A job to enqueue.
#[derive(Deserialize, Clone)]
#[serde(deny_unknown_fields)]
pub struct Outgoing {
    pub kind: String,
    pub key: Option<String>,
    pub lane: Option<String>,
    #[serde(default)]
    pub payload: Value,
    #[serde(default)]
    pub delay_ms: u64,
}

fn told() -> String {
    "as told".into()
}

fn line_length() -> usize {
    100
}

fn one() -> u32 {
    1
}
