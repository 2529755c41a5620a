//! How long keys must live: longer than the longest possible retry horizon. It never deletes anything.

use crate::{DurationMs, KindPolicy};

/// The longest time that a job of the kind can take from its first visibility to its last attempt's end, and how it
/// adds up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetryHorizon {
    /// The sum.
    pub total_ms: DurationMs,
    /// The sum in words, for a configuration error.
    pub arithmetic: String,
}

/// Adds up each attempt's longest run, the expiry of its lease and the longest delay before the next.
#[must_use]
pub fn retry_horizon(policy: &KindPolicy) -> RetryHorizon {
    let attempts = i64::from(policy.attempts_max);
    let attempt_ms = policy.deadline_ms.saturating_add(policy.visibility_timeout_ms);
    let longest_delay_ms = policy.backoff.max_ms.max(policy.retry_after_max_ms);
    let delays = (attempts - 1).max(0);
    let total_ms = attempts.saturating_mul(attempt_ms).saturating_add(delays.saturating_mul(longest_delay_ms));
    RetryHorizon {
        total_ms,
        arithmetic: format!(
            "{attempts} attempts × (deadline {} s + visibility timeout {} s) + {delays} delays × {} s = {} s",
            policy.deadline_ms / 1000,
            policy.visibility_timeout_ms / 1000,
            longest_delay_ms / 1000,
            total_ms / 1000,
        ),
    }
}
