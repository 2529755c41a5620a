//! D1: why a job died, and what its dead letter tells.

use serde_json::json;

use crate::{
    letters::{attempts, config, letter_of, told},
    support::{ConfigText, Daemon, Server},
};

#[test]
fn d1_what_the_guest_calls_poison_or_rejected_ends_at_once() {
    let daemon = Daemon::with_misbehave(&config());
    for (said, class) in [("poison", "shop.defect"), ("rejected", "shop.closed")] {
        let letter = letter_of(&daemon, "job", &told(said, class));
        assert_eq!((&letter["cause"], &letter["error_class"]), (&json!(said), &json!(class)));
        assert_eq!(attempts(&letter), 1);
        let labels = [("kind", "job"), ("cause", said)];
        assert!((daemon.metric("leasehold_dead_letters_total", &labels) - 1.0).abs() < 0.1);
    }
}

#[test]
fn d1_traps_and_broken_limits_are_retried_to_the_cap_and_are_poison_there() {
    let config = config()
        .another_kind("brief", "attempts = 2\nbackoff = { min = \"10ms\", max = \"20ms\" }\ndeadline = \"300ms\"");
    let daemon = Daemon::with_misbehave(&config);
    for (act, class) in [
        (json!({ "do": "panic" }), "handler.panic"),
        (json!({ "do": "exit" }), "handler.exit"),
        (json!({ "do": "memory" }), "limit.memory"),
        (json!({ "do": "stack" }), "limit.stack"),
        (json!({ "do": "output", "bytes": 300_000 }), "limit.output"),
    ] {
        let letter = letter_of(&daemon, "job", &act);
        assert_eq!((&letter["cause"], &letter["error_class"]), (&json!("poison"), &json!(class)));
        assert_eq!(attempts(&letter), 3, "{letter}");
    }
    let letter = letter_of(&daemon, "brief", &json!({ "do": "loop" }));
    assert_eq!((&letter["cause"], &letter["error_class"]), (&json!("poison"), &json!("limit.time")));
    assert_eq!(attempts(&letter), 2, "{letter}");
}

#[test]
fn d1_a_payload_that_its_handler_cant_read_is_poison() {
    let daemon = Daemon::with_misbehave(&config());
    let letter = letter_of(&daemon, "job", &json!({ "do": "nothing that there is" }));
    assert_eq!((&letter["cause"], &letter["error_class"]), (&json!("poison"), &json!("payload.invalid")));
    assert_eq!(attempts(&letter), 1);
}

#[test]
fn d1_downstream_failures_and_rate_limits_that_outlast_the_cap_are_exhausted() {
    let daemon = Daemon::with_misbehave(&config());
    for (said, class) in [("retry", "shop.down"), ("rate_limited", "shop.slow")] {
        let letter = letter_of(&daemon, "job", &told(said, class));
        assert_eq!((&letter["cause"], &letter["error_class"]), (&json!("exhausted"), &json!(class)));
        assert_eq!(attempts(&letter), 3, "{letter}");
    }
}

#[test]
fn d1_leases_that_run_out_at_the_cap_are_exhausted() {
    let config = config().kind("attempts = 2").kind("heartbeat = \"100ms\"").kind("visibility_timeout = \"400ms\"");
    let mut daemon = Daemon::prepare(&config);
    daemon.set_crash_points("heartbeat.send=return");
    daemon.run();
    daemon.push_live(&crate::support::guest("misbehave@1.0.0"));
    let letter = letter_of(&daemon, "job", &json!({ "do": "loop" }));
    assert_eq!((&letter["cause"], &letter["error_class"]), (&json!("exhausted"), &json!("lease.expired")));
    assert_eq!(attempts(&letter), 2, "{letter}");
}

#[test]
fn d1_a_step_in_doubt_ends_the_job_where_the_kind_asks_an_operator() {
    let server = Server::accepting();
    let config = config().reaching(server.url()).kind("in_doubt = \"dead-letter\"");
    let daemon = Daemon::with_misbehave(&config);
    let act = json!({ "do": "step", "name": "charge", "url": server.url(), "inside": "unknown" });
    let letter = letter_of(&daemon, "job", &act);
    assert_eq!((&letter["cause"], &letter["error_class"]), (&json!("in_doubt"), &json!("step.in_doubt")));
    assert_eq!(server.received().len(), 1, "the effect was run again");
    assert!(letter["message"].as_str().unwrap().contains("charge"), "{letter}");
}

#[test]
fn d1_the_vocabulary_wins_over_the_guest_and_the_mismatch_is_counted() {
    let daemon = Daemon::with_misbehave(&config());
    let mismatches = || daemon.metric("leasehold_error_class_mismatches_total", &[("kind", "job")]);
    for (said, class, cause, runs) in [
        ("retry", "shop.defect", "poison", 1),
        ("retry", "shop.closed", "rejected", 1),
        ("poison", "shop.closed", "rejected", 1),
        // A class that is mapped to retry or rate-limited is never made poison.
        ("poison", "shop.down", "exhausted", 3),
        ("rejected", "shop.slow", "exhausted", 3),
    ] {
        let before = mismatches();
        let letter = letter_of(&daemon, "job", &told(said, class));
        assert_eq!((&letter["cause"], &letter["error_class"]), (&json!(cause), &json!(class)));
        assert_eq!(attempts(&letter), runs, "{letter}");
        assert!((mismatches() - before - f64::from(u8::try_from(runs).unwrap())).abs() < 0.1, "{said} {class}");
    }
    let before = mismatches();
    letter_of(&daemon, "job", &told("poison", "shop.defect"));
    assert!((mismatches() - before).abs() < 0.1, "an agreement was counted as a mismatch");
}

#[test]
fn d1_a_trap_whose_class_is_mapped_to_retry_is_never_poison() {
    let config = ConfigText::default().more("\"handler.panic\" = \"retry\"\n\"limit.memory\" = \"rejected\"");
    let daemon = Daemon::with_misbehave(&config);
    let letter = letter_of(&daemon, "job", &json!({ "do": "panic" }));
    assert_eq!((&letter["cause"], attempts(&letter)), (&json!("exhausted"), 3));
    let letter = letter_of(&daemon, "job", &json!({ "do": "memory" }));
    assert_eq!((&letter["cause"], attempts(&letter)), (&json!("rejected"), 1));
}

#[test]
fn d1_a_class_that_is_not_in_the_vocabulary_is_unclassified_and_counted() {
    let daemon = Daemon::with_misbehave(&config());
    let unknown = || daemon.metric("leasehold_unclassified_errors_total", &[("kind", "job")]);
    for (said, class, cause) in [("poison", "shop.new", "poison"), ("rejected", "jo@example.org", "rejected")] {
        let before = unknown();
        let letter = letter_of(&daemon, "job", &told(said, class));
        assert_eq!((&letter["cause"], &letter["error_class"]), (&json!(cause), &json!("unclassified")));
        assert!((unknown() - before - 1.0).abs() < 0.1);
    }
    assert!(!daemon.metrics().contains("jo@example.org"));
}

#[test]
fn d1_a_dead_letter_tells_of_its_job_and_of_each_attempt() {
    let daemon = Daemon::with_misbehave(&config());
    let digest = daemon.ask(&["handlers", "show", "misbehave@1.0.0"]).json()["digest"].clone();
    let job = daemon.enqueue("job", &told("retry", "shop.down"), &["--key", "order-4711", "--lane", "customer-7"]);
    assert_eq!(daemon.wait(job), "dead");
    let letter = daemon.dead_letter(job);
    assert_eq!(letter["kind"], "job");
    assert_eq!(letter["job_id"], json!(job));
    assert_ne!(letter["id"], json!(null));
    assert_eq!(letter["lane"], "customer-7");
    assert_eq!(letter["key"], "[redacted:text ~16]");
    assert_eq!((&letter["handler"], &letter["digest"]), (&json!("misbehave@1.0.0"), &digest));
    let told = letter["attempts"].as_array().unwrap();
    assert_eq!(told.len(), 3);
    for (number, attempt) in (1..).zip(told) {
        assert_eq!(attempt["number"], json!(number));
        assert_eq!((&attempt["handler"], &attempt["digest"]), (&json!("misbehave@1.0.0"), &digest));
        assert_eq!((&attempt["ended_as"], &attempt["error_class"]), (&json!("failed"), &json!("shop.down")));
        let (started, ended) = (attempt["started_at"].as_str().unwrap(), attempt["ended_at"].as_str().unwrap());
        // RFC 3339 in UTC with a fixed number of digits sorts as text.
        assert!(started <= ended && ended <= letter["died_at"].as_str().unwrap(), "{letter}");
    }
    // A list tells what it is about, too.
    let listed = daemon.ask(&["dlq", "ls", "--kind", "job", "--cause", "exhausted", "--class", "shop.down"]).json();
    assert_eq!(listed["items"][0]["id"], letter["id"]);
    assert_eq!(daemon.ask(&["dlq", "ls", "--cause", "poison"]).json()["items"], json!([]));
}
