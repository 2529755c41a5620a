//! R2 to R8 and D5 on the store: what is refused, what goes back into the queue, and what is on record of it.

use leasehold_domain::{
    DeadLetterId, Digest, Effect, HandlerVersion, JobId, JobState, Lane, ReplayId, StepName, replay::ReplayRefusal,
};
use leasehold_store::{
    AuditFilter, EnqueueJob, ReplayAnswer, ReplayRequest, Resolution, Revealed, Settled, StepBegun, StoredVersion,
};

use crate::queue::{Queue, begin, complete, die, keyed_job, replay, settlement};

const LETTER: DeadLetterId = DeadLetterId(1);

fn fixed() -> HandlerVersion {
    HandlerVersion::new("h", "1.1.0").unwrap()
}

fn step(name: &str) -> StepName {
    StepName::new(name).unwrap()
}

fn request(now_ms: i64) -> ReplayRequest {
    ReplayRequest { actor: "ann".into(), ..replay(LETTER, now_ms) }
}

impl Queue {
    async fn replay(&self, request: ReplayRequest) -> ReplayAnswer {
        self.store.replay(request).await.unwrap()
    }

    async fn activate_fixed(&self) {
        let stored = StoredVersion { version: fixed(), digest: Digest::of(b"fixed"), size_bytes: 1 };
        self.store.put_version(stored, "tests", 20).await.unwrap();
        self.store.activate_version(&fixed(), false, "tests", 20).await.unwrap();
    }

    async fn refusal(&self, request: ReplayRequest) -> (String, String) {
        let before = self.contents();
        let refusal = self.replay(request).await.refusal(LETTER).expect("a refusal");
        assert_eq!(self.contents(), before, "a refused replay changes nothing");
        refusal
    }
}

/// A job that has begun these steps and died on version 1.0.0.
async fn dead(steps: &[&str], keep_original: bool) -> Queue {
    let queue = Queue::new().await;
    queue.enqueue(vec![keyed_job("k", "order-1", b"original")], 0).await;
    let claimed = queue.lease(1).await;
    for name in steps {
        let begun = queue.store.begin_step(begin(claimed.token, name, 1));
        assert_eq!(begun.await.unwrap(), StepBegun::Fresh);
    }
    let mut died = settlement(&claimed, die(), 10);
    died.dead_letter.as_mut().unwrap().keep_original = keep_original;
    let letter = Settled::Applied { ended: Some(JobState::Dead), dead_letter: Some(LETTER.0) };
    assert_eq!(queue.settle(died).await, letter);
    queue
}

#[tokio::test]
async fn r2_a_job_that_died_of_a_defect_needs_another_component_a_corrected_payload_or_a_reason() {
    let queue = dead(&[], true).await;
    let (code, words) = queue.refusal(request(20)).await;
    assert_eq!(code, "defect_not_fixed");
    let died_on = format!("h@1.0.0 is the component ({}) on which this job has died before;", Digest::of(b"h").short());
    assert!(words.starts_with(&died_on), "{words}");
    // The same payload again corrects nothing.
    let same = ReplayRequest { payload: Some(b"original".to_vec()), ..request(20) };
    assert_eq!(queue.refusal(same).await.0, "defect_not_fixed");
    let overridden = ReplayRequest { override_reason: Some("the provider was at fault".into()), ..request(20) };
    assert!(matches!(queue.replay(overridden).await, ReplayAnswer::Replayed { .. }));
}

#[tokio::test]
async fn r4_a_replayed_job_has_its_id_key_and_payload_and_its_record_says_who_replayed_it_onto_what() {
    let queue = dead(&[], true).await;
    queue.activate_fixed().await;
    let answer = queue.replay(request(30)).await;
    let replayed =
        ReplayAnswer::Replayed { replay: ReplayId(1), job: JobId(1), version: fixed(), digest: Digest::of(b"fixed") };
    assert_eq!((answer.refusal(LETTER), answer), (None, replayed));
    let claimed = queue.lease(31).await;
    let contents = claimed.contents.as_ref().unwrap();
    assert_eq!((contents.key.as_str(), contents.payload.as_slice()), ("order-1", &b"original"[..]));
    assert_eq!((claimed.token.job, claimed.token.attempt.0, claimed.attempts_used), (JobId(1), 2, 1));
    queue.settle(settlement(&claimed, complete(), 40)).await;
    let record = queue.store.job(JobId(1)).await.unwrap().unwrap();
    let replay = &record.replays[0];
    let said = (replay.actor.as_str(), replay.reason.as_str(), replay.at_ms, replay.version.as_str(), replay.digest);
    assert_eq!(said, ("ann", "again", 30, "h@1.1.0", Digest::of(b"fixed")));
    let (before, after) = replay.payload_digests.as_ref().expect("digests");
    assert_eq!((before, replay.payload_corrected), (after, false));
    assert_eq!(Some(after), record.payload_digest.as_ref());
    assert_eq!((replay.result.as_deref(), replay.ended_at_ms), (Some("done"), Some(40)));
    let letters: Vec<_> = record.dead_letters.iter().map(|letter| (letter.id, letter.state.as_str())).collect();
    assert_eq!(letters, [(LETTER, "replayed")]);
    let (code, words) = queue.refusal(request(50)).await;
    assert_eq!(code, "already_replayed");
    assert!(words.contains("replayed"), "{words}");
}

#[tokio::test]
async fn r4_a_corrected_payload_goes_in_place_of_the_original_which_stays_to_be_seen() {
    let queue = dead(&[], true).await;
    let corrected = ReplayRequest { payload: Some(b"corrected".to_vec()), ..request(20) };
    assert!(matches!(queue.replay(corrected).await, ReplayAnswer::Replayed { .. }));
    let record = queue.store.job(JobId(1)).await.unwrap().unwrap();
    let (before, after) = record.replays[0].payload_digests.clone().expect("digests");
    assert_ne!(before, after);
    assert_eq!((record.payload_digest, record.summary.payload_bytes), (Some(after), 9));
    assert!(record.replays[0].payload_corrected);
    assert_eq!(queue.lease(21).await.contents.as_ref().unwrap().payload, b"corrected");
    let Revealed::Original(original) = queue.store.reveal(LETTER, "ann", "to compare", 22).await.unwrap() else {
        panic!("the original is gone")
    };
    assert_eq!((original.key.as_str(), original.payload.as_slice()), ("order-1", &b"original"[..]));
}

#[tokio::test]
async fn d4_an_original_that_was_not_kept_is_neither_replayed_nor_shown_and_a_payload_can_be_given() {
    let queue = dead(&[], false).await;
    queue.activate_fixed().await;
    let (code, words) = queue.refusal(request(30)).await;
    assert_eq!(code, "original_not_kept");
    assert!(words.contains("give the payload with the replay"), "{words}");
    assert!(queue.store.reveal(LETTER, "ann", "to look", 30).await.unwrap() == Revealed::NotKept);
    let given = ReplayRequest { payload: Some(b"given".to_vec()), ..request(31) };
    assert!(matches!(queue.replay(given).await, ReplayAnswer::Replayed { .. }));
    let state = "replayed".to_owned();
    assert!(queue.store.reveal(LETTER, "ann", "to look", 32).await.unwrap() == Revealed::NotOpen { state });
    let nobody = DeadLetterId(4711);
    assert!(queue.store.reveal(nobody, "ann", "to look", 32).await.unwrap() == Revealed::NotFound);
    let (code, words) = queue.refusal(ReplayRequest { dead_letter: nobody, ..request(33) }).await;
    assert_eq!((code.as_str(), words.as_str()), ("not_found", "there is no dead letter 1"));
}

#[tokio::test]
async fn r8_steps_in_doubt_are_resolved_with_the_replay_and_nothing_else_is() {
    let queue = dead(&["charge", "mail"], true).await;
    queue.activate_fixed().await;
    let unresolved = |steps: &str| ReplayAnswer::Refused(ReplayRefusal::StepUnresolved { steps: steps.into() });
    assert_eq!(queue.replay(request(30)).await, unresolved("charge, mail"));
    let applied = (step("charge"), Resolution::Applied(b"receipt".to_vec()));
    let some = ReplayRequest { resolutions: vec![applied.clone()], ..request(30) };
    assert_eq!(queue.replay(some.clone()).await, unresolved("mail"));
    let all = vec![applied, (step("mail"), Resolution::NotApplied)];
    let too_many = ReplayRequest {
        resolutions: [all.clone(), vec![(step("ship"), Resolution::NotApplied)]].concat(),
        ..request(30)
    };
    let (code, words) = queue.refusal(too_many).await;
    assert_eq!((code.as_str(), words.contains("step ship is not in doubt")), ("step_not_in_doubt", true), "{words}");
    let replayed = queue.replay(ReplayRequest { resolutions: all, ..request(30) }).await;
    assert!(matches!(replayed, ReplayAnswer::Replayed { .. }), "{replayed:?}");
    let look = |name: &'static str| queue.store.look_at_step(JobId(1), step(name), Vec::new());
    let receipt = StepBegun::Applied { result: b"receipt".to_vec(), other_fingerprint: false };
    assert_eq!((look("charge").await.unwrap(), look("mail").await.unwrap()), (receipt, StepBegun::Fresh));
    let audited = queue.store.audit(AuditFilter { actor: Some("ann".into()), ..AuditFilter::default() }, 10).await;
    let detail: serde_json::Value = serde_json::from_str(&audited.unwrap().items[0].detail).unwrap();
    assert_eq!(detail["steps"], serde_json::json!({ "charge": "applied", "mail": "not_applied" }));
}

#[tokio::test]
async fn r8_a_kind_that_begins_steps_again_needs_nothing_said_of_them() {
    let queue = dead(&["charge"], true).await;
    queue.activate_fixed().await;
    let again = queue.replay(ReplayRequest { begin_again: true, ..request(30) }).await;
    assert!(matches!(again, ReplayAnswer::Replayed { .. }), "{again:?}");
}

#[tokio::test]
async fn r7_a_rehearsal_reads_what_a_replay_would_find_and_of_one_that_was_replayed_nothing_sealed() {
    let queue = Queue::new().await;
    let sent = EnqueueJob { metadata: vec![("tenant".into(), "7".into())], ..keyed_job("k", "order-1", b"original") };
    queue.enqueue(vec![EnqueueJob { lane: Some(Lane::new("l").unwrap()), ..sent }], 5).await;
    let claimed = queue.lease(6).await;
    let kept = Effect::Set { store: "s".into(), key: "a".into(), value: b"v".to_vec() };
    queue.apply_step(claimed.token, vec![kept.clone()], 7).await;
    queue.settle(settlement(&claimed, die(), 10)).await;
    let found = queue.store.rehearsable(LETTER).await.unwrap().expect("the dead letter");
    assert_eq!((found.job, found.kind.as_str(), found.lane.as_deref()), (JobId(1), "k", Some("l")));
    assert_eq!((found.state.as_str(), found.attempt.0, found.replays, found.enqueued_at_ms), ("open", 1, 0, 5));
    assert_eq!((found.key.as_str(), found.payload.as_deref()), ("order-1", Some(&b"original"[..])));
    assert_eq!((found.metadata, found.kept), (vec![("tenant".into(), "7".into())], vec![("send".into(), kept)]));
    queue.activate_fixed().await;
    queue.replay(request(30)).await;
    let found = queue.store.rehearsable(LETTER).await.unwrap().expect("the dead letter");
    assert_eq!((found.state.as_str(), found.replays, found.payload), ("replayed", 1, None));
    assert!(queue.store.rehearsable(DeadLetterId(4711)).await.unwrap().is_none());
}
