//! R6 on the store: what a preview of a bulk replay shows, and what can be started from its token.

use std::collections::BTreeMap;

use leasehold_domain::{BulkReplayId, Cause, DeadLetterId, Digest, HandlerVersion, Verdict, replay::ReplayRefusal};
use leasehold_store::{BulkSettings, Claimed, Preview, RefusalGroup, Settlement, Started, StoredVersion, TokenRefusal};

use crate::{
    bulk::{begun, preview, settings, start},
    queue::{Queue, settlement},
};

/// For how long a preview can be started from.
const VALID_MS: i64 = 15 * 60 * 1_000;

async fn lease_one(queue: &Queue) -> Claimed {
    queue.enqueue_one(0).await;
    queue.lease(0).await
}

async fn dies(queue: &Queue, claimed: &Claimed, cause: Cause, class: &str) {
    let died = settlement(claimed, Verdict::Die { cause, cooldown_until_ms: None }, 1);
    let mut attempt = died.attempt.clone();
    attempt.error_class = Some(class.into());
    queue.settle(Settlement { attempt, ..died }).await;
}

fn version(number: &str) -> HandlerVersion {
    HandlerVersion::new("h", number).unwrap()
}

/// A queue with dead letters, and the token of their preview.
async fn previewed(letters: usize) -> (Queue, String) {
    let queue = Queue::new().await;
    for _ in 0..letters {
        let claimed = lease_one(&queue).await;
        dies(&queue, &claimed, Cause::Rejected, "a").await;
    }
    let token = preview(&queue, settings(3)).await.token.unwrap().0;
    (queue, token)
}

async fn begin(queue: &Queue, settings: BulkSettings, token: &str) -> Started {
    queue.store.start_bulk_replay(start(settings, token.to_owned())).await.unwrap()
}

fn ids(ids: &[i64]) -> Vec<DeadLetterId> {
    ids.iter().copied().map(DeadLetterId).collect()
}

#[tokio::test]
async fn r6_a_preview_shows_what_would_go_through_and_why_the_rest_would_not() {
    let queue = Queue::new().await;
    for _ in 0..7 {
        let claimed = lease_one(&queue).await;
        dies(&queue, &claimed, Cause::Poison, "a").await;
    }
    let in_doubt = lease_one(&queue).await;
    queue.begin_step(in_doubt.token, 0).await;
    dies(&queue, &in_doubt, Cause::Exhausted, "b").await;
    for _ in 0..2 {
        let applied = lease_one(&queue).await;
        queue.apply_step(applied.token, Vec::new(), 0).await;
        dies(&queue, &applied, Cause::Exhausted, "b").await;
    }
    let seen = preview(&queue, BulkSettings { override_reason: None, ..settings(3) }).await;
    let not_fixed = ReplayRefusal::DefectNotFixed { version: "h@1.0.0".into(), digest: Digest::of(b"h").short() };
    let unresolved = ReplayRefusal::StepUnresolved { steps: "send".into() };
    let expected = Preview {
        matching: 10,
        replayable: 2,
        target: Some((version("1.0.0"), Digest::of(b"h"))),
        by_cause: BTreeMap::from([("poison".into(), 7), ("exhausted".into(), 3)]),
        by_class: BTreeMap::from([("a".into(), 7), ("b".into(), 3)]),
        by_version: BTreeMap::from([("h@1.0.0".into(), 10)]),
        refusals: vec![
            RefusalGroup {
                code: "defect_not_fixed".into(),
                count: 7,
                detail: not_fixed.to_string(),
                examples: ids(&[1, 2, 3, 4, 5]),
            },
            RefusalGroup {
                code: "step_unresolved".into(),
                count: 1,
                detail: unresolved.to_string(),
                examples: ids(&[8]),
            },
        ],
        with_applied_steps: 2,
        with_steps_in_doubt: 1,
        token: Some((seen.token.clone().unwrap().0, 3 + VALID_MS)),
    };
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn r6_what_waits_in_a_bulk_replay_that_runs_is_shown_and_not_taken_over() {
    let (queue, _, letters) = begun(2, false).await;
    let elsewhere = RefusalGroup {
        code: "in_bulk_replay".into(),
        count: 2,
        detail: "it waits for its turn in bulk replay 1, which is running; stop that one to take it over".into(),
        examples: letters,
    };
    let seen = preview(&queue, settings(3)).await;
    assert_eq!((seen.replayable, seen.refusals, seen.token), (0, vec![elsewhere], None));
}

#[tokio::test]
async fn r6_nothing_is_started_but_what_was_previewed() {
    let (queue, token) = previewed(2).await;
    let altered = |places: &[usize]| {
        let mut bytes = hex::decode(&token).unwrap();
        for place in places {
            bytes[*place] ^= 1;
        }
        hex::encode(bytes)
    };
    let mismatch = Started::Token(TokenRefusal::Mismatch);
    // Its time, its check at the ends, and two bytes of that whose changes are alike.
    for token in [String::new(), altered(&[7]), altered(&[32]), altered(&[47]), altered(&[32, 33])] {
        assert_eq!(begin(&queue, settings(3), &token).await, mismatch, "{token}");
    }
    let mut of_a_class = settings(3);
    of_a_class.selection.error_class = Some("a".into());
    let named = BulkSettings { version: Some(version("1.0.0")), ..settings(3) };
    let not_overridden = BulkSettings { override_reason: None, ..settings(3) };
    for settings in [of_a_class, named, not_overridden] {
        assert_eq!(begin(&queue, settings, &token).await, mismatch);
    }
    assert_eq!(begin(&queue, settings(4 + VALID_MS), &token).await, Started::Token(TokenRefusal::Expired));
    assert_eq!(begin(&queue, settings(3 + VALID_MS), &token).await, Started::Now(BulkReplayId(1)));
}

#[tokio::test]
async fn r6_a_start_onto_another_version_than_the_previews_is_refused() {
    let (queue, token) = previewed(1).await;
    let other = StoredVersion { version: version("1.1.0"), digest: Digest::of(b"other"), size_bytes: 1 };
    queue.store.put_version(other, "tests", 4).await.unwrap();
    queue.store.activate_version(&version("1.1.0"), false, "tests", 4).await.unwrap();
    let changed = TokenRefusal::TargetChanged { current: "h@1.1.0".into() };
    assert_eq!(begin(&queue, settings(5), &token).await, Started::Token(changed));
    queue.store.retire_version(&version("1.1.0"), "tests", 6).await.unwrap();
    let not_live = ReplayRefusal::VersionNotLive {
        wanted: "the handler's current version".into(),
        state: "not stored".into(),
        live: "none".into(),
    };
    assert_eq!(begin(&queue, settings(7), &token).await, Started::Refused(not_live));
    queue.store.activate_version(&version("1.0.0"), false, "tests", 8).await.unwrap();
    assert_eq!(begin(&queue, settings(9), &token).await, Started::Now(BulkReplayId(1)));
}

#[tokio::test]
async fn r6_a_start_leaves_out_what_was_closed_and_what_another_one_has() {
    let (queue, token) = previewed(3).await;
    queue.store.discard(DeadLetterId(1), "jo", "given up", 4).await.unwrap();
    assert_eq!(begin(&queue, settings(5), &token).await, Started::Now(BulkReplayId(1)));
    let record = queue.store.bulk_replay(BulkReplayId(1)).await.unwrap().unwrap();
    assert_eq!((record.members, record.left_out_closed, record.left_out_elsewhere), (2, 1, 0));
    let nothing = Started::NothingLeft { closed: 1, elsewhere: 2, bulk_replay: Some(BulkReplayId(1)) };
    assert_eq!(begin(&queue, settings(6), &token).await, nothing);
}

#[test]
fn r6_each_reason_why_a_token_does_not_fit_has_a_code() {
    let changed = TokenRefusal::TargetChanged { current: "h@1.1.0".into() };
    let codes = [TokenRefusal::Mismatch, TokenRefusal::Expired, changed].map(|refusal| refusal.code());
    assert_eq!(codes, ["preview_mismatch", "preview_expired", "preview_target_changed"]);
}
