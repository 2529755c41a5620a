//! What the tests share: the one sandbox, guests, jobs, and generous limits.

mod host;
mod server;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use leasehold_domain::{
    AttemptNumber, Digest, HandlerName, InDoubtPolicy, JobId, JobKey, Kind, Lane, Outcome,
    grants::{AttemptLimits, Grants, OutboundGrant, StoreAccess},
};
use leasehold_sandbox::{
    AttemptRequest, ComponentError, JobView, Prepared, RunReport, RunningGuest, Sandbox, SandboxConfig,
};
use serde_json::Value;

pub use host::{Call, Host, Recorded};
pub use server::Server;

/// The handler that does what its payload says.
pub const MISBEHAVE: &str = "misbehave@1.0.0";
/// Long enough for anything that is to end by itself.
pub const AMPLE: Duration = Duration::from_secs(30);

/// The process's one sandbox. Compiled guests are kept from one run of the tests to the next.
pub fn sandbox() -> &'static Sandbox {
    static SANDBOX: OnceLock<Sandbox> = OnceLock::new();
    SANDBOX.get_or_init(|| {
        let compiled = Path::new(env!("CARGO_TARGET_TMPDIR")).join("compiled");
        Sandbox::new(config(32, compiled)).expect("the sandbox starts")
    })
}

/// A configuration for tests.
pub fn config(slots: usize, compiled_directory: PathBuf) -> SandboxConfig {
    SandboxConfig {
        slots,
        memory_max_bytes: 64 << 20,
        stack_max_bytes: 512 << 10,
        component_max_bytes: 8 << 20,
        compiled_directory,
    }
}

fn guests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/guests")
}

/// A guest of `tests/guests/components`.
pub fn component(name: &str) -> Vec<u8> {
    std::fs::read(guests().join("components").join(format!("{name}.wasm"))).expect("the guest has been built")
}

/// A guest of `tests/guests/wat`.
pub fn wat(name: &str) -> Vec<u8> {
    wat::parse_file(guests().join("wat").join(format!("{name}.wat"))).expect("the text is well-formed")
}

/// Limits that no well-behaved guest meets.
pub fn limits() -> AttemptLimits {
    AttemptLimits {
        memory_max_bytes: 32 << 20,
        table_elements_max: 10_000,
        output_max_bytes: 64 << 10,
        log_max_bytes: 64 << 10,
        log_lines_max: 100,
        host_calls_max: 100,
        effects_max_bytes: 64 << 10,
        response_max_bytes: 64 << 10,
    }
}

/// Everything that `misbehave` imports, granted: one store to write, one to read, and HTTP to this machine's port.
pub fn grants(port: u16) -> Grants {
    Grants {
        absent: BTreeSet::new(),
        outbound: vec![outbound(port, &["GET", "POST"])],
        settings: BTreeMap::from([("greeting".to_owned(), "hello".to_owned())]),
        secrets: BTreeSet::new(),
        stores: BTreeMap::from([("own".to_owned(), StoreAccess::ReadWrite), ("shared".to_owned(), StoreAccess::Read)]),
        enqueue: None,
        annotate: BTreeSet::from(["mail".to_owned()]),
    }
}

/// A grant for this machine.
pub fn outbound(port: u16, methods: &[&str]) -> OutboundGrant {
    OutboundGrant {
        scheme: "http".into(),
        host: "127.0.0.1".into(),
        port,
        methods: methods.iter().map(|method| (*method).to_owned()).collect(),
        private: true,
        outside_step: false,
    }
}

/// Prepares bytes in the process's sandbox.
pub async fn prepare(bytes: &[u8], grants: &Grants, limits: &AttemptLimits) -> Result<Prepared, ComponentError> {
    sandbox().prepare(&handler(), Digest::of(bytes), bytes, grants, limits).await
}

/// The handler that the guests of these tests are versions of.
pub fn handler() -> HandlerName {
    HandlerName::new("handler").unwrap()
}

/// `misbehave` with these grants and limits.
pub async fn misbehave_with(grants: &Grants, limits: &AttemptLimits) -> Prepared {
    prepare(&component(MISBEHAVE), grants, limits).await.expect("misbehave is prepared")
}

/// `misbehave` with the ample limits and nobody to talk to.
pub async fn misbehave() -> Prepared {
    misbehave_with(&grants(9), &limits()).await
}

/// A job with this payload.
pub fn job(payload: &Value) -> JobView {
    JobView {
        id: JobId(7),
        kind: Kind::new("test").unwrap(),
        key: JobKey::new("order-1").unwrap(),
        lane: Some(Lane::new("lane").unwrap()),
        attempt: AttemptNumber(3),
        attempts_used: 2,
        attempts_max: 5,
        enqueued_at_ms: 1_000,
        deadline_ms: 2_000,
        content_type: "application/json".into(),
        payload: payload.to_string().into_bytes(),
        metadata: vec![("trace".into(), "t-1".into())],
        replay: None,
    }
}

/// One attempt with this payload and so much time.
pub fn attempt(payload: &Value, time: Duration) -> AttemptRequest {
    let deadline = Instant::now() + time;
    AttemptRequest { job: job(payload), deadline, in_doubt: InDoubtPolicy::BeginAgain, answers: None }
}

/// Starts an attempt.
pub fn start(prepared: &Prepared, payload: &Value, time: Duration, host: &Arc<Host>) -> RunningGuest {
    sandbox().start(prepared, attempt(payload, time), host.clone())
}

/// Runs an attempt to its end, with ample time.
pub async fn run(prepared: &Prepared, payload: &Value, host: &Arc<Host>) -> RunReport {
    start(prepared, payload, AMPLE, host).report().await
}

/// The result of a job that was done, as JSON.
pub fn output(report: &RunReport) -> Value {
    match &report.outcome {
        Outcome::Done { output: Some(output) } => serde_json::from_slice(output).expect("the guest answers in JSON"),
        other => panic!("not done with a result: {other:?}; log: {:?}; trap: {:?}", report.log, report.trap),
    }
}

/// The class that the attempt broke with.
pub fn broke(report: &RunReport) -> &str {
    match &report.outcome {
        Outcome::Broke { problem } => problem.class.as_str(),
        other => panic!("not broken: {other:?}"),
    }
}

/// The whole log as one text.
pub fn log(report: &RunReport) -> String {
    report.log.iter().map(|line| line.text.as_str()).collect::<Vec<_>>().join("\n")
}
