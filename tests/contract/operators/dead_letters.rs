//! D5: a dead letter leaves only by an operator's replay or discard, each of which is in the audit log.

use std::thread;

use leasehold_store::{Durability, Retention, Store, StoreOptions};
use serde_json::{Value, json};

use crate::{
    letters::{attempts, config, id, letter_of, refused_replay, replay, told},
    support::{Answer, Daemon},
};

/// What is in the audit log about a dead letter, as (action, actor, detail).
fn audited(daemon: &Daemon, letter: &Value) -> Vec<(String, String, Value)> {
    let audit = daemon.ask(&["audit", "ls"]).json();
    let entries = audit["items"].as_array().unwrap().iter();
    // Other things have ids of their own, which may be the same.
    let is_of_letters = |entry: &&Value| {
        let operation = entry["detail"]["operation"].as_str().unwrap_or_default();
        entry["action"].as_str().unwrap().starts_with("dead_letter") || operation.ends_with("DeadLetter")
    };
    let about = entries.filter(|entry| entry["subject"] == id(letter).as_str()).filter(is_of_letters);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    about.map(|entry| (text(&entry["action"]), text(&entry["actor"]), entry["detail"].clone())).collect()
}

#[test]
fn d5_a_discarded_dead_letter_is_closed_audited_and_cant_be_replayed() {
    let daemon = Daemon::with_misbehave(&config());
    let letter = letter_of(&daemon, "job", &told("rejected", "shop.closed"));
    let job = letter["job_id"].as_i64().unwrap();
    let unreasoned = daemon.ask(&["dlq", "discard", &id(&letter), "--reason", " "]);
    assert_eq!(unreasoned.refusal(), "reason_missing");
    assert_eq!(daemon.dead_letter(job)["state"], "open");
    daemon.ask(&["dlq", "discard", &id(&letter), "--reason", "the shop is gone"]).json();

    assert_eq!(daemon.job(job)["state"], "discarded");
    let shown = daemon.ask(&["dlq", "show", &id(&letter)]).json();
    assert_eq!((&shown["state"], &shown["closed_by"]), (&json!("discarded"), &json!("root")));
    let audited = audited(&daemon, &letter);
    assert_eq!(audited.len(), 2);
    assert_eq!((&*audited[0].0, &*audited[0].1), ("dead_letter.discard", "root"));
    assert_eq!(audited[0].2["reason"], "the shop is gone");
    assert_eq!((&*audited[1].0, &audited[1].2["code"]), ("act.refused", &json!("reason_missing")));
    assert_eq!(refused_replay(&daemon, &letter, &[]).0, "already_discarded");
    let again = daemon.ask(&["dlq", "discard", &id(&letter), "--reason", "again"]);
    assert_eq!(again.refusal(), "already_discarded");
    assert_eq!(daemon.ask(&["dlq", "ls"]).json()["items"], json!([]));
    assert_eq!(daemon.ask(&["dlq", "ls", "--state", "discarded"]).json()["items"][0]["id"], letter["id"]);
    daemon.database().check();
}

#[test]
fn d5_a_replay_is_audited_with_its_target() {
    let daemon = Daemon::with_misbehave(&config());
    let letter = letter_of(&daemon, "job", &told("rejected", "shop.closed"));
    replay(&daemon, &letter, &["--payload", r#"{"do":"echo"}"#]);
    let audited = audited(&daemon, &letter);
    assert_eq!(audited.len(), 1);
    assert_eq!((&*audited[0].0, &*audited[0].1), ("dead_letter.replay", "root"));
    let detail = &audited[0].2;
    assert_eq!((&detail["reason"], &detail["version"]), (&json!("mended"), &json!("misbehave@1.0.0")));
    assert_eq!((&detail["digest"], &detail["payload_corrected"]), (&letter["digest"], &json!(true)));
}

#[test]
fn r6_of_many_replays_at_once_exactly_one_wins() {
    let mut daemon = Daemon::with_misbehave(&config());
    let letter = letter_of(&daemon, "job", &told("rejected", "shop.closed"));
    daemon.ask(&["kinds", "pause", "job"]).json();
    let answers: Vec<Answer> = thread::scope(|scope| {
        let ask = || daemon.ask(&["dlq", "replay", &id(&letter), "--reason", "mended"]);
        let threads: Vec<_> = (0..6).map(|_| scope.spawn(ask)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let (won, lost): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| answer.status == 0);
    assert_eq!(won.len(), 1, "{answers:?}");
    assert!(lost.iter().all(|answer| answer.refusal() == "already_replayed"), "{answers:?}");
    let shown = daemon.job(letter["job_id"].as_i64().unwrap());
    assert_eq!((&shown["state"], shown["replays"].as_array().unwrap().len()), (&json!("ready"), 1));
    // Equal refusals are one row and a count, which the end of the daemon writes.
    daemon.terminate();
    daemon.run();
    let acts = audited(&daemon, &letter);
    let replays = acts.iter().filter(|(action, ..)| action == "dead_letter.replay").count();
    let refused = acts.iter().filter(|(.., detail)| detail["code"] == "already_replayed");
    let refused: u64 = refused.map(|(.., detail)| detail["count"].as_u64().unwrap()).sum();
    assert_eq!((replays, refused), (1, 5), "{acts:?}");
}

/// Carries out retention on a stopped daemon's database as if years had gone by.
pub fn retain_for_years(daemon: &Daemon) {
    let directory = daemon.data();
    let store = Store::open(&StoreOptions {
        key_file: directory.join("leasehold.key"),
        directory,
        durability: Durability::Full,
        wal_autocheckpoint_pages: 1_000,
        batch_time: StoreOptions::BATCH_TIME,
    });
    let store = store.unwrap();
    let far_ms = 1 << 50;
    let retention = Retention { forget_ended_before_ms: far_ms, trim_ended_before_ms: far_ms, ended_jobs_max: 0 };
    crate::support::server::block_on(async { while store.retain(retention).await.unwrap() {} });
    store.close();
}

#[test]
fn d5_retention_leaves_open_dead_letters_and_the_audit_log() {
    let mut daemon = Daemon::with_misbehave(&config());
    let letter = letter_of(&daemon, "job", &told("rejected", "shop.closed"));
    let discarded = letter_of(&daemon, "job", &told("rejected", "shop.closed"));
    daemon.ask(&["dlq", "discard", &id(&discarded), "--reason", "the shop is gone"]).json();
    let done = daemon.enqueue("job", &json!({ "do": "echo" }), &[]);
    assert_eq!(daemon.wait(done), "done");
    let audit = daemon.ask(&["audit", "ls"]).json()["items"].clone();
    daemon.terminate();
    retain_for_years(&daemon);
    daemon.run();
    assert_eq!(daemon.ask(&["jobs", "show", &done.to_string()]).refusal(), "not_found", "nothing was forgotten at all");
    let job = letter["job_id"].as_i64().unwrap();
    let kept = daemon.dead_letter(job);
    assert_eq!((&kept["id"], attempts(&kept)), (&letter["id"], 1));
    let kept_audit = daemon.ask(&["audit", "ls"]).json()["items"].clone();
    assert_eq!(kept_audit, audit);
    let job = replay(&daemon, &kept, &["--payload", r#"{"do":"echo"}"#]);
    assert_eq!(job["state"], "done");
    daemon.database().check();
}
