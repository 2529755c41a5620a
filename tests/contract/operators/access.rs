//! O5: who may do what through the socket.

use serde_json::json;

use crate::{
    letters::{config, id, letter_of, told},
    raw_http,
    support::{Answer, ConfigText, Daemon, guest},
    tokens::on_tcp,
};

/// A configuration in which the caller has that name and role.
pub fn acting_as(name: &str, role: &str) -> ConfigText {
    let uid = rustix::process::geteuid().as_raw();
    config().more(&format!("[actors]\n\"uid:{uid}\" = {{ name = \"{name}\", role = \"{role}\" }}"))
}

/// Has the daemon take over the configuration, by the signal that needs no role.
pub fn become_actor(daemon: &Daemon, config: &ConfigText, reloads: usize) {
    daemon.write_config(config);
    daemon.signal(rustix::process::Signal::HUP);
    daemon.wait_for_log_lines(reloads, "the configuration was reloaded");
}

fn enqueue(daemon: &Daemon) -> Answer {
    daemon.ask(&["enqueue", "job", "--payload", r#"{"do":"echo"}"#])
}

/// What the daemon says to one request of each kind: whether it was let through.
fn let_through(daemon: &Daemon, letter: &str) -> Vec<&'static str> {
    let component = guest("misbehave@1.0.0");
    let requests: [(&str, &[&str]); 11] = [
        ("enqueue", &["enqueue", "job", "--payload", r#"{"do":"echo"}"#]),
        ("jobs", &["jobs", "ls"]),
        ("dlq", &["dlq", "show", letter]),
        ("kinds", &["kinds", "ls"]),
        ("handlers", &["handlers", "ls"]),
        ("audit", &["audit", "ls"]),
        ("pause", &["kinds", "pause", "job"]),
        ("resume", &["kinds", "resume", "job"]),
        ("activate", &["handlers", "activate", "misbehave@1.0.0"]),
        ("push", &["handlers", "push", component.to_str().unwrap()]),
        ("reload", &["reload"]),
    ];
    let mut passed = Vec::new();
    for (name, arguments) in requests {
        let answer = daemon.ask(arguments);
        if answer.status == 0 {
            passed.push(name);
        } else {
            assert_eq!((answer.status, answer.refusal()), (1, "role_required".into()), "{name}");
        }
    }
    passed
}

#[test]
fn o5_each_role_may_do_what_it_says_and_no_more() {
    let daemon = Daemon::with_misbehave(&acting_as("ops", "admin"));
    let letter = id(&letter_of(&daemon, "job", &told("rejected", "shop.closed")));
    let reads = ["jobs", "dlq", "kinds", "handlers"];
    let operates = ["audit", "pause", "resume", "activate"];
    for (reloads, (role, expected)) in (1..).zip([
        ("enqueue", vec!["enqueue"]),
        ("view", reads.to_vec()),
        ("operate", [&["enqueue"][..], &reads, &operates].concat()),
    ]) {
        become_actor(&daemon, &acting_as("ops", role), reloads);
        assert_eq!(let_through(&daemon, &letter), expected, "{role}");
    }
}

#[test]
fn o5_acting_on_dead_letters_needs_the_role_and_changes_nothing_without_it() {
    let daemon = Daemon::with_misbehave(&acting_as("ops", "admin"));
    let letter = letter_of(&daemon, "job", &told("rejected", "shop.closed"));
    become_actor(&daemon, &acting_as("ops", "view"), 1);
    for act in ["replay", "discard"] {
        let answer = daemon.ask(&["dlq", act, &id(&letter), "--reason", "mended"]);
        assert_eq!(answer.refusal(), "role_required");
        assert!(answer.stderr.contains("ops has the role view; this needs operate"), "{answer:?}");
    }
    let job = letter["job_id"].to_string();
    assert_eq!(daemon.ask(&["jobs", "cancel", &job]).refusal(), "role_required");
    assert_eq!(daemon.ask(&["dlq", "show", &id(&letter)]).json()["state"], "open");
    assert_eq!(daemon.database().one::<i64>("SELECT count(*) FROM audit WHERE action LIKE 'dead_letter%'"), 0);
}

#[test]
fn o5_who_is_not_named_is_told_so_and_nothing_else() {
    let stranger = rustix::process::geteuid().as_raw() + 1;
    let actors = format!("[actors]\n\"uid:{stranger}\" = {{ name = \"else\", role = \"admin\" }}");
    let daemon = Daemon::start(&config().more(&actors));
    for arguments in [&["jobs", "ls"][..], &["enqueue", "job", "--payload", "{}"], &["jobs", "show", "1"]] {
        let answer = daemon.ask(arguments);
        assert_eq!((answer.status, answer.refusal()), (1, "unauthenticated".into()));
        assert!(answer.stderr.contains("[actors]"), "{answer:?}");
    }
    // Nor do the paths tell that need no role.
    for path in ["/healthz", "/readyz", "/openapi.json", "/metrics"] {
        let (status, problem) = raw_http::send(&daemon, "GET", path, &[], "");
        assert_eq!((status, &problem["code"]), (401, &json!("unauthenticated")), "{path}");
    }
    assert_eq!(daemon.database().one::<i64>("SELECT count(*) FROM jobs"), 0);
}

#[test]
fn o5_a_result_is_given_to_who_enqueued_the_job() {
    let daemon = Daemon::with_misbehave(&acting_as("jo", "admin"));
    let job = enqueue(&daemon).json()["id"].as_i64().unwrap();
    assert_eq!(daemon.wait(job), "done");
    assert_eq!(daemon.result(job)["id"], json!(job));
    become_actor(&daemon, &acting_as("kim", "admin"), 1);
    let shown = daemon.job(job);
    assert_eq!((&shown["enqueued_by"], shown.get("result_base64")), (&json!("jo"), None));
    // Who may only enqueue sees a job of their own and none of another's.
    become_actor(&daemon, &acting_as("kim", "enqueue"), 2);
    assert_eq!(daemon.ask(&["jobs", "show", &job.to_string()]).refusal(), "role_required");
    let own = enqueue(&daemon).json()["id"].as_i64().unwrap();
    assert_eq!(daemon.wait(own), "done");
    assert_eq!(daemon.result(own)["id"], json!(own));
}

#[test]
fn o5_every_act_of_an_operator_is_in_the_audit_log() {
    let daemon = Daemon::with_misbehave(&acting_as("jo on call", "admin"));
    daemon.ask(&["kinds", "pause", "job"]).json();
    let job = enqueue(&daemon).json()["id"].to_string();
    daemon.ask(&["jobs", "cancel", &job]).json();
    daemon.ask(&["kinds", "resume", "job"]).json();
    daemon.ask(&["reload"]).json();
    daemon.ask(&["handlers", "retire", "misbehave@1.0.0"]).json();
    let audit = daemon.ask(&["audit", "ls"]).json();
    let entries = audit["items"].as_array().unwrap();
    assert!(entries.iter().all(|entry| entry["actor"] == "jo on call"), "{audit}");
    let actions: Vec<_> = entries.iter().rev().map(|entry| entry["action"].as_str().unwrap()).collect();
    let expected = [
        "handler.push",
        "handler.activate",
        "kind.pause",
        "job.cancel",
        "kind.resume",
        "config.reload",
        "handler.retire",
    ];
    assert_eq!(actions, expected);
}

/// The rows of refused calls, the oldest first.
fn refused(daemon: &Daemon) -> Vec<serde_json::Value> {
    let audit = daemon.ask(&["audit", "ls", "--action", "access.refused", "--limit", "1000"]).json();
    audit["items"].as_array().unwrap().iter().rev().cloned().collect()
}

#[test]
fn o5_a_refused_act_is_in_the_audit_log_and_a_flood_of_them_is_counted() {
    let mut daemon = Daemon::with_misbehave(&acting_as("ops", "admin"));
    let letter = id(&letter_of(&daemon, "job", &told("rejected", "shop.closed")));
    become_actor(&daemon, &acting_as("jo", "view"), 1);
    assert_eq!(daemon.ask(&["dlq", "discard", &letter, "--reason", "obsolete"]).refusal(), "role_required");
    // What the caller was told is on record by then: a kill takes nothing of it away.
    daemon.kill();
    daemon.write_config(&acting_as("ops", "admin"));
    daemon.run();
    let rows = refused(&daemon);
    let [row] = &rows[..] else { panic!("{rows:?}") };
    assert_eq!((&row["actor"], &row["subject"]), (&json!("jo"), &json!("DiscardDeadLetter")));
    assert_eq!(row["detail"], json!({ "code": "role_required", "needed_role": "operate", "count": 1 }));

    become_actor(&daemon, &acting_as("kim", "view"), 2);
    for _ in 0..50 {
        assert_eq!(raw_http::send(&daemon, "POST", "/v1/reload", &[], "").0, 403);
    }
    // Who may view sees how many; the log tells whose they were.
    assert!(
        daemon.metrics().contains("leasehold_api_refusals_total{code=\"role_required\"} 50"),
        "{}",
        daemon.metrics()
    );
    daemon.terminate();
    daemon.write_config(&acting_as("ops", "admin"));
    daemon.run();
    let rows: Vec<_> = refused(&daemon).into_iter().filter(|row| row["actor"] == "kim").collect();
    assert_eq!(rows.iter().map(|row| row["detail"]["count"].as_u64().unwrap()).sum::<u64>(), 50, "{rows:?}");
    // A first one and a count for each minute that was touched.
    assert!(rows.len() <= 4, "{rows:?}");
}

#[test]
fn o5_who_is_not_known_is_on_record_with_where_they_came_from() {
    let daemon = Daemon::start(&on_tcp());
    let address = raw_http::tcp_address(&daemon);
    let host = format!("host: {address}");
    assert_eq!(
        raw_http::over_tcp(&address, "POST", "/v1/jobs", &[&host, "content-type: application/json"], b"{}").status,
        401
    );
    let rows = refused(&daemon);
    assert_eq!((&rows[0]["actor"], &rows[0]["subject"]), (&json!("peer:127.0.0.1"), &json!("EnqueueJob")));
    assert_eq!(rows[0]["detail"], json!({ "code": "unauthenticated", "count": 1, "peer": "127.0.0.1" }));
}

#[test]
fn r3_a_refused_replay_is_in_the_audit_log_with_its_code() {
    let daemon = Daemon::with_misbehave(&acting_as("jo", "admin"));
    let letter = id(&letter_of(&daemon, "job", &told("poison", "shop.defect")));
    let refused = daemon.ask(&["dlq", "replay", &letter, "--reason", "again"]);
    assert_eq!(refused.refusal(), "defect_not_fixed");
    let asked = ["dlq", "replay", &letter, "--reason", "older", "--version", "misbehave@0.9.0"];
    assert_eq!(daemon.ask(&asked).refusal(), "version_not_live");
    let audit = daemon.ask(&["audit", "ls", "--action", "act.refused", "--subject", &letter]).json();
    let told: Vec<_> = audit["items"].as_array().unwrap().iter().map(|row| (&row["actor"], &row["detail"])).collect();
    let jo = json!("jo");
    let with = |code: &str| json!({ "operation": "ReplayDeadLetter", "code": code, "count": 1 });
    assert_eq!(told, [(&jo, &with("version_not_live")), (&jo, &with("defect_not_fixed"))]);
}

#[test]
fn o5_whatever_act_is_refused_is_in_the_audit_log_and_a_question_is_not() {
    let daemon = Daemon::with_misbehave(&acting_as("jo", "admin"));
    let sound = std::fs::read_to_string(daemon.config_path()).unwrap();
    std::fs::write(daemon.config_path(), format!("{sound}\nnonsense = 1\n")).unwrap();
    assert_eq!(daemon.ask(&["reload"]).refusal(), "config_invalid");
    assert_eq!(daemon.ask(&["handlers", "activate", "misbehave@9.9.9"]).refusal(), "version_not_stored");
    assert_eq!(daemon.ask(&["kinds", "pause", "jo@example.org"]).refusal(), "unknown_kind");
    assert_eq!(daemon.ask(&["replays", "stop", "7"]).refusal(), "not_found");
    assert_eq!(daemon.ask(&["dlq", "show", "7"]).refusal(), "not_found");
    let audit = daemon.ask(&["audit", "ls", "--action", "act.refused"]).json();
    let told: Vec<_> = audit["items"]
        .as_array()
        .unwrap()
        .iter()
        .rev()
        .map(|row| {
            assert_eq!(row["actor"], "jo");
            ["subject", "detail"].map(|name| row[name].clone())
        })
        .collect();
    let row = |subject: &str, operation: &str, code: &str| {
        [json!(subject), json!({ "operation": operation, "code": code, "count": 1 })]
    };
    assert_eq!(
        told,
        [
            row("", "Reload", "config_invalid"),
            row("misbehave@9.9.9", "ActivateHandler", "version_not_stored"),
            row("[redacted:email ~16]", "PauseKind", "unknown_kind"),
            row("7", "StopBulkReplay", "not_found"),
        ]
    );
}

#[test]
fn o5_the_audit_log_is_searched_by_who_what_and_when() {
    let daemon = Daemon::with_misbehave(&acting_as("jo", "admin"));
    daemon.ask(&["kinds", "pause", "job"]).json();
    become_actor(&daemon, &acting_as("kim", "admin"), 1);
    daemon.ask(&["kinds", "resume", "job"]).json();
    let found = |options: &[&str]| {
        let page = daemon.ask(&[&["audit", "ls"][..], options].concat()).json();
        let items = page["items"].as_array().unwrap();
        items.iter().map(|row| row["action"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(found(&["--actor", "kim"]), ["kind.resume"]);
    assert_eq!(found(&["--action", "kind"]), ["kind.resume", "kind.pause"]);
    assert_eq!(found(&["--action", "kind.pause"]), ["kind.pause"]);
    assert_eq!(found(&["--subject", "misbehave@1.0.0"]), ["handler.activate", "handler.push"]);
    assert_eq!(found(&["--subject", "job", "--actor", "jo"]), ["kind.pause"]);
    assert_eq!(found(&["--until", "1h"]), Vec::<String>::new());
    assert_eq!(found(&["--since", "1h"]).len(), 5);
    let page = daemon.ask(&["audit", "ls", "--action", "kind", "--limit", "1"]).json();
    let next = page["next_cursor"].as_str().unwrap();
    assert_eq!(found(&["--action", "kind", "--cursor", next]), ["kind.pause"]);
    let paused_at = daemon.ask(&["audit", "ls", "--action", "kind.pause"]).json()["items"][0]["at"].clone();
    assert_eq!(found(&["--action", "kind", "--until", paused_at.as_str().unwrap()]), Vec::<String>::new());
    assert_eq!(daemon.ask(&["audit", "ls", "--since", "yesterday"]).status, 2);
}
