//! The only place that reads clocks. What the readings mean is the domain's.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use leasehold_domain::{TimestampMs, clock::QueueClock};
use rustix::time::{ClockId, clock_gettime};

/// The queue's clock, started from this moment's readings.
#[derive(Debug, Clone, Copy)]
pub struct Clock(QueueClock);

impl Clock {
    /// Starts the clock, no earlier than the last time that was persisted.
    #[must_use]
    pub fn start(persisted_ms: TimestampMs) -> Self {
        Self(QueueClock::start(wall_ms(), Some(persisted_ms), boot_ms()))
    }

    /// The queue's time.
    #[must_use]
    pub fn now_ms(&self) -> TimestampMs {
        self.0.at(boot_ms())
    }

    /// The moment, for timers, at which the queue's clock will show a time.
    #[must_use]
    pub fn instant_at(&self, at_ms: TimestampMs) -> Instant {
        let left_ms = u64::try_from(at_ms - self.now_ms()).unwrap_or(0);
        Instant::now() + Duration::from_millis(left_ms)
    }
}

/// Wall time in milliseconds since 1970.
#[must_use]
pub fn wall_ms() -> TimestampMs {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// Milliseconds since the machine's start, suspend included (`CLOCK_BOOTTIME`, `clock_gettime(2)`).
fn boot_ms() -> i64 {
    let time = clock_gettime(ClockId::Boottime);
    time.tv_sec * 1_000 + time.tv_nsec / 1_000_000
}
