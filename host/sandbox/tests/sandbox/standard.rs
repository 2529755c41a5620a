//! A guest of the standard library, built for `wasm32-wasip2`: it links, it finds everything outside shut, and what it
//! prints is captured.

use leasehold_domain::{Outcome, grants::Grants};
use leasehold_sandbox::{Prepared, RunReport};
use serde_json::{Value, json};

use crate::support::{Host, broke, limits, log, output, prepare, run, sandbox};

const STANDARD: &[u8] = include_bytes!("../standard@1.0.0.wasm");

async fn standard() -> Prepared {
    prepare(STANDARD, &Grants::default(), &limits()).await.expect("it needs no grant")
}

async fn run_standard(payload: Value) -> RunReport {
    run(&standard().await, &payload, &Host::new()).await
}

#[test]
fn h3_what_the_standard_library_imports_needs_no_grant() {
    let inspection = sandbox().inspect(STANDARD).unwrap();
    assert!(inspection.imports.iter().any(|import| import.starts_with("wasi:filesystem/preopens@0.2.")));
    assert_eq!(inspection.needs, Vec::new());
}

#[tokio::test]
async fn h6_nothing_outside_is_there() {
    let seen = output(&run_standard(json!({"do": "look"})).await);
    assert_eq!(
        seen,
        json!({"variables": 0, "arguments": 0, "root": false, "file": false, "stdin": 0, "has_clock": true})
    );
}

#[tokio::test]
async fn h5_what_is_printed_is_in_the_jobs_log() {
    let report = run_standard(json!({"do": "print"})).await;
    let lines: Vec<_> = report.log.iter().map(|line| (line.level.as_str(), line.text.as_str())).collect();
    assert_eq!(lines, vec![("info", "to stdout"), ("warn", "to stderr")]);
    assert_eq!(log(&run_standard(json!({"do": "unfinished"})).await), "without an end");
}

#[tokio::test]
async fn h5_a_panic_on_stderr_is_a_panic_with_its_text() {
    let report = run_standard(json!({"do": "panic"})).await;
    assert_eq!(broke(&report), "handler.panic");
    assert!(report.trap.unwrap().contains("the reason"));
}

#[tokio::test]
async fn h5_an_exit_says_its_code() {
    for code in [0, 3] {
        let report = run_standard(json!({"do": "exit", "code": code})).await;
        let Outcome::Broke { problem } = &report.outcome else { panic!("{:?}", report.outcome) };
        assert_eq!(problem.class.as_str(), "handler.exit");
    }
}

#[tokio::test]
async fn h5_memory_of_the_standard_allocator_is_limited_too() {
    assert_eq!(broke(&run_standard(json!({"do": "memory"})).await), "limit.memory");
}

#[tokio::test]
async fn h5_a_traps_frames_have_their_names() {
    let report = run_standard(json!({"do": "names"})).await;
    assert_eq!(broke(&report), "handler.trap");
    let trap = report.trap.unwrap();
    assert!(trap.contains("standard::a_function_with_a_name"), "{trap}");
    assert!(!trap.contains("_ZN") && !trap.contains("_RNv"), "{trap}");
}
