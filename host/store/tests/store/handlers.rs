//! H1 and H2 on the store: stored versions, which never change, and the states that they go through.

use leasehold_domain::{Digest, HandlerState, HandlerVersion, VersionId};
use leasehold_store::{Activated, PutVersion, Retired, StoredVersion, VersionRow};

use crate::queue::{Queue, complete, settlement};

fn version(number: &str) -> HandlerVersion {
    HandlerVersion::new("h", number).unwrap()
}

async fn put(queue: &Queue, number: &str, component: &[u8]) -> PutVersion {
    let stored = StoredVersion { version: version(number), digest: Digest::of(component), size_bytes: 7 };
    queue.store.put_version(stored, "jo", 5).await.unwrap()
}

/// The version that every queue of these tests begins with, which is live.
fn first() -> VersionRow {
    VersionRow {
        id: VersionId(1),
        version: version("1.0.0"),
        digest: Digest::of(b"h"),
        size_bytes: 1,
        state: HandlerState::Live,
        current: true,
        stored_at_ms: 0,
        stored_by: "tests".into(),
        activated_at_ms: Some(0),
        running: 0,
    }
}

#[tokio::test]
async fn h1_a_stored_version_never_changes() {
    let queue = Queue::new().await;
    assert_eq!(put(&queue, "1.1.0", b"new").await, PutVersion::Stored);
    assert_eq!(put(&queue, "1.1.0", b"new").await, PutVersion::Same);
    let refused = PutVersion::OtherBytes { stored: Digest::of(b"new") };
    assert_eq!(put(&queue, "1.1.0", b"other").await, refused);
    let staged = VersionRow {
        id: VersionId(2),
        version: version("1.1.0"),
        digest: Digest::of(b"new"),
        size_bytes: 7,
        state: HandlerState::Staged,
        current: false,
        stored_at_ms: 5,
        stored_by: "jo".into(),
        activated_at_ms: None,
        running: 0,
    };
    assert_eq!(queue.store.versions().await.unwrap(), [first(), staged.clone()]);
    assert_eq!(queue.store.version(&version("1.1.0")).await.unwrap(), Some(staged));
    assert_eq!(queue.store.version(&version("2.0.0")).await.unwrap(), None);
}

#[tokio::test]
async fn h2_a_draining_version_retires_when_its_last_attempt_ends() {
    let queue = Queue::new().await;
    put(&queue, "1.1.0", b"new").await;
    queue.enqueue_one(0).await;
    queue.enqueue_one(0).await;
    let running = [queue.lease(1).await, queue.lease(1).await];
    let drained = Activated::Current { drained: vec![version("1.0.0")] };
    assert_eq!(queue.store.activate_version(&version("1.1.0"), false, "jo", 6).await.unwrap(), drained);
    let of_first = || async { queue.store.version(&version("1.0.0")).await.unwrap().unwrap() };
    let draining = VersionRow { state: HandlerState::Draining, current: false, running: 2, ..first() };
    assert_eq!(of_first().await, draining);
    queue.settle(settlement(&running[0], complete(), 7)).await;
    assert_eq!(of_first().await, VersionRow { running: 1, ..draining.clone() });
    queue.settle(settlement(&running[1], complete(), 8)).await;
    assert_eq!(of_first().await, VersionRow { running: 0, state: HandlerState::Retired, ..draining });
    let without_attempts = queue.store.retire_version(&version("1.1.0"), "jo", 9).await.unwrap();
    assert_eq!(without_attempts, Retired::Now(HandlerState::Retired));
}
