//! What makes the command line fit to work with: errors that are whole, answers that stand alone, and a look at everything
//! at once.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Command, Output},
};

use serde_json::{Value, json};

use crate::{
    letters::{config, letter_of, told},
    support::{ConfigText, Daemon, guest},
};

/// The command as a person gives it, without `--json`: its standard output and its standard error.
fn as_person(daemon: &Daemon, arguments: &[&str]) -> (String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    let Output { stdout, stderr, .. } =
        command.arg("--config").arg(daemon.config_path()).args(arguments).output().unwrap();
    (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn o5_an_error_of_usage_is_one_json_object_with_all_of_it() {
    let daemon = Daemon::prepare(&config());
    for (arguments, told) in [
        (&["dlq", "discard", "1"][..], "were not provided: --reason <REASON>"),
        (&["jobs", "ls", "--key", "k"], "--kind <KIND>"),
        (&["tokens", "add", "--name", "ci", "--role", "root"], "the roles are enqueue, view, operate, admin"),
        (&["tokens"], "allowed are add, ls, revoke"),
        (&["nothing"], "unrecognized subcommand"),
    ] {
        let answer = daemon.ask(arguments);
        assert_eq!((answer.status, answer.stdout.as_str()), (2, ""), "{answer:?}");
        let problem: Value = serde_json::from_str(&answer.stderr).unwrap();
        assert_eq!(problem["code"], "usage");
        assert!(problem["detail"].as_str().unwrap().contains(told), "{problem}");
    }
}

#[test]
fn o5_where_a_list_goes_on_is_told_beside_it() {
    let daemon = Daemon::start(&config());
    for _ in 0..3 {
        daemon.enqueue("job", &json!({ "do": "echo" }), &[]);
    }
    let (listed, noted) = as_person(&daemon, &["jobs", "ls", "--limit", "2"]);
    assert_eq!(listed.lines().count(), 3, "{listed}");
    let cursor = noted.trim().rsplit_once("--cursor ").expect("a cursor").1.to_owned();
    let (rest, noted) = as_person(&daemon, &["jobs", "ls", "--cursor", &cursor]);
    assert_eq!((rest.lines().count(), noted.as_str()), (2, ""));
}

#[test]
fn h9_retiring_the_only_live_version_says_what_waits_for_one() {
    let daemon = Daemon::with_misbehave(&config().another_kind("other", "attempts = 1"));
    daemon.ask(&["kinds", "pause", "job"]).json();
    for _ in 0..2 {
        daemon.enqueue("job", &json!({ "do": "echo" }), &[]);
    }
    let retired = daemon.ask(&["handlers", "retire", "misbehave@1.0.0"]).json();
    assert_eq!((&retired["state"], &retired["waiting"]), (&json!("retired"), &json!({ "job": 2, "other": 0 })));
    daemon.ask(&["handlers", "activate", "misbehave@1.0.0"]).json();
    let (said, warned) = as_person(&daemon, &["handlers", "retire", "misbehave@1.0.0"]);
    assert!(!said.contains("warning") && warned.contains("2 jobs of kinds job, other wait"), "{said}{warned}");
    // While another version serves, nothing waits.
    let bytes = [fs::read(guest("misbehave@1.0.0")).unwrap(), vec![0, 6, 4, b'n', b'o', b't', b'e', 1]].concat();
    let path = daemon.directory().join("next.wasm");
    fs::write(&path, bytes).unwrap();
    let version = ["--name", "misbehave", "--version", "1.1.0", "--activate"];
    daemon.ask(&[&["handlers", "push", path.to_str().unwrap()], &version[..]].concat()).json();
    daemon.ask(&["handlers", "activate", "misbehave@1.0.0", "--keep-live"]).json();
    assert_eq!(daemon.ask(&["handlers", "retire", "misbehave@1.1.0"]).json().get("waiting"), None);
}

#[test]
fn f1_a_line_that_is_refused_is_named_by_its_number_and_key_and_told_what_is_allowed() {
    let daemon = Daemon::start(&config());
    let lines = [
        r#"{"kind": "job", "key": "order-1", "payload": 1}"#,
        r#"{"kind": "job", "key": "order-2", "payload": 1, "lanes": "a"}"#,
        r#"{"kind": "jobs", "key": "order-3", "payload": 1}"#,
        r#"{"kind": "job", "payload": {"a"}}"#,
        r#"  {"kind": "job", "payload": 1, "lanes": "a"}"#,
    ];
    let file = daemon.directory().join("jobs.jsonl");
    fs::write(&file, lines.join("\n")).unwrap();
    let (_, said) = as_person(&daemon, &["enqueue", "--file", file.to_str().unwrap()]);
    let said: Vec<_> = said.lines().collect();
    for (line, told) in said.iter().zip([
        &[
            "line 2: key order-2: ",
            "unknown field `lanes`",
            "allowed is one JSON object a line with kind",
            "[malformed]",
        ][..],
        &["line 3: key order-3: ", "known kinds: job", "[unknown_kind]"],
        &["line 4: ", "expected `:` at column 32", "[malformed]"],
        &["line 5: ", "unknown field `lanes`", "at column 39"],
    ]) {
        assert!(told.iter().all(|told| line.contains(told)), "{line}\nlacks one of {told:?}");
        assert!(!line.contains("line 1"), "{line}");
    }
}

#[test]
fn q2_a_job_is_found_by_its_kind_and_key() {
    let daemon = Daemon::with_misbehave(&config().another_kind("other", "attempts = 1"));
    let job = daemon.enqueue("job", &json!({ "do": "echo" }), &["--key", "order-1"]);
    let other = daemon.enqueue("other", &json!({ "do": "echo" }), &["--key", "order-1"]);
    daemon.wait(job);
    let found = |options: &[&str]| {
        let page = daemon.ask(&[&["jobs", "ls"], options].concat()).json();
        page["items"].as_array().unwrap().iter().map(|job| job["id"].as_i64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(found(&["--kind", "job", "--key", "order-1"]), [job]);
    assert_eq!(found(&["--kind", "other", "--key", "order-1"]), [other]);
    assert_eq!(found(&["--kind", "job", "--key", "order-1", "--state", "done"]), [job]);
    assert_eq!(found(&["--kind", "job", "--key", "order-1", "--state", "ready"]), Vec::<i64>::new());
    assert_eq!(found(&["--kind", "job", "--key", "order-"]), Vec::<i64>::new());
    let (status, problem) = crate::raw_http::send(&daemon, "GET", "/v1/jobs?key=order-1", &[], "");
    assert_eq!((status, &problem["code"]), (400, &json!("malformed")));
}

fn with_secret() -> ConfigText {
    config().more("[handlers.misbehave.secrets]\ntoken = { file = \"secret\" }")
}

#[test]
fn d4_files_of_secrets_that_others_can_read_are_told_at_the_start_and_by_the_doctor() {
    let mut daemon = Daemon::prepare(&with_secret());
    let secret = daemon.directory().join("secret");
    fs::write(&secret, "hunter22-4711").unwrap();
    set_mode(&secret, 0o600);
    daemon.run();
    assert!(!daemon.log().contains("chmod"), "{}", daemon.log());
    daemon.terminate();
    let key = daemon.data().join("leasehold.key");
    set_mode(&secret, 0o644);
    set_mode(&key, 0o640);
    daemon.run();
    let examined = daemon.ask(&["doctor"]).json();
    for (path, mode) in [(&secret, "644"), (&key, "640")] {
        let told = format!("has mode {mode}, so that others than its owner can use it: `chmod 600 {}`", path.display());
        daemon.wait_for_log(&told);
        let checks = examined["checks"].as_array().unwrap();
        assert!(
            checks.iter().any(|check| check["state"] == "warn" && check["detail"].as_str().unwrap().contains(&told))
        );
    }
}

/// The state of a check by its name, the worst one where there are several.
fn state(examined: &Value, name: &str) -> String {
    let checks = examined["checks"].as_array().unwrap().iter().filter(|check| check["name"] == name);
    let states: Vec<_> = checks.map(|check| check["state"].as_str().unwrap().to_owned()).collect();
    ["fail", "warn", "ok"]
        .into_iter()
        .find(|state| states.iter().any(|found| found == state))
        .unwrap_or_default()
        .into()
}

#[test]
fn o6_the_doctor_says_what_is_well_and_what_is_not() {
    let mut daemon = Daemon::prepare(&config());
    let never_started = daemon.ask(&["doctor"]).json();
    assert_eq!((state(&never_started, "key file"), state(&never_started, "daemon")), ("ok".into(), "warn".into()));
    daemon.run();
    daemon.enqueue("job", &json!({ "do": "echo" }), &[]);
    let unserved = daemon.ask(&["doctor"]);
    assert_eq!((unserved.status, unserved.refusal()), (1, "checks_failed".into()));
    daemon.push_live(&guest("misbehave@1.0.0"));
    let running = daemon.ask(&["doctor"]).json();
    for name in
        ["configuration", "data directory", "key file", "secrets", "disk", "lock", "database", "daemon", "handlers"]
    {
        assert_eq!(state(&running, name), "ok", "{name}: {running}");
    }
    daemon.terminate();
    let stopped = daemon.ask(&["doctor"]).json();
    assert_eq!((state(&stopped, "lock"), state(&stopped, "database")), ("ok".into(), "ok".into()));

    let key = daemon.data().join("leasehold.key");
    fs::rename(&key, daemon.directory().join("elsewhere")).unwrap();
    fs::copy(Daemon::start(&config()).data().join("leasehold.key"), &key).unwrap();
    let of_another: Value = serde_json::from_str(&daemon.ask(&["doctor"]).stdout).unwrap();
    assert_eq!((state(&of_another, "key file"), state(&of_another, "database")), ("fail".into(), "ok".into()));
    fs::remove_file(&key).unwrap();
    let database = daemon.data().join("leasehold.db");
    let mut bytes = fs::read(&database).unwrap();
    // One table's page alone: the database can be opened, and only a check finds it.
    let page: usize =
        daemon.database().one::<i64>("SELECT rootpage FROM sqlite_master WHERE name = 'audit'").try_into().unwrap();
    bytes[(page - 1) * 4_096..page * 4_096].fill(0xA5);
    fs::write(&database, &bytes).unwrap();
    let damaged = daemon.ask(&["doctor"]);
    assert_eq!(damaged.refusal(), "checks_failed");
    assert!(damaged.stdout.contains("is damaged: "), "{damaged:?}");
    // Every page but the first, which says that this is a database and how large its pages are.
    bytes[4_096..].fill(0xA5);
    fs::write(&database, bytes).unwrap();
    let damaged = daemon.ask(&["doctor"]);
    assert_eq!(damaged.refusal(), "checks_failed");
    let damaged: Value = serde_json::from_str(&damaged.stdout).unwrap();
    assert_eq!((state(&damaged, "database"), state(&damaged, "key file")), ("fail".into(), "fail".into()));

    daemon.write_config(&config().kind("attempts = 0"));
    let wrong = daemon.ask(&["doctor"]);
    assert_eq!(wrong.status, 1);
    assert!(wrong.stdout.contains("kinds.job.attempts"), "{wrong:?}");
}

#[test]
fn o5_stats_show_at_a_glance_what_waits_and_died() {
    let daemon = Daemon::with_misbehave(&config());
    letter_of(&daemon, "job", &told("rejected", "shop.closed"));
    daemon.ask(&["kinds", "pause", "job"]).json();
    for options in [&[][..], &[], &["--delay", "1h"]] {
        daemon.enqueue("job", &json!({ "do": "echo" }), options);
    }
    let stats = daemon.ask(&["stats"]).json();
    assert_eq!(stats["total"], json!({ "waiting": 1, "ready": 2, "leased": 0, "dead_letters": 1 }));
    let (shown, _) = as_person(&daemon, &["stats"]);
    for told in ["2 ready, 0 running, 1 waiting", "1 open", "misbehave@1.0.0", "paused"] {
        assert!(shown.contains(told), "{shown}");
    }
}

#[test]
fn o6_what_works_on_this_machine_refuses_to_answer_for_another() {
    let daemon = Daemon::start(&config());
    for arguments in [&["backup", "elsewhere"][..], &["doctor"]] {
        let refused = daemon.ask(&[&["--url", "http://127.0.0.1:9"], arguments].concat());
        assert_eq!((refused.status, refused.refusal().as_str()), (2, "usage"), "{arguments:?}");
    }
}

#[test]
fn o6_a_backup_of_a_working_daemon_is_whole_and_restores_with_the_key() {
    let mut daemon = Daemon::with_misbehave(&config());
    let done = daemon.enqueue("job", &json!({ "do": "echo" }), &[]);
    daemon.wait(done);
    let letter = letter_of(&daemon, "job", &told("rejected", "shop.closed"));
    daemon.ask(&["kinds", "pause", "job"]).json();
    let ready = daemon.enqueue("job", &json!({ "do": "echo" }), &["--key", "order-1"]);
    let backup = daemon.directory().join("backup");
    let path = backup.to_str().unwrap();
    let made = daemon.ask(&["backup", path]).json();
    assert_eq!((&made["components"], &made["key_file"]), (&json!(1), &json!("not included")));
    let permissions = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((permissions(&backup), permissions(&backup.join("leasehold.db"))), (0o700, 0o600));
    assert!(!backup.join("leasehold.key").exists());
    assert_eq!(daemon.ask(&["backup", path]).refusal(), "backup_failed");
    // What comes afterwards is not in it.
    let later = daemon.enqueue("job", &json!({ "do": "echo" }), &[]);
    daemon.terminate();

    let data = daemon.data();
    let key = fs::read(data.join("leasehold.key")).unwrap();
    fs::rename(&data, daemon.directory().join("lost")).unwrap();
    fs::rename(&backup, &data).unwrap();
    fs::write(data.join("leasehold.key"), key).unwrap();
    daemon.run();
    daemon.ask(&["kinds", "resume", "job"]).json();
    assert_eq!((daemon.wait(ready), daemon.job(done)["state"].as_str().unwrap()), ("done".into(), "done"));
    assert_eq!(daemon.ask(&["jobs", "show", &later.to_string()]).refusal(), "not_found");
    let revealed = daemon.ask(&["dlq", "reveal", &letter["id"].to_string(), "--reason", "restored"]).json();
    assert!(revealed["payload_base64"].is_string());
    daemon.database().check();
}
