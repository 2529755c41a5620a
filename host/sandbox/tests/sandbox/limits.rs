//! Each limit ends its attempt with its own class, and no other attempt notices.

use std::{sync::Arc, time::Duration};

use leasehold_domain::{Outcome, grants::AttemptLimits};
use serde_json::{Value, json};

use crate::support::{
    AMPLE, Host, MISBEHAVE, Server, broke, component, grants, limits, log, misbehave, misbehave_with, output, prepare,
    run, start,
};

const BRIEF: Duration = Duration::from_millis(300);

async fn run_limited(limits: &AttemptLimits, payload: Value) -> leasehold_sandbox::RunReport {
    run(&misbehave_with(&grants(9), limits).await, &payload, &Host::new()).await
}

#[tokio::test]
async fn h5_an_endless_loop_ends_at_its_deadline_and_others_go_on_beside_it() {
    let misbehave = misbehave().await;
    let host = Host::new();
    let loops: Vec<_> = (0..4).map(|_| start(&misbehave, &json!({"do": "loop"}), AMPLE, &host)).collect();
    // The loops are still running when the others have come to their end: they have far more time.
    for _ in 0..10 {
        output(&run(&misbehave, &json!({"do": "echo"}), &host).await);
    }
    drop(loops);
    let report = start(&misbehave, &json!({"do": "loop"}), BRIEF, &host).report().await;
    assert_eq!(broke(&report), "limit.time");
    assert!(report.run_ms >= 250 && report.run_ms < 10_000, "{}", report.run_ms);
}

#[tokio::test]
async fn h5_a_guest_that_waits_in_the_host_ends_at_its_deadline() {
    let report = start(&misbehave().await, &json!({"do": "sleep", "ms": 60_000}), BRIEF, &Host::new()).report().await;
    assert_eq!(broke(&report), "limit.time");
}

#[tokio::test]
async fn h5_a_deadline_during_an_outbound_call_is_downstreams() {
    let server = Server::start().await;
    let misbehave = misbehave_with(&grants(server.port()), &limits()).await;
    let payload = json!({"do": "get", "url": server.url("/hang")});
    let report = start(&misbehave, &payload, Duration::from_secs(1), &Host::new()).report().await;
    let Outcome::DownstreamTimeout { problem } = report.outcome else { panic!("{:?}", report.outcome) };
    assert_eq!(problem.class.as_str(), "downstream.timeout");
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn h5_memory_that_was_refused_is_the_reason_and_not_the_trap_that_follows() {
    let report = run(&misbehave().await, &json!({"do": "memory"}), &Host::new()).await;
    assert_eq!(broke(&report), "limit.memory");
    assert!(report.memory_peak_bytes > 16 << 20 && report.memory_peak_bytes <= 32 << 20);
    let coped = run(&misbehave().await, &json!({"do": "memory", "then": "done"}), &Host::new()).await;
    assert!(output(&coped)["refused_at_mib"].as_u64().unwrap() > 16);
}

/// The largest memory that a module of a component has from its beginning, in bytes.
fn initial_memory_bytes(component: &[u8]) -> usize {
    let memories = wasmparser::Parser::new(0).parse_all(component).filter_map(|payload| match payload.unwrap() {
        wasmparser::Payload::MemorySection(memories) => {
            Some(memories.into_iter().map(|memory| memory.unwrap().initial))
        }
        _ => None,
    });
    usize::try_from(memories.flatten().max().unwrap()).unwrap() * (64 << 10)
}

#[tokio::test]
async fn h5_a_small_job_is_served_from_the_memory_that_its_guest_has_and_a_large_one_grows_it() {
    let initial = initial_memory_bytes(&component(MISBEHAVE));
    for (bytes, grows) in [(200, false), (20_000, false), (400_000, true)] {
        let payload = json!({ "do": "log", "text": "x".repeat(bytes) });
        let report = run(&misbehave().await, &payload, &Host::new()).await;
        assert!(matches!(report.outcome, Outcome::Done { .. }), "{:?}", report.outcome);
        assert_eq!(report.memory_peak_bytes > initial, grows, "{bytes} bytes: {}", report.memory_peak_bytes);
    }
}

#[tokio::test]
async fn h5_a_stack_that_overflows_has_its_own_class() {
    let report = run(&misbehave().await, &json!({"do": "stack"}), &Host::new()).await;
    assert_eq!(broke(&report), "limit.stack");
    // The committed guests carry no names; their frames do.
    assert!(report.trap.unwrap().contains("wasm function"));
}

#[tokio::test]
async fn h5_a_panic_comes_with_its_text_and_frames() {
    let report = run(&misbehave().await, &json!({"do": "panic", "message": "the reason"}), &Host::new()).await;
    assert_eq!(broke(&report), "handler.panic");
    let trap = report.trap.unwrap();
    assert!(trap.contains("the reason") && trap.contains("misbehave"), "{trap}");
}

#[tokio::test]
async fn h5_leaving_is_its_own_class() {
    let report = run(&misbehave().await, &json!({"do": "exit"}), &Host::new()).await;
    assert_eq!(broke(&report), "handler.exit");
}

#[tokio::test]
async fn h5_a_flood_of_log_lines_is_cut_and_the_job_goes_on() {
    let report = run(&misbehave().await, &json!({"do": "flood", "lines": 5_000}), &Host::new()).await;
    assert!(matches!(report.outcome, Outcome::Done { .. }));
    assert_eq!(report.log.len(), 101);
    assert!(log(&report).contains("4900 further lines (490000 bytes) were dropped"));
}

#[tokio::test]
async fn h5_a_log_that_goes_on_for_ever_has_its_own_class() {
    let report = run(&misbehave().await, &json!({"do": "flood", "lines": u32::MAX}), &Host::new()).await;
    assert_eq!(broke(&report), "limit.log");
    assert_eq!(report.log.len(), 101);
}

#[tokio::test]
async fn h5_a_result_that_is_too_large_has_its_own_class() {
    let just = run(&misbehave().await, &json!({"do": "output", "bytes": 64 << 10}), &Host::new()).await;
    assert!(matches!(just.outcome, Outcome::Done { .. }));
    for bytes in [(64 << 10) + 1, 8 << 20] {
        let report = run(&misbehave().await, &json!({"do": "output", "bytes": bytes}), &Host::new()).await;
        assert_eq!(broke(&report), "limit.output", "{bytes}");
    }
}

#[tokio::test]
async fn h5_calls_and_bytes_that_the_host_keeps_are_limited() {
    let few = AttemptLimits { host_calls_max: 2, ..limits() };
    let set = |value: &str| json!({"op": "set", "store": "own", "key": "k", "value": value});
    let payload = |ops: &[Value]| json!({"do": "kv", "ops": ops});
    let within = run_limited(&few, payload(&[set("a"), set("b")])).await;
    assert_eq!(within.effects.len(), 2);
    assert_eq!(broke(&run_limited(&few, payload(&[set("a"), set("b"), set("c")])).await), "limit.host_calls");
    let small = AttemptLimits { effects_max_bytes: 10, ..limits() };
    assert_eq!(broke(&run_limited(&small, payload(&[set("more than ten")])).await), "limit.host_calls");
}

#[tokio::test]
async fn h5_more_handed_over_in_one_call_than_is_allowed_ends_the_attempt() {
    let set = json!({"op": "set", "store": "own", "key": "k", "value": "x".repeat(3 << 20)});
    let report = run(&misbehave().await, &json!({"do": "kv", "ops": [set]}), &Host::new()).await;
    assert_eq!(broke(&report), "limit.host_calls");
    // It is the call itself that is refused, before the host has taken the bytes over.
    let Outcome::Broke { problem } = report.outcome else { panic!() };
    assert!(problem.message.contains("too much in one call"), "{}", problem.message);
}

#[tokio::test]
async fn h7_each_attempt_has_an_instance_of_its_own() {
    let misbehave = misbehave().await;
    let host = Host::new();
    for _ in 0..50 {
        assert_eq!(output(&run(&misbehave, &json!({"do": "count"}), &host).await), json!(1));
    }
}

#[tokio::test]
async fn h5_as_many_guests_as_there_are_slots_run_at_once_again_and_again() {
    let misbehave = prepare(&component(MISBEHAVE), &grants(9), &limits()).await.unwrap();
    for _ in 0..3 {
        let host = Host::new();
        let payload = json!({"do": "memory", "then": "loop"});
        let running: Vec<_> = (0..8).map(|_| start(&misbehave, &payload, BRIEF, &host)).collect();
        for guest in running {
            assert_eq!(broke(&guest.report().await), "limit.time");
        }
        assert_eq!(Arc::strong_count(&host), 1, "an attempt that has ended holds nothing");
    }
}
