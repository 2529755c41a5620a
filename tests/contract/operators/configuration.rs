//! O4: what is wrong with a configuration is said with file, line and key before anything starts.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use tempfile::TempDir;

use crate::support::{ConfigText, Daemon};

/// A configuration without an error; each test changes one line of it.
const GOOD: &str = "\
[daemon]
shutdown_grace = \"5s\"
[queue]
key_retention = \"30d\"
[handlers.shop]
[kinds.\"shop.order\"]
handler = \"shop\"
owner = \"the shop's team\"
visibility_timeout = \"30s\"
heartbeat = \"5s\"
deadline = \"1m\"
attempts = 8
";

/// A directory that holds nothing but the configuration.
fn directory(text: &str) -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config.toml");
    fs::write(&path, text).unwrap();
    (directory, path)
}

fn leasehold(config: &Path, arguments: &[&str]) -> Output {
    // A daemon that starts in spite of an error would serve for ever.
    let mut command = Command::new("timeout");
    command.args(["--kill-after=1", "60", env!("CARGO_BIN_EXE_leasehold"), "--config"]).arg(config).args(arguments);
    command.stdin(Stdio::null()).output().unwrap()
}

/// Both commands refuse the configuration in the same lines, and leave nothing behind.
#[track_caller]
fn assert_refused(text: &str, expected: &[(&str, &str, &str)]) {
    for command in [&["config", "check"][..], &["serve"]] {
        let (directory, path) = directory(text);
        let output = leasehold(&path, command);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{command:?}: {said}");
        assert_eq!(said.lines().count(), expected.len(), "{command:?}: {said}");
        for (line, (at, key, why)) in said.lines().zip(expected) {
            let place = format!("error: {}:{at}: {key}", path.display());
            assert!(line.starts_with(&place) && line.contains(why), "{line:?} is not {place:?} … {why:?}");
        }
        assert!(said.trim_end().ends_with("[config_invalid]"), "{said}");
        let left: Vec<_> = fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["config.toml"], "{command:?} left something behind");
    }
}

/// The line of the good configuration that has this text, from 1.
fn line_of(text: &str) -> String {
    (GOOD.lines().position(|line| line.contains(text)).expect("a line") + 1).to_string()
}

#[test]
fn o4_a_configuration_without_errors_is_valid() {
    let (directory, path) = directory(GOOD);
    let output = leasehold(&path, &["config", "check"]);
    assert!(output.status.success(), "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
    assert!(!directory.path().join("leasehold-data").exists(), "checking started something");
    assert!(leasehold(Path::new("../../config.toml"), &["config", "check"]).status.success(), "the shipped profile");
}

#[test]
fn o4_a_misspelt_key_is_named_with_what_was_meant() {
    let text = GOOD.replace("visibility_timeout", "visibility_timout");
    let at = line_of("visibility_timeout");
    assert_refused(&text, &[(&at, r#"kinds."shop.order".visibility_timout"#, "did you mean visibility_timeout?")]);
    let text = GOOD.replace("[daemon]", "[deamon]");
    assert_refused(&text, &[("1", "deamon", "did you mean daemon?")]);
}

#[test]
fn o4_a_value_of_the_wrong_type_is_named_with_what_is_allowed() {
    let cases = [
        ("attempts = 8", "attempts = \"8\"", "expected a whole number from 1 to 1000, found a string"),
        ("attempts = 8", "attempts = 0", "0 is out of bounds; allowed is a whole number from 1 to 1000"),
        ("deadline = \"1m\"", "deadline = 60", "a duration from"),
        ("deadline = \"1m\"", "deadline = \"1 minute\"", "in ms, s, m, h or d"),
    ];
    for (line, wrong, why) in cases {
        let key = format!("kinds.\"shop.order\".{}", line.split(' ').next().unwrap());
        assert_refused(&GOOD.replace(line, wrong), &[(&line_of(line), &key, why)]);
    }
}

#[test]
fn o4_a_kind_without_an_owner_or_a_known_handler_is_an_error() {
    let kind = line_of("[kinds");
    let owner = r#"kinds."shop.order".owner"#;
    assert_refused(&GOOD.replace("owner = \"the shop's team\"\n", ""), &[(&kind, owner, "is missing")]);
    assert_refused(&GOOD.replace("the shop's team", " "), &[(&line_of("owner"), owner, "is empty")]);
    let handler = r#"kinds."shop.order".handler"#;
    let at = line_of("handler = ");
    assert_refused(&GOOD.replace("\"shop\"", "\"shot\""), &[(&at, handler, "allowed is \"shop\"")]);
}

#[test]
fn o4_keys_that_expire_before_the_last_retry_are_refused_with_the_arithmetic() {
    let text = GOOD.replace("\"30d\"", "\"1h\"");
    // 8 × (60 s + 30 s) + 7 × 3600 s.
    let arithmetic = "8 attempts × (deadline 60 s + visibility timeout 30 s) + 7 delays × 3600 s = 25920 s";
    assert_refused(&text, &[(&line_of("key_retention"), "queue.key_retention", arithmetic)]);
    // One second more than the horizon is enough, and the horizon itself is not.
    assert_refused(
        &GOOD.replace("\"30d\"", "\"25920s\""),
        &[(&line_of("key_retention"), "queue.key_retention", "25920 s")],
    );
    let (_directory, path) = directory(&GOOD.replace("\"30d\"", "\"25921s\""));
    assert!(leasehold(&path, &["config", "check"]).status.success());
}

#[test]
fn o3_a_visibility_timeout_of_three_heartbeats_is_refused_with_the_arithmetic() {
    let key = r#"kinds."shop.order".visibility_timeout"#;
    let why = "visibility_timeout 15s is not above 3 × heartbeat 5s = 15s";
    assert_refused(&GOOD.replace("\"30s\"", "\"15s\""), &[(&line_of("visibility_timeout"), key, why)]);
    let (_directory, path) = directory(&GOOD.replace("\"30s\"", "\"15001ms\""));
    assert!(leasehold(&path, &["config", "check"]).status.success());
}

#[test]
fn o4_all_errors_are_said_at_once_in_the_order_of_their_lines() {
    let text = GOOD.replace("shutdown_grace", "shutdown_grac").replace("attempts = 8", "attempts = true");
    let expected = [
        ("2", "daemon.shutdown_grac", "did you mean shutdown_grace?"),
        ("12", r#"kinds."shop.order".attempts"#, "found a boolean"),
    ];
    assert_refused(&text, &expected);
}

#[test]
fn o4_what_is_no_toml_is_named_by_its_line() {
    assert_refused(&GOOD.replace("attempts = 8", "attempts = "), &[("12", "", "is no valid TOML")]);
}

#[test]
fn o4_a_file_that_cant_be_read_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let not_text = directory.path().join("not-text.toml");
    fs::write(&not_text, b"[daemon]\nsocket = \"\xff\"\n").unwrap();
    for path in [directory.path().join("missing.toml"), directory.path().to_owned(), not_text] {
        for command in [&["config", "check"][..], &["serve"]] {
            let output = leasehold(&path, command);
            let said = String::from_utf8(output.stderr).unwrap();
            assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{said}");
            assert!(said.contains(&path.display().to_string()) && said.contains("can't be read"), "{said}");
        }
    }
}

#[test]
fn o4_a_secret_that_is_missing_stops_the_start_and_no_value_is_ever_quoted() {
    let text = format!("{GOOD}[handlers.shop.secrets]\napi_key = {{ env = \"TEST_NO_SUCH_SECRET\" }}\n");
    assert_refused(&text, &[("14", "handlers.shop.secrets.api_key.env", "is not set")]);
    let text = format!("{GOOD}[handlers.shop.secrets]\napi_key = \"in the clear\"\n");
    assert_refused(&text, &[("14", "handlers.shop.secrets.api_key", "never stands here")]);
    let (_directory, path) = directory(&text);
    let said = String::from_utf8(leasehold(&path, &["config", "check"]).stderr).unwrap();
    assert!(!said.contains("in the clear"), "{said}");
}

#[test]
fn h10_a_reload_of_a_wrong_configuration_changes_nothing_and_names_the_line() {
    let good = ConfigText::default();
    let mut daemon = Daemon::with_misbehave(&good);
    daemon.write_config(&good.clone().kind("attemps = 3").kind("attempts = 7"));
    let answer = daemon.ask(&["reload"]);
    assert_eq!((answer.status, answer.refusal()), (1, "config_invalid".into()));
    assert!(answer.stderr.contains("kinds.job.attemps"), "{answer:?}");
    daemon.signal(rustix::process::Signal::HUP);
    daemon.wait_for_log("the configuration was not reloaded");
    let job = daemon.enqueue("job", &serde_json::json!({ "do": "echo" }), &[]);
    assert_eq!(daemon.wait(job), "done");
    assert_eq!(daemon.result(job)["attempts_max"], 3);
    assert_eq!(daemon.database().one::<i64>("SELECT count(*) FROM audit WHERE action = 'config.reload'"), 0);
    daemon.write_config(&good);
    assert!(daemon.terminate().success());
}
