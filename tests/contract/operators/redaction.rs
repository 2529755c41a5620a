//! D2, D3: what operators see holds no value of the policy, of a granted secret, of a key, in whatever form it stands, and
//! nothing that a detector finds; what the policy missed is told.

use std::process::Command;

use serde_json::{Value, json};

use crate::{
    forms::{assert_free, carried, files_with, kinds_of_masks},
    letters::{config, id},
    support::{ConfigText, Daemon, guest},
};

/// Values that every encoding changes.
const FIELD: &str = "jo+fi/ld@exämple.org \"x\"";
const KEY: &str = "order/ké 4711+\"k\"?~>";
const METADATA: &str = "m+ta/ü \"7\"@x.example?>";
const SECRET: &str = "s3cr+t/ä 99\"~?>==";
const ALL: [&str; 4] = [FIELD, KEY, METADATA, SECRET];

/// Kinds whose policy finds the field `class` by its name, by its path and by its data class.
const POLICIES: [(&str, &str); 3] = [
    ("by_name", "redact = { names = [\"CLASS\"] }"),
    ("by_path", "redact = { paths = [\"$.class\"] }"),
    ("by_class", "redact = { classes = [\"person\"] }"),
];

fn redacting() -> ConfigText {
    let kinds = POLICIES
        .into_iter()
        .fold(config(), |config, (kind, redact)| config.another_kind(kind, &format!("attempts = 1\n{redact}")));
    kinds.more(
        "[handlers.misbehave.secrets]\napi_key = { env = \"TEST_API_KEY\" }\n\
         [redaction]\nnames = [\"email\", \"password\"]\n[redaction.classes.person]\nnames = [\"class\"]",
    )
}

fn start(config: &ConfigText) -> Daemon {
    let mut daemon = Daemon::prepare(config);
    daemon.set_environment("TEST_API_KEY", SECRET);
    daemon.run();
    daemon.push_live(&guest("misbehave@1.0.0"));
    daemon
}

/// Enqueues a job that carries the key and the metadata; answers its id when it has ended.
#[track_caller]
fn run(daemon: &Daemon, kind: &str, payload: &Value) -> i64 {
    let metadata = format!("email={METADATA}");
    // The kind keeps the keys apart, and the key stands in it whole.
    let job = daemon.enqueue(kind, payload, &["--key", KEY, "--meta", &metadata]);
    daemon.wait(job);
    job
}

/// All that operators can see of a job, by every way to it.
fn seen(daemon: &Daemon, job: i64) -> Vec<(&'static str, String)> {
    let job = job.to_string();
    let mut seen = vec![
        ("the job", daemon.ask(&["jobs", "show", &job]).stdout),
        ("the jobs", daemon.ask(&["jobs", "ls"]).stdout),
        ("the dead letters", daemon.ask(&["dlq", "ls"]).stdout),
        ("the job as text", as_text(daemon, &["jobs", "show", &job])),
        ("the dead letters as text", as_text(daemon, &["dlq", "ls"])),
        ("the audit log", daemon.ask(&["audit", "ls"]).stdout),
        ("the metrics", daemon.metrics()),
        ("the daemon's log", daemon.log()),
    ];
    let shown: Value = daemon.ask(&["jobs", "show", &job]).json();
    for letter in shown["dead_letters"].as_array().unwrap() {
        seen.push(("the dead letter", daemon.ask(&["dlq", "show", &id(letter)]).stdout));
        seen.push(("the dead letter as text", as_text(daemon, &["dlq", "show", &id(letter)])));
    }
    seen
}

fn as_text(daemon: &Daemon, arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    let output = command.arg("--config").arg(daemon.config_path()).args(arguments).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[track_caller]
fn assert_nothing_is_seen(daemon: &Daemon, job: i64, values: &[&str]) {
    for (what, text) in seen(daemon, job) {
        assert_free(&text, values, what);
        // The views of JSON are text within JSON: what an escape hides from the search is found without it.
        assert_free(&text.replace("\\\\", "\\").replace("\\\"", "\""), values, what);
    }
    for value in values {
        assert_eq!(files_with(&daemon.data(), value, "leasehold.key"), [""; 0]);
    }
}

#[test]
fn d2_values_of_policy_fields_keys_metadata_and_secrets_are_masked_in_every_form() {
    let daemon = start(&redacting());
    let message = format!("words before: {} :words after", ALL.map(carried).join(" ; "));
    assert!(message.len() < 8 << 10, "the host would cut the message off");
    for (kind, _) in POLICIES {
        let act = json!({ "do": "fail", "as": "poison", "class": FIELD, "message": message });
        let job = run(&daemon, kind, &act);
        assert_nothing_is_seen(&daemon, job, &ALL);
        let letter = daemon.dead_letter(job);
        // What is no value of the policy stays readable, and so do kind, id and class.
        for text in [&letter["message"], &letter["attempts"][0]["message"], &letter["redacted_payload"]] {
            let text = text.as_str().unwrap();
            assert!(text.contains("words before: [redacted:text ~32]") && text.contains(":words after"), "{text}");
        }
        assert_eq!((&letter["kind"], &letter["job_id"]), (&json!(kind), &json!(job)));
        assert_eq!(letter["error_class"], "unclassified");
        let view: Value = serde_json::from_str(letter["redacted_payload"].as_str().unwrap()).unwrap();
        assert_eq!((&view["class"], &view["as"]), (&json!("[redacted:text ~32]"), &json!("poison")));
    }
}

#[test]
fn d2_a_guests_log_its_panic_and_its_reasons_are_masked() {
    let daemon = start(&redacting().kind("attempts = 1"));
    let values = [KEY, METADATA, SECRET];
    // Every line of a panic is kept, and at most 4 KiB of it.
    let text = format!("words before: {} :words after", values.map(carried).join(" ; "));
    let kinds = ["job", "by_name", "by_path"];
    let acts = [
        json!({ "do": "log", "text": text }),
        json!({ "do": "panic", "message": text }),
        json!({ "do": "suppress", "reason": text }),
    ];
    let [logged, panicked, suppressed] = [0, 1, 2].map(|at| {
        let job = run(&daemon, kinds[at], &acts[at]);
        assert_nothing_is_seen(&daemon, job, &values);
        daemon.job(job)
    });
    let told = [&logged["attempts"][0]["log"], &panicked["attempts"][0]["trap"], &suppressed["reason"]];
    for text in told {
        let text = text.as_str().unwrap_or_else(|| panic!("nothing was kept: {logged} {panicked} {suppressed}"));
        assert!(text.contains("words before: [redacted:text ~"), "{text}");
    }
    assert!(panicked["attempts"][0]["message"].as_str().unwrap().contains("words before: [redacted:text ~"));
}

#[test]
fn d2_a_number_and_a_short_value_are_masked_in_their_fields_and_from_four_characters_on_in_texts() {
    let config = config().kind("attempts = 1").kind("redact = { names = [\"class\"], paths = [\"$.after_ms\"] }");
    let daemon = Daemon::with_misbehave(&config);
    let letter = |class: &str, message: &str| {
        let act =
            json!({ "do": "fail", "as": "poison", "class": class, "message": message, "after_ms": 4_711_471_147_u64 });
        crate::letters::letter_of(&daemon, "job", &act)
    };
    let long = letter("wxyz", "code wxyz of 4711471147");
    assert_eq!(long["message"], "code [redacted:text ~8] of [redacted:number ~16]");
    let short = letter("xyz", "code xyz of 4711471147");
    assert_eq!(short["message"], "code xyz of [redacted:number ~16]");
    let view: Value = serde_json::from_str(short["redacted_payload"].as_str().unwrap()).unwrap();
    assert_eq!((&view["class"], &view["after_ms"]), (&json!("[redacted:text ~8]"), &json!("[redacted:number ~16]")));
}

#[test]
fn d2_a_field_is_masked_by_its_name_at_any_depth_and_whatever_its_case() {
    let daemon = start(&redacting().kind("attempts = 1"));
    let inner = json!({ "list": [{ "PassWord": FIELD, "note": format!("again: {FIELD}"), FIELD: 1 }] });
    let act = json!({ "do": "enqueue", "jobs": [{ "kind": "job", "payload": inner }], "then": "poison" });
    let job = run(&daemon, "job", &act);
    assert_nothing_is_seen(&daemon, job, &[FIELD]);
    let letter = daemon.dead_letter(job);
    let view: Value = serde_json::from_str(letter["redacted_payload"].as_str().unwrap()).unwrap();
    let mask = "[redacted:text ~32]";
    let element = &view["jobs"][0]["payload"]["list"][0];
    assert_eq!(element, &json!({ "PassWord": mask, "note": format!("again: {mask}"), mask: 1 }));
}

#[test]
fn d2_a_payload_that_cant_be_parsed_is_masked_whole() {
    let bytes = config().kind("attempts = 1").kind("payload = \"bytes\"");
    let mut daemon = Daemon::with_misbehave(&bytes);
    let send = |daemon: &Daemon| {
        let payload = ["enqueue", "job", "--bytes", "--payload", "password: hunter22"];
        daemon.ask(&payload).json()["id"].as_i64().unwrap()
    };
    let as_bytes = send(&daemon);
    daemon.wait(as_bytes);
    assert_eq!(daemon.dead_letter(as_bytes)["redacted_payload"], r#""[redacted: 18 bytes]""#);
    // The kind's format changes while a job waits, which the new one can't parse.
    daemon.ask(&["kinds", "pause", "job"]).json();
    let as_json = send(&daemon);
    daemon.write_config(&bytes.kind("payload = \"json\""));
    daemon.terminate();
    daemon.run();
    daemon.ask(&["kinds", "resume", "job"]).json();
    daemon.wait(as_json);
    let letter = daemon.dead_letter(as_json);
    assert_eq!(letter["redacted_payload"], r#""[redacted: 18 bytes, not JSON]""#);
    assert_eq!((&letter["kind"], &letter["error_class"]), (&json!("job"), &json!("payload.invalid")));
    assert_nothing_is_seen(&daemon, as_json, &["hunter22"]);
}

#[test]
fn q11_masking_that_fails_masks_whole_and_the_daemon_goes_on() {
    let mut daemon = Daemon::prepare(&ConfigText::default());
    daemon.set_crash_points("redact.mask=1*panic->off");
    daemon.run();
    daemon.push_live(&guest("misbehave@1.0.0"));
    let act = json!({ "do": "fail", "as": "poison", "class": "x", "message": "for order-4711" });
    let first = daemon.enqueue("job", &act, &[]);
    assert_eq!(daemon.wait(first), "dead");
    let letter = daemon.dead_letter(first);
    assert_eq!(letter["message"], "[redacted]");
    assert!(!letter["redacted_payload"].as_str().unwrap().contains("order-4711"), "{letter}");
    let second = daemon.enqueue("job", &act, &[]);
    assert_eq!(daemon.wait(second), "dead");
    assert_eq!(daemon.dead_letter(second)["message"], "for order-4711");
    // A panic's own text may quote what was being masked, so the log has its place alone.
    daemon.wait_for_log("a panic was caught");
    assert!(!daemon.log().contains("failpoint redact.mask"), "{}", daemon.log());
}

#[test]
fn q11_masking_that_takes_too_long_masks_whole_and_the_daemon_goes_on() {
    let mut daemon = Daemon::prepare(&ConfigText::default());
    daemon.set_crash_points("redact.mask=1*sleep(60000)->off");
    daemon.run();
    daemon.push_live(&guest("misbehave@1.0.0"));
    let act = json!({ "do": "fail", "as": "poison", "class": "x", "message": "for order-4711" });
    let first = daemon.enqueue("job", &act, &[]);
    assert_eq!(daemon.wait(first), "dead");
    let letter = daemon.dead_letter(first);
    assert_eq!((&letter["message"], &letter["key"]), (&json!("[redacted]"), &json!("[redacted]")));
    assert_eq!(letter["redacted_payload"], r#""[redacted: it could not be opened or masked]""#);
    let second = daemon.enqueue("job", &act, &[]);
    assert_eq!(daemon.wait(second), "dead");
    assert_eq!(daemon.dead_letter(second)["message"], "for order-4711");
}

#[test]
fn d2_equal_values_are_seen_to_be_equal_across_jobs_of_one_installation_only() {
    let masks = |daemon: &Daemon| {
        let fields =
            [("jo@example.org", "4111111111111111"), ("Jo@Example.org", "4111111111111111"), ("ja@example.org", "1")];
        fields.map(|(address, card)| {
            let letter = crate::letters::letter_of(daemon, "job", &json!({ "note": address, "class": card }));
            let view: Value = serde_json::from_str(letter["redacted_payload"].as_str().unwrap()).unwrap();
            view["note"].as_str().unwrap().to_owned()
        })
    };
    let mut daemon = Daemon::with_misbehave(&config().kind("attempts = 1"));
    let [first, same, other] = masks(&daemon);
    assert!(first.starts_with("[redacted:email ~16 #") && first.len() == 30, "{first}");
    assert_eq!((same == first, other == first), (true, false), "{first} {same} {other}");
    daemon.kill_and_run();
    assert_eq!(masks(&daemon)[0], first, "a restart changed the fingerprint");
    let elsewhere = Daemon::with_misbehave(&config().kind("attempts = 1"));
    assert_ne!(masks(&elsewhere)[0], first, "the fingerprint is the same under another key");
}

#[test]
fn d2_reasons_lanes_and_the_log_are_masked_by_form_and_content_types_refused() {
    let address = "bob@example.com";
    let daemon = Daemon::with_misbehave(&config().kind("attempts = 1"));
    let act = json!({ "do": "fail", "as": "poison", "class": "x", "message": "order-4711" });
    let job = daemon.enqueue("job", &act, &["--lane", address]);
    assert_eq!(daemon.wait(job), "dead");
    let letter = daemon.dead_letter(job);
    assert_eq!(letter["lane"], "[redacted:email ~16]");
    assert_eq!(
        daemon.ask(&["jobs", "ls", "--lane", address]).json()["items"][0]["id"],
        job,
        "a lane is found as it is"
    );

    let refused =
        daemon.ask(&["enqueue", "job", "--payload", "{}", "--content-type", "text/plain; for=bob@example.com"]);
    assert_eq!(refused.refusal(), "invalid_job");
    assert!(!refused.stderr.contains(address), "{refused:?}");

    let why = format!("{address} called, key sk_live_4eC39HqLyjWDarjt, ticket 4711");
    let masked = "[redacted:email ~16] called, key [redacted:api-key ~32], ticket 4711";
    let answer = daemon.ask(&["dlq", "replay", &id(&letter), "--reason", &why, "--override-reason", &why]);
    answer.json();
    daemon.wait(job);
    let shown = daemon.job(job);
    assert_eq!(
        (&shown["replays"][0]["reason"], &shown["replays"][0]["override_reason"]),
        (&json!(masked), &json!(masked))
    );
    daemon.ask(&["dlq", "discard", &id(&daemon.dead_letter(job)), "--reason", &why]).json();
    let audit = daemon.ask(&["audit", "ls"]).json();
    let reasons: Vec<_> = (0..2).map(|at| &audit["items"][at]["detail"]["reason"]).collect();
    assert_eq!(reasons, [&json!(masked), &json!(masked)]);
    for (what, text) in seen(&daemon, job) {
        assert_free(&text, &[address, "sk_live_4eC39HqLyjWDarjt"], what);
    }
}

#[test]
fn d3_what_the_policy_misses_is_masked_and_counted_with_its_path() {
    let daemon = Daemon::with_misbehave(&config().kind("attempts = 1"));
    let address = "bob@example.com";
    let misses = |class| daemon.metric("leasehold_redaction_misses_total", &[("kind", "job"), ("class", class)]);
    let letter = crate::letters::letter_of(&daemon, "job", &json!({ "nonsense": address }));
    let view = letter["redacted_payload"].as_str().unwrap();
    assert_eq!(kinds_of_masks(view), r#"{"nonsense":"[redacted:email]"}"#);
    assert_eq!(letter["error_class"], "payload.invalid");
    assert_nothing_is_seen(&daemon, letter["job_id"].as_i64().unwrap(), &[address]);
    assert_eq!((misses("email"), misses("card")), (1.0, 0.0));
    let told = daemon.wait_for_log("detectors masked fields that the redaction policy does not list");
    assert!(told.contains("kind=job paths=\"$.nonsense (email)\""), "{told}");

    // The message stands in the payload too, so its field is a miss as well, once for each class.
    let message = format!("no mailbox {address}, nor amy@example.com, card 4111 1111 1111 1111, order-4711");
    let act = json!({ "do": "fail", "as": "poison", "class": "x", "message": message });
    let letter = crate::letters::letter_of(&daemon, "job", &act);
    let masked = "no mailbox [redacted:email], nor [redacted:email], card [redacted:card], order-4711";
    assert_eq!(kinds_of_masks(letter["message"].as_str().unwrap()), masked);
    let clear = [address, "amy@example.com", "4111 1111 1111 1111"];
    assert_nothing_is_seen(&daemon, letter["job_id"].as_i64().unwrap(), &clear);
    assert_eq!((misses("email"), misses("card")), (2.0, 1.0));
    daemon.wait_for_log("$.message (email), $.message (card)");
}

#[test]
fn d2_what_a_guest_logs_is_masked_by_its_form() {
    let daemon = Daemon::with_misbehave(&config().kind("attempts = 1"));
    let act = json!({ "do": "log", "text": "for bob@example.com with Bearer a1b2c3d4e5f6, order-4711" });
    let job = daemon.enqueue("job", &act, &[]);
    daemon.wait(job);
    let log = daemon.job(job)["attempts"][0]["log"].to_string();
    assert!(
        kinds_of_masks(&log).contains("for [redacted:email] with Bearer [redacted:credential], order-4711"),
        "{log}"
    );
    assert_nothing_is_seen(&daemon, job, &["bob@example.com", "a1b2c3d4e5f6"]);
}

#[test]
fn d2_the_daemons_log_is_masked_by_form() {
    let daemon = Daemon::prepare(&config().daemon("handlers_folder = \"handlers\""));
    let folder = daemon.directory().join("handlers");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("bob@example.com.wasm"), "no component").unwrap();
    let mut daemon = daemon;
    daemon.run();
    let line = daemon.wait_for_log("a file in the handlers folder can't be taken in");
    assert!(line.contains("[redacted:email ~"), "{line}");
    assert_free(&daemon.log(), &["bob@example.com"], "the log");
}

/// An address that tells where it was put.
fn canary(place: &str) -> String {
    format!("canary-{place}@example.org")
}

/// Jobs that bring an address in at every place at which a job and its guest can; answers them when they have ended.
fn jobs_with_canaries(daemon: &Daemon) -> Vec<i64> {
    let step = json!({
        "do": "step", "name": "keep", "subject": canary("subject"), "then": "poison",
        "kv": [{ "op": "set", "store": "s", "key": canary("value-key"), "value": canary("value") }],
        "enqueue": [
            { "kind": "job", "key": canary("outbox-key"), "payload": { "do": "echo", "payload": canary("outbox") } },
            { "kind": canary("outbox-kind"), "payload": 1 },
        ],
    });
    let acts = [
        json!({ "do": "fail", "as": "poison", "class": canary("class"), "message": format!("no {}", canary("message")) }),
        json!({ "do": canary("act"), canary("name"): { "list": [canary("field")] } }),
        json!({ "do": "panic", "message": format!("at {}", canary("panic")) }),
        json!({ "do": "log", "text": format!("for {}", canary("log")) }),
        json!({ "do": "suppress", "reason": canary("suppressed") }),
        json!({ "do": "step", "name": "send", "url": format!("http://127.0.0.1:1/?to={}", canary("url")) }),
        json!({ "do": "kv", "ops": [{ "op": "get", "store": canary("store"), "key": "k" }], "then": "panic" }),
        step,
    ];
    acts.iter()
        .enumerate()
        .map(|(number, act)| {
            let (key, meta) = (canary(&format!("key-{number}")), format!("{}={}", canary("meta-name"), canary("meta")));
            let job = daemon.enqueue("job", act, &["--key", &key, "--meta", &meta, "--lane", &canary("lane")]);
            daemon.wait(job);
            job
        })
        .collect()
}

/// Brings an address in at every place at which whoever calls the daemon can and is refused.
fn refusals_with_canaries(daemon: &Daemon) {
    let file = daemon.directory().join("jobs.jsonl");
    let lines = [
        format!(r#"{{"kind":"job","payload":{{"a":"{}""#, canary("broken-line")),
        format!(r#"{{"kind":"{}","payload":1}}"#, canary("line-kind")),
        format!(r#"{{"kind":"job","payload":1,"{}":2}}"#, canary("line-field")),
    ];
    std::fs::write(&file, lines.join("\n")).unwrap();
    let component = guest("misbehave@1.0.0");
    let refused: [&[&str]; 5] = [
        &["enqueue", "--file", file.to_str().unwrap()],
        &["enqueue", "job", "--payload", &format!("{{\"a\": {}", canary("broken"))],
        &["enqueue", &canary("kind"), "--payload", "1"],
        &["handlers", "push", component.to_str().unwrap(), "--name", &canary("handler"), "--version", "1.0.0"],
        &["kinds", "pause", &canary("paused")],
    ];
    for arguments in refused {
        assert_ne!(daemon.ask(arguments).status, 0, "{arguments:?}");
    }
}

#[test]
fn d2_a_canary_in_any_place_stands_in_no_sink_and_no_file() {
    let mut daemon = Daemon::with_misbehave(&config().kind("attempts = 1"));
    let jobs = jobs_with_canaries(&daemon);
    refusals_with_canaries(&daemon);
    let why = canary("reason");
    for &job in [&jobs[0], &jobs[2]] {
        let letter = id(&daemon.dead_letter(job));
        daemon.ask(&["dlq", "replay", &letter, "--reason", &why, "--override-reason", &why]).json();
        daemon.wait(job);
    }
    daemon.ask(&["dlq", "discard", &id(&daemon.dead_letter(jobs[0])), "--reason", &why]).json();

    let mut sinks: Vec<_> = jobs.iter().flat_map(|&job| seen(&daemon, job)).collect();
    for arguments in
        [&["kinds", "ls"][..], &["handlers", "ls"], &["jobs", "ls", "--state", "suppressed"], &["audit", "ls"]]
    {
        sinks.push(("a list as text", as_text(&daemon, arguments)));
        sinks.push(("a list", daemon.ask(arguments).stdout));
    }
    for (what, text) in &sinks {
        for form in crate::forms::forms("canary-") {
            assert!(!text.contains(&form), "{what} holds {form}:\n{text}");
        }
        assert!(!text.to_lowercase().contains("canary-"), "{what}:\n{text}");
    }
    daemon.terminate();
    // The queue orders by lanes, which stand in the clear as the guarantees say; nothing else does.
    let found = files_with(&daemon.data(), "canary-", "leasehold.key");
    assert!(!found.is_empty(), "the search finds nothing at all");
    let connection = rusqlite::Connection::open(daemon.data().join("leasehold.db")).unwrap();
    connection
        .execute_batch(
            "UPDATE jobs SET lane = NULL; UPDATE ended_jobs SET lane = NULL;
        UPDATE dead_letters SET lane = NULL; DELETE FROM lane_cooldowns; VACUUM; PRAGMA wal_checkpoint(TRUNCATE);",
        )
        .unwrap();
    drop(connection);
    assert_eq!(files_with(&daemon.data(), "canary-", "leasehold.key"), [""; 0]);
}
