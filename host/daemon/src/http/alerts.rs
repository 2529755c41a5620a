//! What needs somebody now: the daemon's own alerts, and dead letters for which no incident is open. It acts on nothing.

use axum::{Json, extract::State};
use http::Uri;
use leasehold_api::{AlertView, Page, PageFilter, PageView, Timestamp};
use leasehold_store::{PageRecord, UncoveredArrivals};

use super::{
    Api, body,
    paging::{before, page, page_size},
    refusal::Refusal,
};
use crate::alerts::{Active, DEAD_LETTERS, document::page_id};

/// The alerts. When the database can't be asked, the daemon's own are still shown, since that is when they are looked at.
pub(super) async fn list(State(api): State<Api>) -> Json<Page<AlertView>> {
    let uncovered = api.daemon.store().uncovered_arrivals().await.unwrap_or_else(|error| {
        tracing::warn!(code = error.code(), %error, "dead letters without an incident could not be looked up");
        Vec::new()
    });
    let own = api.daemon.alerts.active().into_iter().map(alert_view);
    Json(Page { items: own.chain(uncovered.into_iter().map(uncovered_view)).collect(), next_cursor: None })
}

pub(super) async fn pages(State(api): State<Api>, uri: Uri) -> Result<Json<Page<PageView>>, Refusal> {
    let query: PageFilter = body::query(&uri)?;
    let pages = api.daemon.store().pages(before(query.cursor.as_deref())?, page_size(query.limit)?).await?;
    Ok(Json(page(pages, page_view)))
}

fn alert_view(active: Active) -> AlertView {
    AlertView {
        alert: active.alert.name().to_owned(),
        subject: Some(active.subject).filter(|subject| !subject.is_empty()),
        since: Timestamp::from_ms(active.since_ms),
        meaning: active.alert.meaning().to_owned(),
        detail: format!("{} [{}]", active.detail, active.code),
        to_do: active.alert.to_do().to_owned(),
    }
}

fn uncovered_view(arrivals: UncoveredArrivals) -> AlertView {
    let UncoveredArrivals { kind, error_class, arrivals, first_at_ms, letters } = arrivals;
    AlertView {
        alert: DEAD_LETTERS.to_owned(),
        subject: Some(format!("{kind} {error_class}")),
        since: Timestamp::from_ms(first_at_ms),
        meaning: "dead letters arrive and no incident is open for them".to_owned(),
        detail: format!("{arrivals} have arrived, {letters} are open"),
        to_do: format!(
            "leasehold dlq ls --kind {kind} --class {error_class}; leasehold incidents open --kind {kind} --class \
             {error_class} --note TEXT"
        ),
    }
}

pub(super) fn page_view(page: PageRecord) -> PageView {
    let is_sent = page.sent_at_ms.is_some();
    PageView {
        id: page.id,
        page_id: page_id(&page.token),
        kind: page.kind,
        error_class: page.error_class,
        cause: page.cause,
        handler: page.version,
        dead_letter_id: page.dead_letter.0,
        arrivals: page.arrivals,
        first_at: Timestamp::from_ms(page.first_at_ms),
        made_at: Timestamp::from_ms(page.made_at_ms),
        sent_at: page.sent_at_ms.map(Timestamp::from_ms),
        sent_by: page.sent_by,
        failures: page.failures,
        last_error: page.last_error,
        next_try_at: (!is_sent).then(|| Timestamp::from_ms(page.due_at_ms)),
        incident_id: page.incident.map(|incident| incident.0),
    }
}
