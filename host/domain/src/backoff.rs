//! The delay before a retry: exponential with full jitter. It never draws the jitter itself.

use crate::DurationMs;

/// Bounds of the delay before a retry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// The shortest delay, at least 1 ms: a retry is never at once.
    pub min_ms: DurationMs,
    /// The longest delay.
    pub max_ms: DurationMs,
}

/// A number in `[0, 1)`, drawn by the caller.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Jitter(f64);

impl Jitter {
    /// Wraps a draw; what is outside `[0, 1)` is brought to its nearest end.
    #[must_use]
    pub fn new(draw: f64) -> Self {
        Self(if draw.is_finite() { draw.clamp(0.0, 1.0 - f64::EPSILON) } else { 0.0 })
    }

    /// A draw from 64 random bits.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "only 53 bits are kept, which a float holds exactly")]
    pub fn from_bits(bits: u64) -> Self {
        Self((bits >> 11) as f64 / (1_u64 << 53) as f64)
    }
}

impl Backoff {
    /// The delay after the `failures`-th counted attempt (from 1): uniform between the lower bound and
    /// `min · 2^failures`, capped by the upper bound.
    ///
    /// Full jitter, as described in "Exponential Backoff And Jitter" (AWS Architecture Blog, 2015), with a lower bound
    /// so that a retry is never at once.
    #[must_use]
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "delays are far below 2^52 ms")]
    pub fn delay_ms(&self, failures: u32, jitter: Jitter) -> DurationMs {
        let min_ms = self.min_ms.max(1);
        let ceiling_ms = self.ceiling_ms(failures);
        min_ms + ((ceiling_ms - min_ms + 1) as f64 * jitter.0) as DurationMs
    }

    /// The longest delay that can follow the `failures`-th counted attempt.
    #[must_use]
    pub fn ceiling_ms(&self, failures: u32) -> DurationMs {
        let min_ms = self.min_ms.max(1);
        let factor = 1_i64.checked_shl(failures.min(62)).unwrap_or(i64::MAX);
        min_ms.saturating_mul(factor).min(self.max_ms).max(min_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BACKOFF: Backoff = Backoff { min_ms: 100, max_ms: 10_000 };

    #[test]
    fn q8_the_ceiling_doubles_up_to_the_upper_bound() {
        let ceilings: Vec<_> = [1, 2, 3, 6, 7, 60, u32::MAX].map(|n| BACKOFF.ceiling_ms(n)).into();
        assert_eq!(ceilings, [200, 400, 800, 6_400, 10_000, 10_000, 10_000]);
    }

    #[test]
    fn q8_full_jitter_spans_both_bounds() {
        assert_eq!(BACKOFF.delay_ms(3, Jitter::new(0.0)), 100);
        assert_eq!(BACKOFF.delay_ms(3, Jitter::new(1.0)), 800);
        assert_eq!(BACKOFF.delay_ms(3, Jitter::from_bits(u64::MAX)), 800);
    }

    proptest! {
        #[test]
        fn q8_a_retry_is_never_at_once_and_never_beyond_the_bound(
            min_ms in 0_i64..1_000_000, spread in 0_i64..100_000_000, failures: u32, bits: u64
        ) {
            let backoff = Backoff { min_ms, max_ms: min_ms + spread };
            let delay_ms = backoff.delay_ms(failures, Jitter::from_bits(bits));
            prop_assert!(delay_ms >= min_ms.max(1));
            prop_assert!(delay_ms <= backoff.max_ms.max(1));
        }
    }
}
