//! Bulk replays: a set of dead letters that is fixed when it starts and replayed one member a transaction, each through
//! the same decision as a single replay. Nothing here picks the moment at which a member goes; the caller does.

mod preview;
mod record;
mod select;
mod start;
mod stop;
mod token;
mod turn;

pub use preview::{Preview, Previewed, RefusalGroup};
pub use record::{BulkMember, BulkMemberFilter, BulkReplayRecord, BulkRun};
pub use select::{BULK_MEMBERS_MAX, BulkSettings, Selection};
pub use start::{StartBulkReplay, Started};
pub use stop::{Resumed, Stopped};
pub use token::{PREVIEW_VALID_MS, TokenRefusal};
pub use turn::{Turn, TurnTaken};
