//! One page of a list. It never says how many more there are: counting would read them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One page of a list, and where the next one starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Page<T> {
    /// What is on the page, in the list's order.
    pub items: Vec<T>,
    /// What to send as `cursor` for the next page; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}
