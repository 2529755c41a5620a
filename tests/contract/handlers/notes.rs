//! I4 and H6 for notes on other jobs' records: made once with the success or never, by grant, redacted, and never a change
//! to the other job.

use leasehold_store::{Durability, Retention, Store, StoreOptions};
use serde_json::{Value, json};

use crate::{
    helpers::dead,
    support::{ConfigText, Daemon, guest, server::block_on},
};

const ANNOTATE: &str = "\"records.denied\" = \"rejected\"\n\"records.invalid\" = \"poison\"\n\
                        \"records.too_large\" = \"poison\"\n[handlers.annotate]\nannotate = [\"job\"]\n[kinds.annotate]\nhandler = \"annotate\"\nowner = \"tests\"\n\
                        backoff = { min = \"10ms\", max = \"50ms\" }\nin_doubt = \"begin-again\"\nattempts = 2\n\
                        redact = { names = [\"text\"] }\n[kinds.other]\nhandler = \"annotate\"\nowner = \"tests\"";

fn start() -> Daemon {
    let daemon = Daemon::with_misbehave(&ConfigText::default().more(ANNOTATE));
    daemon.push_live(&guest("annotate@1.0.0"));
    daemon
}

/// A job to be annotated.
fn subject(daemon: &Daemon) -> i64 {
    let job = daemon.enqueue("job", &json!({ "do": "count" }), &[]);
    assert_eq!(daemon.wait(job), "done");
    job
}

fn note(job: i64, key: &str) -> Value {
    json!({ "kind": "job", "job": job, "key": key, "class": "test.note", "text": "as told" })
}

fn run(daemon: &Daemon, payload: &Value) -> (i64, String) {
    let job = daemon.enqueue("annotate", payload, &[]);
    (job, daemon.wait(job))
}

fn notes(daemon: &Daemon, job: i64) -> Vec<Value> {
    daemon.job(job)["notes"].as_array().unwrap().clone()
}

#[test]
fn i4_a_note_becomes_real_once_with_the_success() {
    let daemon = start();
    for in_step in [false, true] {
        let subject = subject(&daemon);
        // The first attempt fails after the note.
        let payload = json!({ "notes": [note(subject, "a")], "in_step": in_step, "fails": 1 });
        let (by, state) = run(&daemon, &payload);
        assert_eq!((state.as_str(), daemon.job(by)["attempt"].as_i64()), ("done", Some(2)));
        let made = notes(&daemon, subject);
        assert_eq!(made.len(), 1, "{made:?}");
        assert_eq!(
            (&made[0]["class"], &made[0]["by_job_id"], &made[0]["by_kind"]),
            (&json!("test.note"), &json!(by), &json!("annotate"))
        );
        assert_eq!(daemon.job(subject)["state"], "done");
        // The same key again is the same note; another one is another.
        run(&daemon, &json!({ "notes": [note(subject, "a"), note(subject, "b")] }));
        assert_eq!(notes(&daemon, subject).len(), 2);
    }
}

#[test]
fn i4_a_note_of_a_job_that_does_not_succeed_is_never_made() {
    let daemon = start();
    for in_step in [false, true] {
        let subject = subject(&daemon);
        let (by, state) = run(&daemon, &json!({ "notes": [note(subject, "a")], "in_step": in_step, "fails": 9 }));
        assert_eq!(state, "dead");
        assert_eq!(notes(&daemon, subject), Vec::<Value>::new());
        assert_eq!(daemon.dead_letter(by)["error_class"], "handler.told");
    }
    assert_eq!(daemon.database().one::<i64>("SELECT count(*) FROM job_notes"), 0);
}

#[test]
fn i4_a_note_on_a_job_that_is_not_there_or_of_another_kind_is_left_out_and_no_failure() {
    let daemon = start();
    let other = daemon.enqueue("other", &json!({ "notes": [] }), &[]);
    assert_eq!(daemon.wait(other), "done");
    let (_, state) = run(&daemon, &json!({ "notes": [note(4_711_000, "a"), note(other, "a")] }));
    assert_eq!(state, "done");
    daemon.wait_for_log_lines(2, "a note was left out");
    assert_eq!(daemon.database().one::<i64>("SELECT count(*) FROM job_notes"), 0);
}

#[test]
fn i4_a_records_notes_are_bounded() {
    let daemon = start();
    let subject = subject(&daemon);
    let many: Vec<_> = (0..120).map(|number| note(subject, &number.to_string())).collect();
    assert_eq!(run(&daemon, &json!({ "notes": many })).1, "done");
    assert_eq!(notes(&daemon, subject).len(), 100);
}

#[test]
fn i4_a_note_on_a_dead_letters_job_is_shown_with_both() {
    let daemon = start();
    let letter = dead(&daemon, &json!({ "do": "fail", "as": "rejected", "class": "downstream.refused" }));
    let job = letter["job_id"].as_i64().unwrap();
    assert_eq!(run(&daemon, &json!({ "notes": [note(job, "a")] })).1, "done");
    let shown = daemon.dead_letter(job);
    assert_eq!((&shown["notes"], shown["state"].as_str()), (&daemon.job(job)["notes"], Some("open")));
    assert_eq!(shown["notes"].as_array().unwrap().len(), 1);
}

#[test]
fn h6_notes_on_a_kind_that_is_not_granted_have_a_class_of_their_own() {
    let daemon = start();
    let own = daemon.enqueue("other", &json!({ "notes": [] }), &[]);
    let mut denied = note(own, "a");
    denied["kind"] = json!("other");
    let mut no_class = note(own, "a");
    no_class["class"] = json!("Al1ce C4nary");
    let mut too_long = note(own, "a");
    too_long["text"] = json!("x".repeat(5_000));
    for (refused, class, cause) in [
        (denied, "records.denied", "rejected"),
        (no_class, "records.invalid", "poison"),
        (too_long, "records.too_large", "poison"),
    ] {
        let (job, state) = run(&daemon, &json!({ "notes": [refused] }));
        assert_eq!(state, "dead");
        let letter = daemon.dead_letter(job);
        assert_eq!(
            (&letter["cause"], &letter["message"].as_str().unwrap().is_empty()),
            (&json!(cause), &false),
            "{class}"
        );
        assert!(letter["error_class"] == class || letter["error_class"] == "unclassified", "{letter}");
    }
}

#[test]
fn h3_a_component_that_makes_notes_needs_the_grant_and_is_told_its_line() {
    let daemon = Daemon::start(&ConfigText::default().more("[handlers.annotate]"));
    let refused = daemon.ask(&["handlers", "push", guest("annotate@1.0.0").to_str().unwrap(), "--activate"]);
    assert_eq!(refused.refusal(), "component_not_granted");
    for part in ["leasehold:job/records@0.1.0", "`annotate = [\\\"KIND\\\"]` under [handlers.annotate]"] {
        assert!(refused.stderr.contains(part), "{part}: {}", refused.stderr);
    }
}

#[test]
fn d2_a_note_is_redacted_before_it_is_written() {
    const CANARY: &str = "c4nary-n4me O'Neil";
    let daemon = start();
    for in_step in [false, true] {
        let subject = subject(&daemon);
        let mut told = note(subject, CANARY);
        told["text"] = json!(CANARY);
        assert_eq!(run(&daemon, &json!({ "notes": [told], "in_step": in_step })).1, "done");
        assert_eq!(notes(&daemon, subject)[0]["text"], "[redacted:text ~32]");
    }
    let rows = daemon.database().all::<String>("SELECT text || quote(key_digest) FROM job_notes").join("\n");
    assert!(!rows.contains("c4nary"), "{rows}");
}

/// Lets go of what ended jobs are looked at for, and of the jobs themselves where they are to be forgotten, as if years had
/// gone by on a stopped daemon's database.
fn retain_for_years(daemon: &Daemon, forget: bool) {
    let directory = daemon.data();
    let key_file = directory.join("leasehold.key");
    let options = StoreOptions {
        directory,
        key_file,
        durability: Durability::Full,
        wal_autocheckpoint_pages: 1_000,
        batch_time: StoreOptions::BATCH_TIME,
    };
    let store = Store::open(&options).unwrap();
    let far_ms = 1 << 50;
    let forget_ended_before_ms = if forget { far_ms } else { 0 };
    let retention = Retention { forget_ended_before_ms, trim_ended_before_ms: far_ms, ended_jobs_max: 0 };
    block_on(async { while store.retain(retention).await.unwrap() {} });
    store.close();
}

#[test]
fn i4_notes_are_kept_as_long_as_their_jobs_record_and_none_is_made_after_it() {
    for forget in [false, true] {
        let mut daemon = start();
        let subject = subject(&daemon);
        assert_eq!(run(&daemon, &json!({ "notes": [note(subject, "a")] })).1, "done");
        assert_eq!(notes(&daemon, subject).len(), 1);
        daemon.terminate();
        retain_for_years(&daemon, forget);
        daemon.run();
        assert_eq!(daemon.database().one::<i64>("SELECT count(*) FROM job_notes"), 0, "forgotten: {forget}");
        assert_eq!(run(&daemon, &json!({ "notes": [note(subject, "b")] })).1, "done");
        daemon.wait_for_log("a note was left out");
        assert_eq!(daemon.database().one::<i64>("SELECT count(*) FROM job_notes"), 0);
    }
}
