//! Jobs that are wrong: each refused in one clear line with a stable code and a telling exit status, and nothing of them
//! goes in.

use std::{fs, path::PathBuf, process::Command};

use serde_json::{Value, json};

use crate::{
    letters::config,
    raw_http,
    support::{Answer, ConfigText, Daemon},
};

/// Runs a command for a person, which answers in text.
fn as_person(daemon: &Daemon, arguments: &[&str]) -> Answer {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    let output = command.arg("--config").arg(daemon.config_path()).args(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Answer { status: output.status.code().unwrap(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// The command is refused with that status and code, in one line for programs and one for a person.
#[track_caller]
fn assert_refused(daemon: &Daemon, arguments: &[&str], status: i32, code: &str, why: &str) {
    let answer = daemon.ask(arguments);
    assert_eq!((answer.status, answer.refusal()), (status, code.into()), "{answer:?}");
    let answer = as_person(daemon, arguments);
    let [line] = &answer.stderr.lines().collect::<Vec<_>>()[..] else { panic!("not one line: {answer:?}") };
    assert_eq!(answer.status, status, "{answer:?}");
    assert!(line.starts_with("error: ") && line.contains(why) && line.ends_with(&format!("[{code}]")), "{line}");
}

fn jobs(daemon: &Daemon) -> i64 {
    daemon.database().one("SELECT count(*) FROM jobs")
}

fn file(daemon: &Daemon, name: &str, content: &[u8]) -> PathBuf {
    let path = daemon.directory().join(name);
    fs::write(&path, content).unwrap();
    path
}

#[test]
fn f1_wrong_lines_of_a_file_are_named_by_their_numbers_and_the_others_go_in() {
    let daemon = Daemon::start(&config().queue("payload_max = \"64B\""));
    let long = json!({ "kind": "job", "payload": "x".repeat(63) }).to_string();
    let lines: [(&[u8], Option<&str>); 12] = [
        (br#"{"kind":"job","payload":1,"key":"a"}"#, None),
        (br#"{"kind":"job","payload":"#, Some("malformed")),
        (b"", None),
        (br#"{"kind":"jobs","payload":1}"#, Some("unknown_kind")),
        (long.as_bytes(), Some("payload_too_large")),
        (br#"{"kind":"job"}"#, Some("invalid_job")),
        (br#"{"kind":"job","payload":1,"prioriti":1}"#, Some("malformed")),
        (b"{\"kind\":\"job\",\"payload\":\"\xff\"}", Some("malformed")),
        (br#"{"kind":"job","payload":2,"key":"a"}"#, Some("key_conflict")),
        (br#"{"kind":"job","payload":1,"key":"a"}"#, None),
        (b"[1,2]", Some("malformed")),
        // The last line has no end.
        (br#"{"kind":"job","payload":3}"#, None),
    ];
    let texts: Vec<_> = lines.iter().map(|(text, _)| *text).collect();
    let path = file(&daemon, "jobs.jsonl", &texts.join(&b'\n'));
    let answer = daemon.ask(&["enqueue", "--file", path.to_str().unwrap()]);
    assert_eq!((answer.status, answer.refusal()), (4, "lines_refused".into()));
    let told: Vec<Value> = answer.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (summary, answers) = told.split_last().unwrap();
    assert_eq!(summary["summary"], json!({ "accepted": 3, "duplicates": 1, "refused": 8 }));
    let codes: Vec<_> = answers.iter().map(|answer| (answer["line"].clone(), answer["code"].as_str())).collect();
    let expected = (1..).zip(lines).filter(|(_, (text, _))| !text.is_empty());
    assert_eq!(codes, expected.map(|(number, (_, code))| (json!(number), code)).collect::<Vec<_>>());
    assert_eq!(jobs(&daemon), 2);

    // A person is told the refused lines alone, a line each.
    let answer = as_person(&daemon, &["enqueue", "--file", path.to_str().unwrap()]);
    let numbers: Vec<_> =
        answer.stderr.lines().filter_map(|line| line.strip_prefix("line ")?.split(':').next()).collect();
    assert_eq!(numbers, ["2", "4", "5", "6", "7", "8", "9", "11"], "{answer:?}");
    assert_eq!(answer.stderr.lines().count(), 9, "{answer:?}");
    assert_eq!(answer.status, 4);
}

#[test]
fn q17_a_job_that_is_wrong_is_refused_and_nothing_of_it_goes_in() {
    let daemon = Daemon::start(
        &config().queue("payload_max = \"64B\"").queue("key_length_max = 8").queue("lane_length_max = 8"),
    );
    let long = json!("x".repeat(63)).to_string();
    let enqueue = |arguments: &[&'static str]| [&["enqueue", "job", "--payload", "1"], arguments].concat();
    assert_refused(&daemon, &["enqueue", "jobs", "--payload", "1"], 1, "unknown_kind", "known kinds: job");
    assert_refused(&daemon, &["enqueue", "job", "--payload", &long], 1, "payload_too_large", "at most 64");
    assert_refused(&daemon, &enqueue(&["--key", "nine char"]), 1, "key_too_long", "at most 8");
    assert_refused(&daemon, &enqueue(&["--key", "a", "--lane", "nine char"]), 1, "lane_too_long", "at most 8");
    assert_refused(&daemon, &enqueue(&["--key", "a", "--priority", "101"]), 1, "invalid_job", "between -100 and 100");
    assert_refused(&daemon, &enqueue(&["--key", ""]), 1, "invalid_job", "empty");
    assert_refused(&daemon, &["enqueue", "job", "--payload", "{", "--key", "a"], 2, "payload_invalid", "line 1");
    assert_refused(
        &daemon,
        &["enqueue", "job", "--bytes", "--payload", "{", "--key", "a"],
        1,
        "malformed_payload",
        "JSON",
    );
    let missing = daemon.directory().join("missing");
    let missing = missing.to_str().unwrap();
    assert_refused(&daemon, &["enqueue", "--file", missing], 1, "file_unreadable", missing);
    assert_refused(&daemon, &["enqueue", "job", "--payload", &format!("@{missing}")], 1, "file_unreadable", missing);
    assert_eq!(jobs(&daemon), 0);
    // A payload of exactly the limit goes in.
    daemon.ask(&["enqueue", "job", "--payload", &json!("x".repeat(62)).to_string(), "--key", "a"]).json();
}

#[test]
fn q2_a_key_with_another_payload_is_a_conflict_that_names_the_first_job() {
    let daemon = Daemon::start(&config());
    let first = daemon.enqueue("job", &json!(1), &["--key", "a"]);
    let why = format!("job {first} has this kind and key");
    assert_refused(&daemon, &["enqueue", "job", "--payload", "2", "--key", "a"], 1, "key_conflict", &why);
    assert_eq!(jobs(&daemon), 1);
}

#[test]
fn o5_what_is_not_there_is_said_to_be_not_there() {
    let daemon = Daemon::start(&config());
    for command in [
        &["jobs", "show", "4711"][..],
        &["jobs", "cancel", "4711"],
        &["jobs", "wait", "4711"],
        &["dlq", "show", "4711"],
        &["dlq", "replay", "4711", "--reason", "mended"],
        &["dlq", "discard", "4711", "--reason", "gone"],
    ] {
        assert_refused(&daemon, command, 1, "not_found", "4711");
    }
    for command in [&["jobs", "show", "4711x"][..], &["dlq", "ls", "--cause", "bad luck"]] {
        let answer = daemon.ask(command);
        assert_eq!((answer.status, answer.refusal()), (2, "usage".into()), "{answer:?}");
    }
    let (status, problem) = raw_http::send(&daemon, "GET", "/v1/jobs/4711x", &[], "");
    assert_eq!((status, &problem["code"]), (400, &json!("malformed")));
    let (status, problem) = raw_http::send(&daemon, "GET", "/v1/nothing", &[], "");
    assert_eq!((status, &problem["code"]), (404, &json!("not_found")));
    let (status, problem) = raw_http::send(&daemon, "DELETE", "/v1/jobs", &[], "");
    assert_eq!((status, &problem["code"]), (405, &json!("method_not_allowed")));
}

#[test]
fn o5_without_a_daemon_every_command_says_so_with_a_status_of_its_own() {
    let mut daemon = Daemon::prepare(&config());
    let commands = [
        &["enqueue", "job", "--payload", "1"][..],
        &["jobs", "ls"],
        &["dlq", "show", "1"],
        &["handlers", "ls"],
        &["reload"],
    ];
    for command in commands {
        assert_refused(&daemon, command, 3, "no_daemon", "leasehold serve");
    }
    // A socket that a killed daemon left behind is no daemon.
    daemon.run();
    daemon.kill();
    for command in commands {
        assert_refused(&daemon, command, 3, "no_daemon", "leasehold serve");
    }
    fs::remove_file(daemon.config_path()).unwrap();
    assert_refused(&daemon, &["jobs", "ls"], 2, "socket_unknown", "--socket");
}

#[test]
fn q17_a_body_beyond_every_limit_is_refused_with_the_limit_and_the_daemon_goes_on() {
    let daemon = Daemon::start(&config().queue("payload_max = \"1KiB\""));
    let body = format!(r#"{{"kind":"job","payload":"{}"}}"#, "x".repeat(8 << 20));
    let (status, problem) = raw_http::send(&daemon, "POST", "/v1/jobs", &[], &body);
    assert_eq!((status, &problem["code"]), (413, &json!("payload_too_large")));
    assert!(problem["limit_bytes"].as_u64().unwrap() >= 1024, "{problem}");
    for body in ["", "{", "null", "[]", "{\"kind\":7,\"payload\":1}", "\u{0}"] {
        let (status, problem) = raw_http::send(&daemon, "POST", "/v1/jobs", &[], body);
        assert_eq!((status, &problem["code"]), (400, &json!("malformed")), "{body:?}");
    }
    daemon.enqueue("job", &json!(1), &[]);
    assert_eq!(jobs(&daemon), 1);
}

#[test]
fn q17_below_the_reserve_of_free_disk_nothing_is_enqueued_and_running_work_goes_on() {
    let daemon = Daemon::with_misbehave(&ConfigText::default().queue("disk_reserve = \"1GiB\""));
    let job = daemon.enqueue("job", &json!({ "do": "sleep", "ms": 10 }), &[]);
    daemon.write_config(&ConfigText::default().queue("disk_reserve = \"1024GiB\""));
    daemon.ask(&["reload"]).json();
    let refused = daemon.ask(&["enqueue", "job", "--payload", r#"{"do":"echo"}"#]);
    assert_eq!(refused.refusal(), "disk_low");
    assert!(refused.stderr.contains("disk_reserve"), "{}", refused.stderr);
    assert_eq!(daemon.wait(job), "done");
}

#[test]
fn q17_lines_beyond_the_bound_of_a_batch_are_refused_with_the_bound() {
    let daemon = Daemon::start(&ConfigText::default().queue("batch_max = 500"));
    let lines = (0..502).fold(String::new(), |lines, number| {
        lines + &format!("{{\"kind\":\"job\",\"key\":\"k-{number}\",\"payload\":{{\"do\":\"echo\"}}}}\n")
    });
    let client = leasehold_api::Client::new(daemon.data().join("leasehold.sock"));
    let answers = crate::support::server::block_on(async move { client.enqueue_lines(lines.into(), true).await });
    let answers = answers.unwrap();
    let refused: Vec<_> = answers
        .iter()
        .filter_map(|answer| match answer {
            leasehold_api::BatchAnswer::Refused { line, code, detail } => Some((*line, code.as_str(), detail.as_str())),
            leasehold_api::BatchAnswer::Accepted { .. } => None,
        })
        .collect();
    assert_eq!(
        refused.iter().map(|(line, code, _)| (*line, *code)).collect::<Vec<_>>(),
        [(501, "batch_too_large"), (502, "batch_too_large")]
    );
    assert!(refused[0].2.contains("500"), "{}", refused[0].2);
}
