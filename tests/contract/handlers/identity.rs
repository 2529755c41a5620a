//! H1: what a stored version is, and what becomes of one whose file is damaged.

use std::{fs, path::PathBuf};

use serde_json::{Value, json};

use crate::{
    helpers::{
        BENCH_PARSE, FIRST, SECOND, activate, detail, done, kind, push_as, push_second, run_another_kind, state,
        version, with_other_bytes,
    },
    support::{ConfigText, Daemon, guest},
};

/// The file of a stored version.
fn artefact(daemon: &Daemon, of: &str) -> PathBuf {
    let digest = version(daemon, of)["digest"].as_str().unwrap().to_owned();
    let path = daemon.data().join("handlers").join(format!("{digest}.wasm"));
    assert!(path.is_file(), "{}", path.display());
    path
}

/// Changes one byte in the middle of a file.
fn damage(path: &PathBuf) {
    let mut bytes = fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(path, bytes).unwrap();
}

#[test]
fn h1_a_stored_version_never_changes_its_bytes() {
    let daemon = Daemon::with_misbehave(&ConfigText::default());
    let before = version(&daemon, FIRST);
    let other = with_other_bytes(&daemon, &guest(FIRST));
    for options in [&[][..], &["--activate"]] {
        let refused = push_as(&daemon, &other, FIRST, options);
        assert_eq!(refused.refusal(), "version_exists_with_other_bytes");
        assert!(detail(&refused).contains(before["digest"].as_str().unwrap()), "{}", detail(&refused));
    }
    assert_eq!(version(&daemon, FIRST), before);
    let same = push_as(&daemon, &guest(FIRST), FIRST, &[]).json();
    assert_eq!((&same["already_stored"], &same["digest"]), (&json!(true), &before["digest"]));
    assert_eq!(version(&daemon, FIRST), before);
    assert_eq!(daemon.database().one::<i64>("SELECT count(*) FROM audit WHERE action = 'handler.push'"), 1);
}

#[test]
fn h1_a_damaged_component_does_not_go_live_until_it_is_pushed_again() {
    let daemon = Daemon::with_misbehave(&ConfigText::default());
    push_second(&daemon);
    let path = artefact(&daemon, SECOND);
    let harms: [fn(&PathBuf); 2] = [damage, |path| fs::remove_file(path).unwrap()];
    for harm in harms {
        harm(&path);
        let refused = daemon.ask(&["handlers", "activate", SECOND]);
        assert_eq!(refused.refusal(), "component_damaged");
        assert_eq!(version(&daemon, SECOND)["intact"], false);
        assert_eq!((state(&daemon, SECOND).as_str(), state(&daemon, FIRST).as_str()), ("staged", "live"));
        done(&daemon, &json!({ "do": "count" }));
        push_second(&daemon);
        assert_eq!(version(&daemon, SECOND)["intact"], true);
    }
    assert_eq!(activate(&daemon, SECOND)["current"], true);
    done(&daemon, &json!({ "do": "count" }));
}

#[test]
fn h1_a_live_version_that_is_damaged_at_the_start_takes_no_attempts_until_it_is_pushed_again() {
    let mut daemon = Daemon::with_misbehave(&ConfigText::default().more(BENCH_PARSE));
    daemon.push_live(&guest("bench-parse@1.0.0"));
    let path = artefact(&daemon, FIRST);
    let harms: [fn(&PathBuf); 2] = [damage, |path| fs::remove_file(path).unwrap()];
    for (starts, harm) in harms.into_iter().enumerate() {
        daemon.terminate();
        harm(&path);
        daemon.run();
        daemon.wait_for_log_lines(starts + 1, "a live handler version can't run; its jobs wait");
        let job = daemon.enqueue("job", &json!({ "do": "count" }), &[]);
        run_another_kind(&daemon);
        let waits = daemon.job(job);
        assert_eq!((&waits["state"], &waits["attempts"]), (&json!("ready"), &Value::Array(Vec::new())));
        assert_eq!(version(&daemon, FIRST)["intact"], false);
        assert_eq!(kind(&daemon, "job")["waiting_for_handler"], true);
        push_as(&daemon, &guest(FIRST), FIRST, &[]).json();
        assert_eq!(daemon.wait(job), "done");
        assert_eq!(daemon.job(job)["attempts_used"], 1);
        assert_eq!(version(&daemon, FIRST)["intact"], true);
    }
}
