//! O5: who may do what through the socket.

use serde_json::json;

use crate::{
    letters::{config, id, letter_of, told},
    raw_http,
    support::{Answer, ConfigText, Daemon, guest},
};

/// A configuration in which the caller has that name and role.
fn acting_as(name: &str, role: &str) -> ConfigText {
    let uid = rustix::process::geteuid().as_raw();
    config().more(&format!("[actors]\n\"uid:{uid}\" = {{ name = \"{name}\", role = \"{role}\" }}"))
}

/// Has the daemon take over the configuration, by the signal that needs no role.
fn become_actor(daemon: &Daemon, config: &ConfigText, reloads: usize) {
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
            assert_eq!((answer.status, answer.refusal()), (1, "forbidden".into()), "{name}");
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
        assert_eq!(answer.refusal(), "forbidden");
        assert!(answer.stderr.contains("ops has the role view; this needs operate"), "{answer:?}");
    }
    let job = letter["job_id"].to_string();
    assert_eq!(daemon.ask(&["jobs", "cancel", &job]).refusal(), "forbidden");
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
    assert_eq!(daemon.ask(&["jobs", "show", &job.to_string()]).refusal(), "forbidden");
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
