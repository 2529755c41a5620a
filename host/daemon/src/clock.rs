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
    // A test steps the daemon's wall through the file that the point names.
    fail::fail_point!("clock.wall", |file| system_wall_ms() + milliseconds_in(file));
    system_wall_ms()
}

/// What a test wrote into a file: by how much a clock is to be off. 0 while there is nothing in it.
#[cfg(feature = "crash-points")]
fn milliseconds_in(file: Option<String>) -> i64 {
    let text = std::fs::read_to_string(file.unwrap_or_default()).unwrap_or_default();
    text.trim().parse().unwrap_or(0)
}

fn system_wall_ms() -> TimestampMs {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// How long the machine has been suspended since its start, in milliseconds.
pub(crate) fn suspended_ms() -> i64 {
    let running = clock_gettime(ClockId::Monotonic);
    boot_ms() - (running.tv_sec * 1_000 + running.tv_nsec / 1_000_000)
}

/// Milliseconds since the machine's start, suspend included (`CLOCK_BOOTTIME`, `clock_gettime(2)`).
fn boot_ms() -> i64 {
    let time = clock_gettime(ClockId::Boottime);
    let boot_ms = time.tv_sec * 1_000 + time.tv_nsec / 1_000_000;
    // A test lets the machine be suspended through the file that the point names.
    fail::fail_point!("clock.boot", |file| boot_ms + milliseconds_in(file));
    boot_ms
}
