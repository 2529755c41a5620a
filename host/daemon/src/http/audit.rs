//! The audit log, for reading. Nothing can be written to it from here.

use axum::{Json, extract::State};
use http::Uri;
use leasehold_api::{AuditEntry, AuditFilter, Page};

use super::{
    Api, body,
    paging::{before, page, page_size},
    refusal::Refusal,
    views,
};

pub(super) async fn list(State(api): State<Api>, uri: Uri) -> Result<Json<Page<AuditEntry>>, Refusal> {
    let query: AuditFilter = body::query(&uri)?;
    let listed = api.daemon.store().audit(before(query.cursor.as_deref())?, page_size(query.limit)?).await?;
    Ok(Json(page(listed, views::audit_entry)))
}
