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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HandlerName, Kind, backoff::Backoff};

    #[test]
    fn i5_the_horizon_is_what_all_attempts_and_the_delays_between_them_take_at_the_most() {
        let kind = Kind::new("job").unwrap();
        let policy = KindPolicy {
            attempts_max: 4,
            deadline_ms: 60_000,
            visibility_timeout_ms: 30_000,
            backoff: Backoff { min_ms: 1_000, max_ms: 600_000 },
            retry_after_max_ms: 700_000,
            ..KindPolicy::of_unconfigured(&kind, HandlerName::of_kind(&kind))
        };
        let horizon = retry_horizon(&policy);
        assert_eq!(horizon.total_ms, 2_460_000);
        let arithmetic = "4 attempts × (deadline 60 s + visibility timeout 30 s) + 3 delays × 700 s = 2460 s";
        assert_eq!(horizon.arithmetic, arithmetic);
        let backs_off_longer = KindPolicy { retry_after_max_ms: 1_000, ..policy.clone() };
        assert_eq!(retry_horizon(&backs_off_longer).total_ms, 2_160_000);
        let once = KindPolicy { attempts_max: 1, ..policy };
        assert_eq!(retry_horizon(&once).total_ms, 90_000);
    }
}
