//! Cursors and page sizes. A cursor is the id that the page before ended with; callers need not know.

use leasehold_api::Page;

use super::refusal::{Refusal, malformed};

const PAGE_DEFAULT: u32 = 50;
const PAGE_MAX: u32 = 1_000;

/// How many items a page has, as asked for within bounds.
pub(super) fn page_size(limit: Option<u32>) -> Result<usize, Refusal> {
    match limit.unwrap_or(PAGE_DEFAULT) {
        limit @ 1..=PAGE_MAX => Ok(usize::try_from(limit).unwrap_or(usize::MAX)),
        limit => Err(malformed(format!("limit is {limit}; allowed is 1 to {PAGE_MAX}"))),
    }
}

/// The id that the page starts before.
pub(super) fn before(cursor: Option<&str>) -> Result<Option<i64>, Refusal> {
    let parse = |cursor: &str| cursor.parse().map_err(|_| malformed("the cursor is none that a page named"));
    cursor.map(parse).transpose()
}

/// A page of the store as one of the API.
pub(super) fn page<T, U>(page: leasehold_store::Page<T>, view: impl FnMut(T) -> U) -> Page<U> {
    Page { items: page.items.into_iter().map(view).collect(), next_cursor: page.next.map(|next| next.to_string()) }
}
