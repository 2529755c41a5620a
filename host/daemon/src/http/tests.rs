//! The API over a real socket and a real queue, with no dispatcher behind it: jobs stay where they are put.

use std::{
    fs,
    future::Future as _,
    sync::Arc,
    task::{Context, Waker},
    time::Duration,
};

use bytes::Bytes;
use leasehold_api::{
    BatchAnswer, Client, ClientError, DeadLetterFilter, DiscardRequest, EnqueueRequest, JobFilter, Operation, Problem,
    Timestamp, WaitQuery,
};
use leasehold_domain::JobState;
use leasehold_sandbox::{Sandbox, SandboxConfig};
use leasehold_store::{Store, StoreOptions};
use serde_json::value::RawValue;
use tempfile::TempDir;
use tokio::sync::oneshot;

use crate::{
    artefacts::Artefacts,
    config::{Config, Durability},
    daemon::Daemon,
    http, metrics,
};

const CONFIGURATION: &str = r#"
[queue]
payload_max = "1KiB"
batch_max = 20000
[handlers.echo]
[kinds.pay]
handler = "echo"
owner = "payments"
[kinds.raw]
handler = "echo"
owner = "payments"
payload = "bytes"
"#;

/// A daemon that answers and runs nothing. It ends with its value.
struct Served {
    client: Client,
    daemon: Arc<Daemon>,
    directory: TempDir,
    stop: Option<oneshot::Sender<()>>,
    serving: tokio::task::JoinHandle<std::io::Result<()>>,
}

impl Served {
    /// Serves as an admin's daemon.
    fn start() -> Self {
        Self::start_for("admin")
    }

    /// Serves with the caller in that role.
    fn start_for(role: &str) -> Self {
        let uid = rustix::process::geteuid().as_raw();
        Self::start_with(&format!("[actors]\n\"uid:{uid}\" = {{ name = \"jo\", role = \"{role}\" }}\n"))
    }

    fn start_with(actors: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config.toml");
        fs::write(&path, format!("{CONFIGURATION}{actors}")).unwrap();
        let daemon = Arc::new(daemon(&Config::load(&path).unwrap()));
        let socket = directory.path().join("socket");
        let listener = http::bind(&socket).unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let shutdown = async { stopped.await.unwrap_or_default() };
        let serving = tokio::spawn(http::serve(listener, Arc::clone(&daemon), shutdown));
        Self { client: Client::new(&socket), daemon, directory, stop: Some(stop), serving }
    }
}

fn daemon(config: &Config) -> Daemon {
    let data_dir = &config.daemon.data_dir;
    let store = Store::open(&StoreOptions {
        directory: data_dir.clone(),
        key_file: config.daemon.key_file.clone(),
        durability: match config.queue.durability {
            Durability::Full => leasehold_store::Durability::Full,
            Durability::Normal => leasehold_store::Durability::Normal,
        },
        wal_autocheckpoint_pages: config.queue.wal_autocheckpoint_pages,
        batch_time: StoreOptions::BATCH_TIME,
    });
    let sandbox = Sandbox::new(SandboxConfig {
        slots: 1,
        memory_max_bytes: 1 << 20,
        stack_max_bytes: config.sandbox.stack_max_bytes,
        component_max_bytes: config.sandbox.component_max_bytes,
        compiled_directory: data_dir.join("compiled"),
    });
    let artefacts = Artefacts::open(data_dir.join("handlers")).unwrap();
    Daemon::new(store.unwrap(), sandbox.unwrap(), artefacts, config.clone(), metrics::install().unwrap())
}

fn job(kind: &str, key: &str, payload: &str) -> EnqueueRequest {
    EnqueueRequest {
        key: Some(key.to_owned()),
        payload: Some(RawValue::from_string(payload.to_owned()).unwrap()),
        ..EnqueueRequest::new(kind)
    }
}

fn refused<T: std::fmt::Debug>(result: Result<T, ClientError>) -> Problem {
    match result {
        Err(ClientError::Refused(problem)) => *problem,
        other => panic!("not a refusal: {other:?}"),
    }
}

#[tokio::test]
async fn q2_the_same_key_gives_the_first_job_and_another_payload_is_refused() {
    let served = Served::start();
    let first = served.client.enqueue(&job("pay", "order-1", "{\"amount\": 1}")).await.unwrap();
    let again = served.client.enqueue(&job("pay", "order-1", "{\"amount\": 1}")).await.unwrap();
    assert_eq!((first.duplicate, again.duplicate, again.id), (false, true, first.id));
    let conflict = refused(served.client.enqueue(&job("pay", "order-1", "{\"amount\": 2}")).await);
    assert_eq!(
        (conflict.code.as_str(), conflict.status, &conflict.extra["id"]),
        ("key_conflict", 409, &first.id.into())
    );
}

#[tokio::test]
async fn q17_what_is_over_a_limit_is_refused_with_the_limit() {
    let served = Served::start();
    let over = refused(served.client.enqueue(&job("pay", "k", &format!("\"{}\"", "x".repeat(1_023)))).await);
    assert_eq!(
        (over.code.as_str(), over.status, &over.extra["limit_bytes"]),
        ("payload_too_large", 413, &1_024.into())
    );
    let far_over = refused(served.client.enqueue(&job("pay", "k", &format!("\"{}\"", "x".repeat(8 << 20)))).await);
    assert_eq!((far_over.code.as_str(), far_over.status), ("payload_too_large", 413));
    let key = refused(served.client.enqueue(&job("pay", &"k".repeat(257), "1")).await);
    assert_eq!((key.code.as_str(), &key.extra["limit_bytes"]), ("key_too_long", &256.into()));
}

#[tokio::test]
async fn q17_a_json_kind_takes_json_alone_and_another_kind_takes_any_bytes() {
    let served = Served::start();
    let bytes = |kind: &str| EnqueueRequest { payload_base64: Some("/wA=".to_owned()), ..EnqueueRequest::new(kind) };
    assert_eq!(refused(served.client.enqueue(&bytes("pay")).await).code, "malformed_payload");
    let accepted = served.client.enqueue(&bytes("raw")).await.unwrap();
    assert_eq!(served.client.job(accepted.id).await.unwrap().summary.payload_bytes, 2);
    let neither = refused(served.client.enqueue(&EnqueueRequest::new("pay")).await);
    assert_eq!(neither.code, "invalid_job");
    assert_eq!(refused(served.client.enqueue(&job("nope", "k", "1")).await).code, "unknown_kind");
}

#[tokio::test]
async fn q14_a_job_for_a_time_waits_for_it() {
    let served = Served::start();
    let run_at = Timestamp::from_ms(crate::clock::wall_ms() + 3_600_000);
    let later = EnqueueRequest { run_at: Some(run_at), ..job("pay", "later", "1") };
    let answer = served.client.enqueue(&later).await.unwrap();
    assert_eq!(answer.state, JobState::Waiting);
    let visible_at = served.client.job(answer.id).await.unwrap().summary.visible_at.unwrap();
    assert_eq!(visible_at, run_at);
}

#[tokio::test]
async fn f1_ten_thousand_lines_are_answered_in_order_and_wrong_ones_are_named() {
    let served = Served::start();
    let line_of = |line: u32| match line {
        7 => "{\"kind\":\"pay\",\"payload\":".to_owned(),
        500 => String::new(),
        501 => format!("{{\"kind\":\"pay\",\"payload\":\"{}\"}}", "x".repeat(200_000)),
        9_999 => "{\"kind\":\"nope\",\"payload\":1}".to_owned(),
        _ => format!("{{\"kind\":\"pay\",\"key\":\"k{line}\",\"payload\":{line}}}"),
    };
    let body = (1..=10_000).map(line_of).collect::<Vec<_>>().join("\n");
    let answers = served.client.enqueue_lines(Bytes::from(body), true).await.unwrap();
    assert_eq!(answers.len(), 9_999);
    let refused: Vec<_> = answers
        .iter()
        .filter_map(|answer| match answer {
            BatchAnswer::Refused { line, code, .. } => Some((*line, code.as_str())),
            BatchAnswer::Accepted { .. } => None,
        })
        .collect();
    assert_eq!(refused, [(7, "malformed"), (501, "payload_too_large"), (9_999, "unknown_kind")]);
    assert!(matches!(answers[9_998], BatchAnswer::Accepted { line: 10_000, duplicate: false, .. }));
}

#[tokio::test]
async fn f1_lists_are_paged_by_cursor() {
    let served = Served::start();
    for key in ["a", "b", "c"] {
        served.client.enqueue(&job("pay", key, "1")).await.unwrap();
    }
    let mut filter = JobFilter { limit: Some(2), ..JobFilter::default() };
    let first = served.client.jobs(&filter).await.unwrap();
    filter.cursor = first.next_cursor;
    let second = served.client.jobs(&filter).await.unwrap();
    let ids: Vec<_> = first.items.iter().chain(&second.items).map(|job| job.id).collect();
    assert_eq!(ids.len(), 3);
    assert!(ids.is_sorted_by(|before, after| before > after), "{ids:?}");
    filter.limit = Some(0);
    assert_eq!(refused(served.client.jobs(&filter).await).code, "malformed");
}

#[tokio::test]
async fn q16_cancelling_ends_a_wait_and_cancelling_again_is_a_clear_error() {
    let served = Served::start();
    let id = served.client.enqueue(&job("pay", "k", "1")).await.unwrap().id;
    let waiting = tokio::spawn({
        let client = served.client.clone();
        async move { client.wait(id, &WaitQuery { timeout_ms: Some(60_000) }).await }
    });
    let brief = served.client.wait(id, &WaitQuery { timeout_ms: Some(1) }).await.unwrap();
    assert_eq!((brief.state, brief.ended), (JobState::Ready, false));
    assert_eq!(served.client.cancel(id).await.unwrap().state, JobState::Cancelled);
    let waited = tokio::time::timeout(Duration::from_secs(20), waiting).await.unwrap().unwrap().unwrap();
    assert_eq!((waited.state, waited.ended), (JobState::Cancelled, true));
    let again = refused(served.client.cancel(id).await);
    assert_eq!((again.code.as_str(), again.status), ("already_ended", 409));
    assert_eq!(refused(served.client.cancel(id + 1_000).await).code, "not_found");
}

#[tokio::test]
async fn o5_each_role_may_do_what_it_says_and_no_more() {
    let client = Served::start_for("enqueue");
    let own = client.client.enqueue(&job("pay", "k", "1")).await.unwrap().id;
    assert_eq!(client.client.job(own).await.unwrap().summary.id, own);
    let list = refused(client.client.jobs(&JobFilter::default()).await);
    assert_eq!((list.code.as_str(), list.status, &list.extra["needed_role"]), ("role_required", 403, &"view".into()));
    assert_eq!(refused(client.client.cancel(own).await).extra["needed_role"], "operate");
    assert_eq!(refused(client.client.reload().await).extra["needed_role"], "admin");
    let viewer = Served::start_for("view");
    assert!(viewer.client.dead_letters(&DeadLetterFilter::default()).await.unwrap().items.is_empty());
    assert_eq!(refused(viewer.client.enqueue(&job("pay", "k", "1")).await).code, "role_required");
    let discard = DiscardRequest { reason: "obsolete".to_owned() };
    assert_eq!(refused(viewer.client.discard(1, &discard).await).code, "role_required");
}

#[tokio::test]
async fn o5_whom_the_configuration_does_not_know_gets_nothing() {
    let stranger = Served::start_with("[actors]\n\"uid:4000000\" = { name = \"jo\", role = \"admin\" }\n");
    let problem = refused(stranger.client.jobs(&JobFilter::default()).await);
    assert_eq!((problem.code.as_str(), problem.status), ("unauthenticated", 401));
    assert_eq!(refused(stranger.client.ready().await).code, "unauthenticated");
}

#[tokio::test]
async fn o5_every_act_of_an_operator_is_in_the_audit_log() {
    let served = Served::start();
    served.client.pause_kind("pay").await.unwrap();
    let kinds = served.client.kinds().await.unwrap();
    assert!(kinds.items.iter().any(|kind| kind.kind == "pay" && kind.paused));
    served.client.resume_kind("pay").await.unwrap();
    assert_eq!(refused(served.client.pause_kind("nope").await).code, "unknown_kind");
    let log = served.client.audit(&leasehold_api::AuditFilter::default()).await.unwrap();
    let acts: Vec<_> = log.items.iter().map(|entry| (entry.actor.as_str(), entry.action.as_str())).collect();
    assert_eq!(acts, [("jo", "act.refused"), ("jo", "kind.resume"), ("jo", "kind.pause")]);
}

#[tokio::test]
async fn h9_a_kind_without_a_live_version_is_shown_to_wait() {
    let served = Served::start();
    served.client.enqueue(&job("pay", "k", "1")).await.unwrap();
    let kinds = served.client.kinds().await.unwrap();
    let pay = kinds.items.iter().find(|kind| kind.kind == "pay").unwrap();
    assert!(pay.waiting_for_handler && pay.live_version.is_none());
    assert_eq!(pay.depth["ready"], 1);
}

#[tokio::test]
async fn h1_what_is_no_component_is_refused_and_nothing_is_stored() {
    let served = Served::start();
    let garbage = refused(served.client.push_handler(Some("echo@1.0.0"), Bytes::from_static(b"\0asm")).await);
    assert_eq!(garbage.status, 422, "{garbage}");
    assert_eq!(refused(served.client.push_handler(Some("echo"), Bytes::new()).await).code, "malformed");
    assert!(served.client.handlers().await.unwrap().items.is_empty());
    assert_eq!(refused(served.client.handler("echo@1.0.0").await).code, "not_found");
    assert_eq!(refused(served.client.retire_handler("echo@1.0.0").await).status, 404);
}

/// The status that a route answers with, asked for with placeholders in its path.
async fn status_of(socket: &std::path::Path, operation: Operation) -> String {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let route = operation.route();
    let path = operation.path_to(&["1"]);
    let request =
        format!("{} {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 0\r\n\r\n", route.method);
    let mut stream = tokio::net::UnixStream::connect(socket).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[test]
fn o6_a_question_that_takes_too_long_may_be_asked_again() {
    let too_slow = leasehold_store::StoreError::TooSlow { time_box: Duration::from_secs(5) };
    let problem = super::refusal::problem_of_store(&too_slow);
    assert_eq!((problem.code.as_str(), problem.status), ("query_too_slow", 503));
}

#[tokio::test]
async fn o5_every_documented_route_is_served() {
    let served = Served::start();
    let socket = served.directory.path().join("socket");
    for operation in Operation::ALL {
        let answer = status_of(&socket, operation).await;
        assert!(!answer.contains("method_not_allowed") && !answer.contains("nothing is at"), "{operation:?}: {answer}");
        assert!(!answer.starts_with("HTTP/1.1 5"), "{operation:?}: {answer}");
    }
}

#[tokio::test]
async fn o1_who_waits_for_a_job_hears_of_its_end_however_many_others_end_meanwhile() {
    let served = Served::start();
    let id = served.client.enqueue(&job("pay", "k", "1")).await.unwrap().id;
    let waiting = tokio::spawn({
        let client = served.client.clone();
        async move { client.wait(id, &WaitQuery { timeout_ms: Some(60_000) }).await }
    });
    while served.daemon.waiting_for_ends() == 0 {
        tokio::task::yield_now().await;
    }
    // More of them, in one go, than the one who waits can keep up with.
    for other in 0..10_000 {
        served.daemon.job_ended(leasehold_domain::JobId(1_000 + other));
    }
    // Whoever falls behind has looked again by the time that other calls were answered.
    for _ in 0..3 {
        served.client.job(id).await.unwrap();
    }
    served.client.cancel(id).await.unwrap();
    let answer = waiting.await.unwrap().unwrap();
    assert_eq!((answer.state, answer.ended), (JobState::Cancelled, true));
}

#[tokio::test]
async fn q12_stopping_lets_go_of_those_who_wait() {
    let mut served = Served::start();
    let id = served.client.enqueue(&job("pay", "k", "1")).await.unwrap().id;
    let waiting = tokio::spawn({
        let client = served.client.clone();
        async move { client.wait(id, &WaitQuery { timeout_ms: Some(60_000) }).await }
    });
    // The wait has been heard of once a call behind it was answered; either way it must not hold the end up.
    served.client.job(id).await.unwrap();
    served.stop.take().unwrap().send(()).unwrap();
    tokio::time::timeout(Duration::from_secs(20), &mut served.serving).await.unwrap().unwrap().unwrap();
    drop(waiting);
}

#[test]
fn h4_a_pushed_component_is_looked_at_on_none_of_the_threads_that_answer() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config.toml");
    fs::write(&path, CONFIGURATION).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build().unwrap();
    runtime.block_on(async {
        let daemon = daemon(&Config::load(&path).unwrap());
        // The one thread for what may take long is taken, until it is let go.
        let (let_go, wait) = std::sync::mpsc::channel::<()>();
        let taken = tokio::task::spawn_blocking(move || wait.recv());
        let mut push =
            Box::pin(daemon.push_handler(Bytes::from_static(b"(component)"), Some("echo"), Some("1.0.0"), "jo"));
        // What is wrong is plain from the first byte, and still this thread goes on before it is said.
        let at_once = push.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(at_once.is_pending(), "{at_once:?}");
        let_go.send(()).unwrap();
        taken.await.unwrap().unwrap();
        assert_eq!(push.await.unwrap_err().code(), "component_text");
    });
}
