//! What a guest reaches of stored values, settings and the outbox, and how its answers are read.

use std::collections::BTreeSet;

use leasehold_domain::{Effect, Outcome, Said, grants::Grants};
use serde_json::json;

use crate::support::{Host, grants, limits, log, misbehave, misbehave_with, output, run};

#[tokio::test]
async fn h6_only_granted_stores_are_reached_and_only_as_granted() {
    let host = Host::new();
    host.put("shared", "k", "stored");
    host.put("other", "k", "somebody else's");
    let ops = json!([
        {"op": "get", "store": "shared", "key": "k"},
        {"op": "set", "store": "shared", "key": "k", "value": "v"},
        {"op": "get", "store": "other", "key": "k"},
        {"op": "exists", "store": "own", "key": "k"},
    ]);
    let report = run(&misbehave().await, &json!({"do": "kv", "ops": ops}), &host).await;
    assert_eq!(output(&report), json!(["stored", {"error": "AccessDenied"}, {"error": "AccessDenied"}, false]));
    assert!(report.effects.is_empty());
}

#[tokio::test]
async fn i4_a_guest_reads_its_own_writes_before_they_are_stored() {
    let host = Host::new();
    host.put("own", "old", "stored");
    let ops = json!([
        {"op": "set", "store": "own", "key": "new", "value": "1"},
        {"op": "get", "store": "own", "key": "new"},
        {"op": "delete", "store": "own", "key": "old"},
        {"op": "exists", "store": "own", "key": "old"},
    ]);
    let report = run(&misbehave().await, &json!({"do": "kv", "ops": ops}), &host).await;
    assert_eq!(output(&report), json!(["set", "1", "deleted", false]));
    let set = Effect::Set { store: "own".into(), key: "new".into(), value: b"1".to_vec() };
    assert_eq!(report.effects, vec![set, Effect::Delete { store: "own".into(), key: "old".into() }]);
}

#[tokio::test]
async fn h6_settings_are_those_of_the_handler_alone() {
    let read = async |name: &str| run(&misbehave().await, &json!({"do": "settings", "name": name}), &Host::new()).await;
    assert_eq!(output(&read("greeting").await), json!("hello"));
    assert_eq!(output(&read("PATH").await), json!(null));
}

#[tokio::test]
async fn h6_kinds_to_enqueue_are_restricted_by_the_grant() {
    let grants = Grants { enqueue: Some(BTreeSet::from(["mail".to_owned(), "unknown".to_owned()])), ..grants(9) };
    let misbehave = misbehave_with(&grants, &limits()).await;
    let jobs = json!([{"kind": "mail", "payload": 1}, {"kind": "other"}, {"kind": "unknown"}, {"kind": "No Kind"}]);
    let report = run(&misbehave, &json!({"do": "enqueue", "jobs": jobs}), &Host::new()).await;
    let answers = output(&report);
    assert_eq!(answers[0], "enqueued");
    assert!(answers[1]["error"].as_str().unwrap().contains("allowed are: mail, unknown"), "{answers}");
    assert_eq!(answers[2]["error"], answers[3]["error"]);
    assert!(answers[2]["error"].as_str().unwrap().contains("UnknownKind"), "{answers}");
    let [Effect::Enqueue(job)] = report.effects.as_slice() else { panic!("{:?}", report.effects) };
    assert_eq!((job.kind.as_str(), job.payload.as_slice()), ("mail", b"1".as_slice()));
}

#[tokio::test]
async fn d1_what_the_guest_says_comes_through_as_said() {
    let misbehave = misbehave().await;
    let fail = async |kind: &str| {
        let payload = json!({"do": "fail", "as": kind, "class": "c.d", "message": "m", "after_ms": 1500});
        match run(&misbehave, &payload, &Host::new()).await.outcome {
            Outcome::Failed { said, problem } => (said, problem.class.as_str().to_owned(), problem.message),
            other => panic!("{other:?}"),
        }
    };
    let said = |said| (said, "c.d".to_owned(), "m".to_owned());
    assert_eq!(fail("retry").await, said(Said::Retry));
    assert_eq!(fail("rate_limited").await, said(Said::RateLimited { retry_after_ms: Some(1500) }));
    assert_eq!(fail("rejected").await, said(Said::Rejected));
    assert_eq!(fail("poison").await, said(Said::Poison));
    let suppressed = run(&misbehave, &json!({"do": "suppress", "reason": "why"}), &Host::new()).await;
    assert_eq!(suppressed.outcome, Outcome::Suppressed { reason: "why".into() });
    let unreadable = run(&misbehave, &json!({"do": "what"}), &Host::new()).await;
    let Outcome::Failed { said: Said::Poison, problem } = unreadable.outcome else { panic!() };
    assert_eq!(problem.class.as_str(), "payload.invalid");
}

#[tokio::test]
async fn h5_what_a_guest_logs_is_in_its_report() {
    let report = run(&misbehave().await, &json!({"do": "log", "text": "one\ntwo"}), &Host::new()).await;
    assert_eq!(log(&report), "one\ntwo");
    assert_eq!(report.log[0].level.as_str(), "info");
}
