//! What a handler gives back: success or one of four kinds of failure. What follows from it is the host's decision.

use serde::Serialize;

/// How a job ended well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Success {
    /// The job is done, with a result for whoever enqueued it.
    Done(Option<Vec<u8>>),
    /// Nothing was to be done, and why: the recipient must not be written to, say.
    Suppressed(String),
}

impl Success {
    /// Done, without a result.
    pub fn done() -> Self {
        Self::Done(None)
    }

    /// Done, with these bytes as the result.
    pub fn done_with(result: impl Into<Vec<u8>>) -> Self {
        Self::Done(Some(result.into()))
    }

    /// Done, with this value as JSON.
    pub fn done_json(result: &impl Serialize) -> Result<Self, Failure> {
        let text = serde_json::to_vec(result).map_err(|error| Failure::poison("result.invalid", error.to_string()))?;
        Ok(Self::done_with(text))
    }

    /// There was nothing to do, and why.
    pub fn suppressed(reason: impl Into<String>) -> Self {
        Self::Suppressed(reason.into())
    }
}

/// What went wrong: a class of the configuration's vocabulary, and words for a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The error class, such as `downstream.timeout`.
    pub class: String,
    /// Words for a person. Personal data does not belong here.
    pub message: String,
}

impl Problem {
    fn new(class: impl Into<String>, message: impl Into<String>) -> Self {
        Self { class: class.into(), message: message.into() }
    }
}

/// How an attempt failed, and so whether another one makes sense.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// It may go well another time.
    Retry(Problem),
    /// Downstream asked to slow down; the delay in milliseconds that it asked for, if it named one.
    RateLimited(Problem, Option<u64>),
    /// Downstream refuses for good.
    Rejected(Problem),
    /// The payload can't be handled, or the handler is wrong.
    Poison(Problem),
}

impl Failure {
    /// It may go well another time.
    pub fn retry(class: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Retry(Problem::new(class, message))
    }

    /// Downstream asked to slow down, for `after_ms` milliseconds if it named a time.
    pub fn rate_limited(class: impl Into<String>, message: impl Into<String>, after_ms: Option<u64>) -> Self {
        Self::RateLimited(Problem::new(class, message), after_ms)
    }

    /// Downstream refuses for good.
    pub fn rejected(class: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Rejected(Problem::new(class, message))
    }

    /// The payload can't be handled, or the handler is wrong. It ends the job at once.
    pub fn poison(class: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Poison(Problem::new(class, message))
    }

    /// The problem, whichever kind of failure it is.
    pub fn problem(&self) -> &Problem {
        match self {
            Self::Retry(problem) | Self::RateLimited(problem, _) | Self::Rejected(problem) | Self::Poison(problem) => {
                problem
            }
        }
    }
}
