//! What is refused before a version goes live, and what is kept of compiling.

use std::{
    fs,
    future::Future as _,
    os::unix::fs::PermissionsExt,
    path::Path,
    task::{Context, Waker},
};

use leasehold_domain::{
    Digest,
    grants::{AttemptLimits, Grants},
};
use leasehold_sandbox::{ComponentError, Sandbox, SandboxError};
use serde_json::json;

use crate::support::{
    AMPLE, Host, MISBEHAVE, attempt, component, config, grants, handler, limits, output, prepare, sandbox, wat,
};

async fn refusal(bytes: &[u8], grants: &Grants) -> ComponentError {
    prepare(bytes, grants, &limits()).await.expect_err("the component must be refused")
}

#[tokio::test]
async fn h3_every_import_that_is_not_granted_is_named_with_its_line() {
    let error = refusal(&component(MISBEHAVE), &Grants::default()).await;
    assert_eq!(error.code(), "component_not_granted");
    let text = error.to_string();
    for (import, line) in [
        ("wasi:http/outgoing-handler@0.2.12", "`outbound = [\"GET,POST https://HOST\"]` under [handlers.handler]"),
        ("wasi:http/types@0.2.12", "`outbound ="),
        ("wasi:config/store@0.2.0-rc.1", "`settings = { KEY = \"value\" }` under [handlers.handler]"),
        ("wasi:keyvalue/store@0.2.0-draft", "`stores = { STORE = \"read-write\" }` under [handlers.handler]"),
    ] {
        assert!(text.contains(&format!("{import}: add {line}")), "{import} in {text}");
    }
    let partly = Grants { outbound: Vec::new(), ..grants(9) };
    let ComponentError::NotGranted { needs } = refusal(&component(MISBEHAVE), &partly).await else { panic!() };
    assert!(needs.iter().all(|need| need.import.starts_with("wasi:http/")) && needs.len() == 2);
}

#[tokio::test]
async fn h3_what_no_handler_can_be_granted_is_named() {
    let error = refusal(&component("wants-sockets@1.0.0"), &grants(9)).await;
    assert_eq!(error.code(), "component_unknown_import");
    assert!(error.to_string().contains("wasi:sockets/"), "{error}");
}

#[tokio::test]
async fn h3_a_component_that_does_not_start_in_time_is_refused() {
    let error = refusal(&component("loops-in-start@1.0.0"), &grants(9)).await;
    assert_eq!(error.code(), "component_start_failed");
    assert!(error.to_string().contains("longer than 2 s"), "{error}");
}

#[tokio::test]
async fn h3_what_is_no_handler_is_refused_with_what_it_is() {
    assert_eq!(refusal(&wat("another-world"), &grants(9)).await.code(), "component_wrong_world");
    assert_eq!(refusal(&wat("wrong-handle"), &grants(9)).await.code(), "component_wrong_world");
    assert_eq!(refusal(&wat("core-module"), &grants(9)).await.code(), "component_core_module");
}

#[tokio::test]
async fn h3_a_component_that_begins_with_too_much_memory_is_refused() {
    let tight = AttemptLimits { memory_max_bytes: 128 << 10, ..limits() };
    let error = prepare(&component(MISBEHAVE), &grants(9), &tight).await.unwrap_err();
    assert_eq!(error.code(), "component_too_much_memory");
    let vast = wat::parse_str("(component (core module (memory 4000)) (core instance (instantiate 0)))").unwrap();
    assert_eq!(refusal(&vast, &grants(9)).await.code(), "component_wrong_world");
    let vast = vast_handler();
    assert_eq!(refusal(&vast, &grants(9)).await.code(), "component_too_much_memory");
}

/// A component whose memory exceeds what the pool gives anybody. Its export has another type, but compiling it comes
/// first.
fn vast_handler() -> Vec<u8> {
    wat::parse_str(
        r#"(component
            (core module $m (memory 4000) (func (export "f")))
            (core instance $i (instantiate $m))
            (func $f (canon lift (core func $i "f")))
            (export "handle" (func $f)))"#,
    )
    .unwrap()
}

#[tokio::test]
async fn h8_a_file_that_is_not_whole_is_told_from_one_that_is_wrong() {
    let whole = component(MISBEHAVE);
    for part in [1, 9, whole.len() / 3, whole.len() - 1] {
        assert_eq!(sandbox().inspect(&whole[..part]).unwrap_err().code(), "component_truncated", "{part}");
    }
    let mut flipped = whole.clone();
    flipped[whole.len() / 2..whole.len() / 2 + 64].fill(0xff);
    let error = refusal(&flipped, &grants(9)).await;
    assert!(["component_invalid", "component_truncated"].contains(&error.code()), "{error}");
    let vast = vec![0; (8 << 20) + 1];
    assert_eq!(refusal(&vast, &grants(9)).await.code(), "component_too_large");
    assert_eq!(sandbox().inspect(&vast).unwrap_err().code(), "component_too_large");
}

#[tokio::test]
async fn h5_a_shared_memory_would_escape_the_limit_and_is_refused() {
    let text = r#"(component
        (core module $m (memory 1 1000 shared) (func (export "f")))
        (core instance $i (instantiate $m))
        (func $f (canon lift (core func $i "f")))
        (export "handle" (func $f)))"#;
    assert_eq!(refusal(&wat::parse_str(text).unwrap(), &grants(9)).await.code(), "component_invalid");
}

#[tokio::test]
async fn h1_a_component_is_what_its_digest_says() {
    let error = sandbox()
        .prepare(&handler(), Digest::of(b"another"), &component(MISBEHAVE), &grants(9), &limits())
        .await
        .expect_err("the digest is another's");
    assert_eq!(error.code(), "component_digest_mismatch");
}

#[test]
fn h8_name_and_version_come_from_the_component() {
    let inspection = sandbox().inspect(&component(MISBEHAVE)).unwrap();
    assert_eq!((inspection.name.as_deref(), inspection.version.as_deref()), (Some("misbehave"), Some("1.0.0")));
    assert!(inspection.exports.contains(&"handle".to_owned()));
    assert_eq!(inspection.needs.len(), 4);
}

#[tokio::test]
async fn h4_a_compiled_file_that_is_stale_or_damaged_is_a_miss() {
    let directory = tempfile::tempdir().unwrap();
    let compiled = directory.path().join("compiled");
    let sandbox = Sandbox::new(config(1, compiled.clone())).unwrap();
    let bytes = component("bench-parse@1.0.0");
    let prepare = async || sandbox.prepare(&handler(), Digest::of(&bytes), &bytes, &Grants::default(), &limits()).await;
    prepare().await.unwrap();
    let file = fs::read_dir(&compiled).unwrap().next().unwrap().unwrap().path();
    let mode = |path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&compiled), mode(&file)), (0o700, 0o600));
    let sound = fs::read(&file).unwrap();
    let mut flipped = sound.clone();
    flipped[sound.len() / 2] ^= 1;
    let mut unsigned = sound.clone();
    unsigned[..32].fill(0);
    for damaged in [flipped, unsigned, sound[..sound.len() / 2].to_vec(), b"short".to_vec(), Vec::new()] {
        fs::write(&file, damaged).unwrap();
        prepare().await.unwrap();
        assert_eq!(fs::read(&file).unwrap(), sound, "it was compiled again and kept");
    }
    let stale = compiled.join(format!("{}-000000000000.cwasm", Digest::of(&bytes)));
    fs::write(&stale, b"of another engine").unwrap();
    fs::remove_file(&file).unwrap();
    prepare().await.unwrap();
    assert!(file.exists() && !stale.exists());
}

#[tokio::test]
async fn h4_nothing_of_a_component_is_looked_at_on_the_thread_of_the_caller() {
    let directory = tempfile::tempdir().unwrap();
    let sandbox = Sandbox::new(config(1, directory.path().to_owned())).unwrap();
    let (name, none, limits) = (handler(), Grants::default(), limits());
    let prepare = |bytes: &[u8]| {
        let (sandbox, name, none, limits, bytes) = (&sandbox, &name, &none, &limits, bytes.to_owned());
        Box::pin(async move { sandbox.prepare(name, Digest::of(&bytes), &bytes, none, limits).await })
    };
    let context = &mut Context::from_waker(Waker::noop());
    // The compiler has this one to do first, which takes it a while.
    let mut first = prepare(&component("bench-parse@1.0.0"));
    assert!(first.as_mut().poll(context).is_pending());
    // What is wrong is plain from the first bytes, and still nothing is said before the compiler has looked.
    let mut preparing = prepare(&wat("core-module"));
    let at_once = preparing.as_mut().poll(context);
    assert!(at_once.is_pending(), "{at_once:?}");
    assert_eq!(preparing.await.unwrap_err().code(), "component_core_module");
    first.await.unwrap();
}

#[tokio::test]
async fn h4_a_compiled_file_is_used() {
    let directory = tempfile::tempdir().unwrap();
    let sandbox = Sandbox::new(config(1, directory.path().to_owned())).unwrap();
    let bytes = component("bench-parse@1.0.0");
    sandbox.prepare(&handler(), Digest::of(&bytes), &bytes, &Grants::default(), &limits()).await.unwrap();
    let file = fs::read_dir(directory.path()).unwrap().next().unwrap().unwrap().path();
    let written = fs::metadata(&file).unwrap().modified().unwrap();
    sandbox.prepare(&handler(), Digest::of(&bytes), &bytes, &Grants::default(), &limits()).await.unwrap();
    assert_eq!(fs::metadata(&file).unwrap().modified().unwrap(), written, "it was not written again");
}

#[test]
fn h5_the_sandbox_says_what_it_was_built_from_and_refuses_what_it_cannot_be() {
    assert_eq!(sandbox().slots(), 32);
    assert!(sandbox().describe().starts_with("32 slots: 35 component instances"), "{}", sandbox().describe());
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, b"").unwrap();
    assert!(matches!(Sandbox::new(config(1, file)), Err(SandboxError::Directory { .. })));
    assert!(matches!(Sandbox::new(config(0, directory.path().into())), Err(SandboxError::Config { .. })));
}

#[tokio::test]
async fn h3_a_handler_that_was_prepared_sees_its_job() {
    let bytes = component(MISBEHAVE);
    let prepared = prepare(&bytes, &grants(9), &limits()).await.unwrap();
    assert_eq!(prepared.digest(), Digest::of(&bytes));
    let request = attempt(&json!({"do": "echo", "payload": {"a": 1}}), AMPLE);
    let seen = output(&sandbox().start(&prepared, request, Host::new()).report().await);
    assert_eq!(seen["id"], 7);
    assert_eq!(seen["lane"], "lane");
    assert_eq!((&seen["attempt"], &seen["attempts_used"], &seen["attempts_max"]), (&json!(3), &json!(2), &json!(5)));
    assert_eq!(seen["metadata"], json!([["trace", "t-1"]]));
    assert_eq!(seen["payload"], json!({"a": 1}));
}

#[tokio::test]
async fn h3_the_shipped_handlers_are_prepared_with_what_they_need() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plugins/components");
    let mut prepared = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "wasm") {
            let bytes = fs::read(&path).unwrap();
            prepare(&bytes, &grants(9), &limits()).await.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            prepared += 1;
        }
    }
    assert!(prepared >= 3, "{prepared}");
}

#[test]
fn h8_a_file_with_any_byte_wrong_is_an_error_or_a_component_and_never_a_panic() {
    let whole = component("bench-parse@1.0.0");
    for place in (0..whole.len()).step_by(211) {
        let mut damaged = whole.clone();
        damaged[place] ^= 0x55;
        if let Err(error) = sandbox().inspect(&damaged) {
            assert!(!error.to_string().is_empty() && error.code().starts_with("component_"));
        }
    }
}
