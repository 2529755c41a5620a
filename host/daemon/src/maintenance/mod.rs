//! What the daemon does besides running jobs, each on a clock or an event of its own. Recovery is no second path: what
//! is found here goes through the same decision and settlement as any other attempt.

pub(crate) mod bulk_replays;
pub(crate) mod free_pages;
pub(crate) mod handlers_folder;
pub(crate) mod heartbeats;
pub(crate) mod pages;
pub(crate) mod reaper;
pub(crate) mod recovery;
pub(crate) mod relay;
pub(crate) mod retention;
pub(crate) mod wall_clock;
