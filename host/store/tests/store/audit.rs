//! O5 on the store: what an operator did is in the audit log, with who did it and to what.

use leasehold_store::{AuditEntry, AuditFilter, Page};
use serde_json::json;

use crate::queue::Queue;

#[tokio::test]
async fn o5_an_act_that_changes_nothing_in_the_database_is_recorded_too() {
    let queue = Queue::new().await;
    queue.store.record_act("jo", "config.reload", "leasehold.toml", json!({ "kinds": 2 }), 5).await.unwrap();
    let filter = AuditFilter { action: Some("config".into()), ..AuditFilter::default() };
    let recorded = AuditEntry {
        // Behind the push and the activation of the queue's handler.
        id: 3,
        at_ms: 5,
        actor: "jo".into(),
        action: "config.reload".into(),
        subject: "leasehold.toml".into(),
        detail: r#"{"kinds":2}"#.into(),
    };
    assert_eq!(queue.store.audit(filter, 10).await.unwrap(), Page { items: vec![recorded], next: None });
}
