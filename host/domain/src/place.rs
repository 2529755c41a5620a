//! A job's place in line. It never compares jobs itself: the store's index does.

use crate::{DurationMs, TimestampMs};

/// The place in line of a job that became visible then: each step of priority counts like `priority_step_ms` of
/// waiting, so that priority goes first and nothing starves. Lower goes first.
#[must_use]
pub fn place_in_line(visible_at_ms: TimestampMs, priority: i32, priority_step_ms: DurationMs) -> i64 {
    visible_at_ms.saturating_sub(i64::from(priority).saturating_mul(priority_step_ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q15_priority_goes_first_and_waiting_makes_up_for_it() {
        let old_and_low = place_in_line(0, 0, 60_000);
        let new_and_high = place_in_line(30_000, 1, 60_000);
        let newer_and_high = place_in_line(90_000, 1, 60_000);
        assert!(new_and_high < old_and_low);
        assert!(old_and_low < newer_and_high);
    }
}
