//! The audit log, for reading. Nothing can be written to it from here.

use axum::{Json, extract::State};
use http::Uri;
use leasehold_api::{AuditEntry, AuditFilter, Page, Timestamp};

use super::{
    Api, body,
    paging::{before, page, page_size},
    refusal::Refusal,
    views,
};

pub(super) async fn list(State(api): State<Api>, uri: Uri) -> Result<Json<Page<AuditEntry>>, Refusal> {
    let query: AuditFilter = body::query(&uri)?;
    let filter = leasehold_store::AuditFilter {
        actor: query.actor,
        action: query.action,
        subject: query.subject,
        since_ms: query.since.map(Timestamp::as_ms),
        until_ms: query.until.map(Timestamp::as_ms),
        before: before(query.cursor.as_deref())?,
    };
    let listed = api.daemon.store().audit(filter, page_size(query.limit)?).await?;
    Ok(Json(page(listed, views::audit_entry)))
}
