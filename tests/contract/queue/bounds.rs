//! Q17 and F1: bounds, payloads as sent, and files of jobs.

use serde_json::{Value, json};

use crate::{
    support::{Answer, ConfigText, Daemon},
    told::{echo, write_file},
};

fn bounded() -> ConfigText {
    ConfigText::default()
        .queue("payload_max = \"1KiB\"")
        .queue("key_length_max = 64")
        .queue("lane_length_max = 10")
        .queue("metadata_max = \"64B\"")
        .queue("queue_depth_max = 3")
        .another_kind("raw", "payload = \"bytes\"")
}

/// What a refusal says, which has to name the limit.
#[track_caller]
fn refused_with(answer: &Answer, code: &str, limit: &str) {
    assert_eq!(answer.refusal(), code);
    let problem: Value = serde_json::from_str(answer.stderr.trim()).unwrap();
    assert!(problem["detail"].as_str().unwrap().contains(limit), "{problem}");
}

#[test]
fn q17_what_is_over_a_bound_is_refused_with_the_bound_and_nothing_is_truncated() {
    let daemon = Daemon::start(&bounded());
    let enqueue =
        |payload: &str, options: &[&str]| daemon.ask(&[&["enqueue", "job", "--payload", payload], options].concat());
    let of_length = |length: usize| format!("\"{}\"", "x".repeat(length - 2));
    refused_with(&enqueue(&of_length(1025), &[]), "payload_too_large", "1024");
    refused_with(&enqueue("{}", &["--key", &"k".repeat(65)]), "key_too_long", "64");
    refused_with(&enqueue("{}", &["--lane", "12345678901"]), "lane_too_long", "10");
    let value = format!("a={}", "x".repeat(64));
    refused_with(&enqueue("{}", &["--meta", &value]), "metadata_too_large", "64");
    assert_eq!(daemon.database().one::<i64>("SELECT count(*) FROM jobs"), 0);
    // At the bounds everything is taken.
    let value = format!("a={}", "x".repeat(63));
    let at_all =
        enqueue(&of_length(1024), &["--key", &"k".repeat(64), "--lane", "1234567890", "--meta", &value]).json();
    let shown = daemon.job(at_all["id"].as_i64().unwrap());
    assert_eq!((&shown["payload_bytes"], &shown["lane"]), (&json!(1024), &json!("1234567890")));
}

#[test]
fn q17_a_queue_that_is_full_takes_no_more_until_a_job_has_ended() {
    let daemon = Daemon::start(&bounded());
    let jobs: Vec<i64> = (0..3).map(|_| daemon.enqueue("job", &echo(), &[])).collect();
    refused_with(&daemon.ask(&["enqueue", "job", "--payload", "{}"]), "queue_full", "3");
    daemon.ask(&["jobs", "cancel", &jobs[0].to_string()]).json();
    daemon.enqueue("job", &echo(), &[]);
    refused_with(&daemon.ask(&["enqueue", "job", "--payload", "{}"]), "queue_full", "3");
    daemon.database().check();
}

#[test]
fn q17_json_of_any_depth_and_any_number_is_stored_byte_for_byte() {
    let daemon = Daemon::start(&ConfigText::default());
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let numbers = "{ \"a\" : 1.0e2,\t\"b\": 123456789012345678901234567890.123456789,\"a\":-0.0 , \"c\": 1E400 }";
    for (key, payload) in [("deep", deep.as_str()), ("numbers", numbers)] {
        let file = write_file(&daemon, payload);
        let at_file = format!("@{}", file.display());
        let arguments = ["enqueue", "job", "--payload", &at_file, "--key", key];
        let job = daemon.ask(&arguments).json()["id"].as_i64().unwrap();
        assert_eq!(daemon.job(job)["payload_bytes"], payload.len());
        // The same bytes are the same job; another way to write the same value is not.
        assert_eq!(daemon.ask(&arguments).json()["duplicate"], true);
        write_file(&daemon, &payload.replacen(['[', '{'], "[ ", 1).replacen("[  \"a\"", "{  \"a\"", 1));
        assert_eq!(daemon.ask(&arguments).refusal(), "key_conflict");
    }
}

#[test]
fn q17_what_is_no_json_is_refused_for_a_json_kind_and_taken_for_one_of_bytes() {
    let daemon = Daemon::with_misbehave(&bounded().kind("attempts = 1"));
    let bytes = write_file(&daemon, "no json \u{0} at all");
    let at_file = format!("@{}", bytes.display());
    let refused = daemon.ask(&["enqueue", "job", "--payload", &at_file, "--bytes"]);
    assert_eq!(refused.refusal(), "malformed_payload");
    let taken = daemon.ask(&["enqueue", "raw", "--payload", &at_file, "--bytes"]).json()["id"].as_i64().unwrap();
    let shown = daemon.job(taken);
    assert_eq!((&shown["payload_bytes"], &shown["content_type"]), (&json!(16), &json!("application/octet-stream")));
    // JSON in base64 is JSON: the kind's guest reads it.
    let line = json!({ "kind": "job", "payload_base64": "eyJkbyI6ImVjaG8iLCJwYXlsb2FkIjo3fQ==" }).to_string();
    let file = write_file(&daemon, &line);
    let answer = daemon.ask(&["enqueue", "--file", file.to_str().unwrap()]);
    let job = serde_json::from_str::<Value>(answer.stdout.lines().next().unwrap()).unwrap()["id"].as_i64().unwrap();
    assert_eq!(daemon.wait(job), "done");
    assert_eq!(daemon.result(job)["payload"], 7);
}

#[test]
fn f1_a_file_with_bad_lines_names_them_and_takes_the_rest_in() {
    let config = ConfigText::default().queue("payload_max = \"1KiB\"").queue("key_length_max = 64");
    let daemon = Daemon::start(&config);
    daemon.enqueue("job", &echo(), &["--key", "taken"]);
    let long = "x".repeat(2000);
    let lines = [
        r#"{"kind":"job","payload":{"do":"echo"},"key":"one"}"#.to_owned(),
        r#"{"kind":"job","payload":{"do":"#.to_owned(),
        String::new(),
        r#"{"kind":"nobody","payload":1}"#.to_owned(),
        format!(r#"{{"kind":"job","payload":"{long}"}}"#),
        r#"{"kind":"job","payload":1,"key":"taken"}"#.to_owned(),
        r#"{"kind":"job","payload":{"do":"echo"},"key":"one"}"#.to_owned(),
        r#"{"kind":"job","payload":1,"colour":"red"}"#.to_owned(),
        r#"{"kind":"job","payload_base64":"?"}"#.to_owned(),
        r#"["job"]"#.to_owned(),
        r#"{"kind":"job","payload":null}"#.to_owned(),
    ];
    let file = write_file(&daemon, &lines.join("\n"));
    let answer = daemon.ask(&["enqueue", "--file", file.to_str().unwrap()]);
    assert_eq!(answer.status, 4, "{}{}", answer.stdout, answer.stderr);
    let said: Vec<Value> = answer.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (summary, answers) = said.split_last().unwrap();
    let places: Vec<_> =
        answers.iter().map(|answer| (answer["line"].as_i64().unwrap(), answer["code"].as_str())).collect();
    let expected = [
        (1, None),
        (2, Some("malformed")),
        (4, Some("unknown_kind")),
        (5, Some("payload_too_large")),
        (6, Some("key_conflict")),
        (7, None),
        (8, Some("malformed")),
        (9, Some("malformed_payload")),
        (10, Some("malformed")),
        (11, None),
    ];
    assert_eq!(places, expected);
    assert_eq!(summary["summary"], json!({ "accepted": 3, "duplicates": 1, "refused": 7 }));
    assert!(answers[6]["detail"].as_str().unwrap().contains("colour"), "{}", answers[6]);
    assert_eq!(daemon.database().one::<i64>("SELECT count(*) FROM jobs"), 3);
}
