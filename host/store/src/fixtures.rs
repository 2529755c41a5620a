//! What the tests within this crate share: a store in a directory of its own, a version that is live, a job and a claim.

use std::time::Duration;

use leasehold_domain::{Digest, HandlerName, HandlerVersion, Kind};
use tempfile::TempDir;

use crate::{Durability, EnqueueJob, KindClaim, Store, StoreOptions, StoredVersion};

/// An empty store, and what it is opened with. However long calls take, those that wait together are one transaction.
pub(crate) fn open() -> (Store, StoreOptions, TempDir) {
    open_with_batch_time(Duration::MAX)
}

/// The same, whose transactions take calls in for that long.
pub(crate) fn open_with_batch_time(batch_time: Duration) -> (Store, StoreOptions, TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let options = StoreOptions {
        directory: directory.path().to_owned(),
        key_file: directory.path().join("key"),
        durability: Durability::Normal,
        wal_autocheckpoint_pages: 1_000,
        batch_time,
    };
    (Store::open(&options).unwrap(), options, directory)
}

/// Makes version 1.0.0 of handler `h` live.
pub(crate) async fn go_live(store: &Store) {
    let version = HandlerVersion::new("h", "1.0.0").unwrap();
    let stored = StoredVersion { version: version.clone(), digest: Digest::of(b"h"), size_bytes: 1 };
    store.put_version(stored, "tests", 0).await.unwrap();
    store.activate_version(&version, false, "tests", 0).await.unwrap();
}

/// A job of kind `k` that is due.
pub(crate) fn job() -> EnqueueJob {
    EnqueueJob {
        kind: Kind::new("k").unwrap(),
        key: None,
        lane: None,
        content_type: "application/json".into(),
        payload: b"{}".to_vec(),
        metadata: Vec::new(),
        visible_at_ms: 0,
        run_at_wall_ms: None,
        priority: 0,
    }
}

/// Room for four jobs of kind `k`.
pub(crate) fn room() -> KindClaim {
    KindClaim {
        kind: Kind::new("k").unwrap(),
        handler: HandlerName::new("h").unwrap(),
        max: 4,
        memory_bytes: 1,
        attempts_max: 3,
        visibility_timeout_ms: 1_000,
        lease_max_ms: 5_000,
        lane_concurrency: None,
        cooldown: false,
        bound_only: false,
    }
}
