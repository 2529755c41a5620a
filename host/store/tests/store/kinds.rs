//! O5 on the store: pausing a kind, who did it, and what is audited of it.

use leasehold_domain::Kind;
use leasehold_store::{AuditEntry, AuditFilter, Paused};

use crate::queue::Queue;

#[tokio::test]
async fn o5_a_pause_and_a_resume_are_audited_once_and_say_whether_they_changed_something() {
    let queue = Queue::new().await;
    let kind = Kind::new("k").unwrap();
    let set = async |pause, actor, now_ms| queue.store.pause_kind(&kind, pause, actor, now_ms).await.unwrap();
    assert!(!set(false, "jo", 1).await, "it was not paused");
    assert!(set(true, "jo", 2).await);
    assert!(!set(true, "kim", 3).await, "it was paused already");
    let paused = Paused { kind: "k".into(), by: "jo".into(), at_ms: 2 };
    assert_eq!(queue.store.paused_kinds().await.unwrap(), [paused], "the first pause is the one that counts");
    assert!(set(false, "kim", 4).await);
    assert!(!set(false, "kim", 5).await, "it goes on already");
    assert_eq!(queue.store.paused_kinds().await.unwrap(), []);

    let filter = AuditFilter { subject: Some("k".into()), ..AuditFilter::default() };
    let acts = queue.store.audit(filter, 10).await.unwrap().items;
    let entry = |id, at_ms, actor: &str, action: &str| AuditEntry {
        id,
        at_ms,
        actor: actor.into(),
        action: action.into(),
        subject: "k".into(),
        detail: "{}".into(),
    };
    let first = acts[acts.len() - 1].id;
    assert_eq!(acts, [entry(first + 1, 4, "kim", "kind.resume"), entry(first, 2, "jo", "kind.pause")]);
}
