//! The queue's clock as arithmetic on readings. It never takes a reading itself.

use crate::{DurationMs, TimestampMs};

/// One clock for leases and delays: at start the later of wall time and the last persisted time, from then on advanced
/// by a clock that counts suspend (`CLOCK_BOOTTIME`), so that a step of the system clock moves no lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueClock {
    origin_ms: TimestampMs,
    boot_origin_ms: DurationMs,
}

impl QueueClock {
    /// Starts the clock from the readings of this moment.
    #[must_use]
    pub fn start(wall_ms: TimestampMs, persisted_ms: Option<TimestampMs>, boot_ms: DurationMs) -> Self {
        Self {
            origin_ms: persisted_ms.map_or(wall_ms, |persisted_ms| persisted_ms.max(wall_ms)),
            boot_origin_ms: boot_ms,
        }
    }

    /// The queue's time at a reading of the boot clock.
    #[must_use]
    pub fn at(&self, boot_ms: DurationMs) -> TimestampMs {
        self.origin_ms + (boot_ms - self.boot_origin_ms).max(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q14_the_clock_starts_at_the_later_of_wall_and_persisted_time() {
        assert_eq!(QueueClock::start(1_000, None, 50).at(50), 1_000);
        assert_eq!(QueueClock::start(1_000, Some(5_000), 50).at(50), 5_000);
        assert_eq!(QueueClock::start(9_000, Some(5_000), 50).at(50), 9_000);
    }

    #[test]
    fn q14_the_clock_advances_by_boot_time_alone() {
        let clock = QueueClock::start(1_000, None, 50);
        assert_eq!(clock.at(80), 1_030);
        assert_eq!(clock.at(10), 1_000);
    }
}
