//! The time, as the host tells it. `std`'s clocks do not work in every component; these do.

use crate::host;

/// The wall clock, in milliseconds since 1970-01-01T00:00:00Z.
pub fn now_ms() -> u64 {
    host::now_ms()
}

/// Waits. The host keeps the job's lease meanwhile, up to the attempt's deadline.
pub fn sleep_ms(duration_ms: u64) {
    host::sleep_ms(duration_ms);
}
