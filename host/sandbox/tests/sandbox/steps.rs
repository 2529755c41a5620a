//! Steps: each effect once, and nothing called applied or taken back that may have been otherwise.

use std::time::Duration;

use leasehold_domain::{Effect, InDoubtPolicy, Outcome, StopReason};
use leasehold_sandbox::{AttemptRequest, BeginError};
use serde_json::{Value, json};

use crate::support::{
    AMPLE, Call, Host, Recorded, Server, attempt, broke, grants, limits, misbehave, misbehave_with, output, run,
    sandbox, start,
};

fn step(more: &Value) -> Value {
    let mut payload = json!({"do": "step", "name": "send"});
    payload.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    payload
}

#[tokio::test]
async fn i1_an_applied_step_is_not_run_again() {
    let misbehave = misbehave().await;
    let host = Host::new();
    let first = run(&misbehave, &step(&json!({})), &host).await;
    assert_eq!((output(&first)["has_run"].clone(), first.steps.fresh, first.steps.applied), (json!(true), 1, 1));
    let second = run(&misbehave, &step(&json!({})), &host).await;
    assert_eq!((output(&second)["has_run"].clone(), second.steps.answered_from_store), (json!(false), 1));
    assert_eq!(output(&first)["result"], output(&second)["result"]);
    assert_eq!(output(&first)["result"]["idempotency_key"], "key-of-send");
}

#[tokio::test]
async fn i1_one_step_is_open_at_a_time_and_a_name_is_begun_once_an_attempt() {
    let misbehave = misbehave().await;
    for payload in [step(&json!({"begin_twice": true})), step(&json!({"inside": "nested"}))] {
        let host = Host::new();
        let report = run(&misbehave, &payload, &host).await;
        assert!(matches!(report.outcome, Outcome::Failed { .. }), "{payload}: {:?}", report.outcome);
        let begins = host.calls().iter().filter(|call| matches!(call, Call::Begin(_))).count();
        assert_eq!(begins, 1, "{payload}");
    }
}

#[tokio::test]
async fn i2_a_step_that_another_attempt_runs_gives_this_attempt_back() {
    let host = Host::new();
    host.fail_begins(BeginError::InProgress);
    let report = run(&misbehave().await, &step(&json!({})), &host).await;
    assert!(matches!(report.outcome, Outcome::StepInProgress { step } if step.as_str() == "send"));
}

#[tokio::test]
async fn q7_a_lost_lease_stops_the_guest_at_the_next_step() {
    let host = Host::new();
    host.fail_begins(BeginError::LeaseLost);
    let report = run(&misbehave().await, &step(&json!({})), &host).await;
    assert_eq!(report.outcome, Outcome::Stopped(StopReason::LeaseLost));
}

#[tokio::test]
async fn i3_a_step_in_doubt_is_begun_again_or_ends_the_job_as_its_kind_says() {
    let misbehave = misbehave().await;
    let host = Host::new();
    host.leave_begun("send");
    let request = AttemptRequest { in_doubt: InDoubtPolicy::DeadLetter, ..attempt(&step(&json!({})), AMPLE) };
    let report = sandbox().start(&misbehave, request, host.clone()).report().await;
    assert!(matches!(report.outcome, Outcome::StepInDoubt { step } if step.as_str() == "send"));
    assert_eq!((host.step("send"), report.steps.left_in_doubt), (Recorded::Begun, 1));
    let again = run(&misbehave, &step(&json!({})), &host).await;
    assert_eq!(output(&again)["result"]["in_doubt"], true);
    assert_eq!(again.steps.in_doubt, 1);
}

#[tokio::test]
async fn i3_a_step_under_which_nothing_was_sent_is_taken_back_however_the_guest_ends() {
    let misbehave = misbehave().await;
    for (inside, time) in [
        (json!("panic"), AMPLE),
        (json!("not_applied"), AMPLE),
        (json!("loop"), Duration::from_millis(300)),
        (json!("hang"), Duration::from_millis(300)),
    ] {
        let host = Host::new();
        let report = start(&misbehave, &step(&json!({"inside": inside})), time, &host).report().await;
        assert_eq!(host.calls().last(), Some(&Call::TakeBack("send".into())), "{inside}: {:?}", report.outcome);
        assert_eq!((host.step("send"), report.steps.taken_back), (Recorded::Nothing, 1), "{inside}");
    }
}

#[tokio::test]
async fn i3_a_step_that_was_in_doubt_is_never_taken_back() {
    let misbehave = misbehave().await;
    for inside in ["panic", "not_applied", "unknown"] {
        let host = Host::new();
        host.leave_begun("send");
        run(&misbehave, &step(&json!({"inside": inside})), &host).await;
        assert_eq!((host.step("send"), host.calls()), (Recorded::Begun, vec![Call::Begin("send".into())]), "{inside}");
    }
}

#[tokio::test]
async fn i3_a_step_whose_request_left_stays_in_doubt() {
    let server = Server::start().await;
    let misbehave = misbehave_with(&grants(server.port()), &limits()).await;
    let host = Host::new();
    let payload = step(&json!({"url": server.url("/ok"), "body": "b", "inside": "panic"}));
    let report = run(&misbehave, &payload, &host).await;
    assert_eq!(broke(&report), "handler.panic");
    assert_eq!((host.step("send"), server.requests().len(), report.steps.left_in_doubt), (Recorded::Begun, 1, 1));
}

#[tokio::test]
async fn i3_a_step_stopped_while_its_request_is_under_way_stays_in_doubt() {
    let server = Server::start().await;
    let misbehave = misbehave_with(&grants(server.port()), &limits()).await;
    let host = Host::new();
    let guest = start(&misbehave, &step(&json!({"url": server.url("/hang"), "body": "b"})), AMPLE, &host);
    server.arrived(1).await;
    guest.stop(StopReason::Shutdown);
    assert_eq!(guest.report().await.outcome, Outcome::Stopped(StopReason::Shutdown));
    assert_eq!(host.step("send"), Recorded::Begun);
}

#[tokio::test]
async fn i3_a_connection_that_failed_leaves_the_step_untouched() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let misbehave = misbehave_with(&grants(port), &limits()).await;
    let host = Host::new();
    let url = format!("http://127.0.0.1:{port}/");
    let report = run(&misbehave, &step(&json!({"url": url, "body": "b"})), &host).await;
    assert!(matches!(report.outcome, Outcome::Failed { .. }), "{:?}", report.outcome);
    assert_eq!(host.step("send"), Recorded::Nothing);
}

#[tokio::test]
async fn i3_the_host_sends_the_steps_key_and_only_one_request_without_another() {
    let server = Server::start().await;
    let misbehave = misbehave_with(&grants(server.port()), &limits()).await;
    let payload = |own_key| step(&json!({"url": server.url("/ok"), "body": "b", "requests": 2, "own_key": own_key}));
    let report = run(&misbehave, &payload(false), &Host::new()).await;
    let answers = output(&report)["result"]["answers"].clone();
    assert_eq!((&answers[0]["status"], &answers[1]["error"]), (&json!(200), &json!("Denied")));
    assert_eq!(server.requests().len(), 1);
    assert!(server.requests()[0].contains("\r\nidempotency-key: key-of-send"), "{:?}", server.requests());
    let report = run(&misbehave, &payload(true), &Host::new()).await;
    assert_eq!(output(&report)["result"]["answers"][1]["status"], 200);
    let keys: Vec<_> = server.requests()[1..].iter().map(|head| head.matches("idempotency-key").count()).collect();
    assert_eq!(keys, vec![1, 1]);
    assert!(server.requests()[2].contains("idempotency-key: own-1"));
}

#[tokio::test]
async fn i4_effects_of_a_step_go_with_its_completion_and_others_with_the_attempt() {
    let host = Host::new();
    let set = json!([{"op": "set", "store": "own", "key": "k", "value": "v"}]);
    let payload = step(&json!({"kv": set, "enqueue": [{"kind": "mail"}]}));
    let report = run(&misbehave().await, &payload, &host).await;
    assert!(report.effects.is_empty());
    let calls = host.calls();
    let Some(Call::Complete(_, effects)) = calls.last() else { panic!("{calls:?}") };
    assert!(matches!(effects.as_slice(), [Effect::Set { .. }, Effect::Enqueue(_)]), "{effects:?}");
}

#[tokio::test]
async fn i4_effects_of_a_step_that_was_taken_back_are_gone() {
    let host = Host::new();
    let set = json!([{"op": "set", "store": "own", "key": "k", "value": "v"}]);
    let report = run(&misbehave().await, &step(&json!({"kv": set, "inside": "not_applied"})), &host).await;
    assert!(report.effects.is_empty());
    assert!(!host.calls().iter().any(|call| matches!(call, Call::Complete(..))));
}

#[tokio::test]
async fn i3_a_guest_stopped_while_a_step_is_being_begun_has_not_begun_it() {
    let host = Host::new();
    host.hold();
    let guest = start(&misbehave().await, &step(&json!({})), AMPLE, &host);
    host.arrived(1).await;
    guest.stop(StopReason::Cancelled);
    host.let_go();
    assert_eq!(guest.report().await.outcome, Outcome::Stopped(StopReason::Cancelled));
    assert_eq!(host.calls(), vec![Call::Begin("send".into()), Call::TakeBack("send".into())]);
}

#[tokio::test]
async fn i1_a_result_that_the_host_refuses_is_said_so() {
    let host = Host::new();
    host.limit_results(100);
    let report = run(&misbehave().await, &step(&json!({"result_bytes": 1000})), &host).await;
    assert!(matches!(report.outcome, Outcome::Failed { .. }), "{:?}", report.outcome);
    assert!(!host.calls().iter().any(|call| matches!(call, Call::Complete(..))));
}

#[tokio::test]
async fn i1_a_host_that_fails_is_no_defect_of_the_guest() {
    let host = Host::new();
    host.panic_at_begins();
    let report = run(&misbehave().await, &step(&json!({})), &host).await;
    assert!(matches!(report.outcome, Outcome::HandlerUnavailable { .. }), "{:?}", report.outcome);
}
