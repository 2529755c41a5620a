//! The section `[queue]`: the queue's bounds, durability and retention. It never looks at a kind.

use leasehold_domain::{DurationMs, verdict::ReleaseBounds};

use super::reader::Section;

const SECOND_MS: DurationMs = 1_000;
const MINUTE_MS: DurationMs = 60 * SECOND_MS;
const DAY_MS: DurationMs = 24 * 60 * MINUTE_MS;

/// The queue's bounds and retention.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueConfig {
    /// Whether each commit reaches the disk before it is answered.
    pub durability: Durability,
    /// The longest payload, in bytes.
    pub payload_max_bytes: usize,
    /// How many jobs may wait, be ready or be leased at once.
    pub queue_depth_max: u64,
    /// The longest key, in bytes.
    pub key_length_max_bytes: usize,
    /// The longest lane, in bytes.
    pub lane_length_max_bytes: usize,
    /// How many jobs one batch may hold; at least what the command line sends at a time.
    pub batch_max: usize,
    /// The longest metadata of a job, names and values together, in bytes.
    pub metadata_max_bytes: usize,
    /// How much waiting one step of priority is worth.
    pub priority_step_ms: DurationMs,
    /// The highest priority; the lowest is its negative.
    pub priority_max: i32,
    /// How often the host gives an attempt back, and the delay after that.
    pub release: ReleaseBounds,
    /// How long keys and steps live after their job's end.
    pub key_retention_ms: DurationMs,
    /// How long ended jobs are kept.
    pub ended_retention_ms: DurationMs,
    /// How many ended jobs are kept.
    pub ended_jobs_max: u64,
    /// How long dead letters keep their sealed originals; as long as they stand when absent.
    pub original_retention_ms: Option<DurationMs>,
    /// How long dead letters stay open; until somebody acts when absent.
    pub dead_letter_retention_ms: Option<DurationMs>,
    /// How much free disk enqueues leave to heartbeats and settlements, in bytes.
    pub disk_reserve_bytes: u64,
    /// After how many pages the write-ahead log is brought into the database.
    pub wal_autocheckpoint_pages: u32,
}

/// What survives a power loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Everything that was answered.
    Full,
    /// All but the last moments before a power loss; everything that was answered survives the daemon's own death.
    Normal,
}

impl QueueConfig {
    pub(super) fn read(section: &Section<'_>) -> Self {
        let durabilities = [("full", Durability::Full), ("normal", Durability::Normal)];
        let kept_ms = MINUTE_MS..=3_650 * DAY_MS;
        let key_retention_ms = section.duration_ms("key_retention", 30 * DAY_MS, &kept_ms);
        let config = Self {
            durability: section.choice("durability", Durability::Full, &durabilities),
            payload_max_bytes: section.size_bytes("payload_max", 256 << 10, &(1..=16 << 20)),
            queue_depth_max: section.number("queue_depth_max", 1_000_000, &(1..=1_000_000_000)),
            key_length_max_bytes: section.number("key_length_max", 256, &(1..=4_096)),
            lane_length_max_bytes: section.number("lane_length_max", 128, &(1..=1_024)),
            batch_max: section.number("batch_max", 1_000, &(500..=100_000)),
            metadata_max_bytes: section.size_bytes("metadata_max", 8 << 10, &(0..=1 << 20)),
            priority_step_ms: section.duration_ms("priority_step", MINUTE_MS, &(1..=DAY_MS)),
            priority_max: section.number("priority_max", 100, &(0..=10_000)),
            release: ReleaseBounds {
                release_max: section.number("release_max", 5, &(0..=1_000)),
                release_delay_ms: section.duration_ms("release_delay", SECOND_MS, &(10..=60 * MINUTE_MS)),
            },
            key_retention_ms,
            ended_retention_ms: section.duration_ms("ended_retention", key_retention_ms.min(30 * DAY_MS), &kept_ms),
            ended_jobs_max: section.number("ended_jobs_max", 1_000_000, &(0..=1_000_000_000)),
            original_retention_ms: section.duration_ms_or_never("original_retention", &kept_ms),
            dead_letter_retention_ms: section.duration_ms_or_never("dead_letter_retention", &kept_ms),
            disk_reserve_bytes: section.size_bytes("disk_reserve", 128 << 20, &(0..=1 << 40)) as u64,
            wal_autocheckpoint_pages: section.number("wal_autocheckpoint_pages", 8_000, &(100..=1_000_000)),
        };
        section.refuse_unknown();
        config
    }
}
