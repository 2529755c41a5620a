//! What a page says, as JSON. It is made of kinds, classes, causes, versions, counts, codes and ids alone: nothing of a
//! job is in it.

use leasehold_api::Timestamp;
use leasehold_store::PageRecord;
use serde_json::{Value, json};

use super::Active;

/// A page that is ready to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Document {
    /// What receivers tell repetitions by.
    pub(crate) id: String,
    /// What it is about, in a line for the log.
    pub(crate) summary: String,
    pub(crate) body: String,
}

/// The id under which a page of dead letters is sent.
pub(crate) fn page_id(token: &str) -> String {
    format!("page-{token}")
}

/// Tells of dead letters.
pub(crate) fn of_dead_letters(page: &PageRecord) -> Document {
    let (kind, class) = (&page.kind, &page.error_class);
    let first_at = Timestamp::from_ms(page.first_at_ms);
    let summary = match page.arrivals {
        1 => {
            format!("a dead letter of kind {kind} with the error class {class} has arrived; no incident is open for it")
        }
        arrivals => format!(
            "{arrivals} dead letters of kind {kind} with the error class {class} have arrived since {first_at}; no \
             incident is open for them"
        ),
    };
    document(page_id(&page.token), summary, |id, summary| {
        json!({
            "id": id,
            "type": "dead_letters",
            "at": Timestamp::from_ms(page.made_at_ms),
            "summary": summary,
            "kind": kind,
            "error_class": class,
            "cause": page.cause,
            "handler": page.version,
            "arrivals": page.arrivals,
            "first_at": first_at,
            "dead_letter_id": page.dead_letter.0,
            "previous_incident_id": page.previous_incident,
            "to_do": [
                format!("leasehold dlq show {}", page.dead_letter),
                format!("leasehold incidents open --kind {kind} --class {class} --note TEXT"),
            ],
        })
    })
}

/// Tells of what is wrong with the daemon itself.
pub(crate) fn of_alert(active: &Active) -> Document {
    let subject = Some(&active.subject).filter(|subject| !subject.is_empty());
    let about = subject.map(|subject| format!(" ({subject})")).unwrap_or_default();
    let summary = format!("{}{about}: {}", active.alert.name(), active.alert.meaning());
    document(format!("alert-{}", active.token), summary, |id, summary| {
        json!({
            "id": id,
            "type": "alert",
            "at": Timestamp::from_ms(active.since_ms),
            "summary": summary,
            "alert": active.alert.name(),
            "subject": subject,
            "code": active.code,
            "to_do": [active.alert.to_do()],
        })
    })
}

fn document(id: String, summary: String, body: impl FnOnce(&str, &str) -> Value) -> Document {
    let body = body(&id, &summary).to_string();
    Document { id, summary, body }
}
