//! D4: originals are sealed with a key that lies outside the database; without the right key nothing is taken in, leased
//! or overwritten, and reads go on.

use std::{fs, path::PathBuf};

use rusqlite::Connection;
use serde_json::json;

use crate::{
    letters::{attempts, config, id, letter_of, refused_replay, replay, told},
    support::{Daemon, Reply, Server, guest},
};

fn key_file(daemon: &Daemon) -> PathBuf {
    daemon.data().join("leasehold.key")
}

/// A stopped daemon with a paused kind, of which one job is ready, one done and one dead.
fn with_jobs() -> (Daemon, [i64; 3]) {
    let mut daemon = Daemon::with_misbehave(&config());
    let done = daemon.enqueue("job", &json!({ "do": "echo" }), &[]);
    assert_eq!(daemon.wait(done), "done");
    let dead = daemon.enqueue("job", &told("poison", "shop.defect"), &[]);
    assert_eq!(daemon.wait(dead), "dead");
    daemon.ask(&["kinds", "pause", "job"]).json();
    let ready = daemon.enqueue("job", &json!({ "do": "echo" }), &["--key", "order-1"]);
    daemon.terminate();
    (daemon, [ready, done, dead])
}

#[track_caller]
fn assert_serves_reads_alone(daemon: &Daemon, [ready, done, dead]: [i64; 3]) {
    daemon.wait_for_log("key_unavailable");
    for arguments in [&["jobs", "ls"][..], &["dlq", "ls"], &["kinds", "ls"], &["handlers", "ls"], &["audit", "ls"]] {
        daemon.ask(arguments).json();
    }
    let kinds = daemon.ask(&["kinds", "ls"]).json();
    assert!(kinds["items"][0]["nothing_runs"].as_str().is_some_and(|why| why.contains("sealing key")), "{kinds}");
    assert_eq!(daemon.job(done)["state"], "done");
    assert_eq!(daemon.dead_letter(dead)["cause"], "poison");
    assert!(daemon.metrics().contains("leasehold_queue_jobs"));
    let enqueued = daemon.ask(&["enqueue", "job", "--payload", r#"{"do":"echo"}"#, "--key", "order-2"]);
    assert_eq!((enqueued.status, enqueued.refusal()), (1, "key_unavailable".into()));
    let letter = id(&daemon.dead_letter(dead));
    let replayed = daemon.ask(&["dlq", "replay", &letter, "--reason", "mended", "--override-reason", "as well"]);
    assert_eq!(replayed.refusal(), "key_unavailable");
    assert_ne!(daemon.job(ready)["state"], "leased");
    assert!(!daemon.log().contains("claiming failed"), "it tried to lease");
}

#[test]
fn d4_without_the_right_key_reads_go_on_and_nothing_is_enqueued_leased_or_overwritten() {
    let other_key = fs::read(key_file(&with_jobs().0)).unwrap();
    let (mut daemon, jobs) = with_jobs();
    let key = fs::read(key_file(&daemon)).unwrap();
    for wrong in [None, Some(other_key), Some(b"leasehold-key-1 half".to_vec()), Some(Vec::new())] {
        fs::remove_file(key_file(&daemon)).unwrap();
        if let Some(wrong) = &wrong {
            fs::write(key_file(&daemon), wrong).unwrap();
        }
        daemon.run();
        // From here on nothing but the key keeps the job from being leased.
        daemon.ask(&["kinds", "resume", "job"]).json();
        assert_serves_reads_alone(&daemon, jobs);
        daemon.terminate();
        assert_eq!(fs::read(key_file(&daemon)).ok(), wrong, "the key file was written");
        fs::write(key_file(&daemon), &key).unwrap();
    }
    daemon.run();
    assert_eq!(daemon.wait(jobs[0]), "done");
    assert_eq!(attempts(&daemon.job(jobs[0])), 1, "it was leased without a key");
    let sent = daemon.ask(&["enqueue", "job", "--payload", r#"{"do":"echo"}"#, "--key", "order-2"]).json();
    assert_eq!(sent["duplicate"], false, "a job went in without a key");
    daemon.database().check();
}

#[test]
fn d4_a_lease_of_the_process_before_waits_for_the_key() {
    let server = Server::answering(|_, number| {
        let reply = Reply::status(200);
        if number == 0 { Reply::Held(Box::new(reply)) } else { reply }
    });
    let mut daemon = Daemon::with_misbehave(&config().reaching(server.url()));
    let job = daemon.enqueue("job", &json!({ "do": "get", "url": server.url() }), &[]);
    server.wait_for(1);
    daemon.kill();
    let key = fs::read(key_file(&daemon)).unwrap();
    fs::remove_file(key_file(&daemon)).unwrap();
    daemon.run();
    assert_eq!(daemon.job(job)["state"], "leased");
    assert!(daemon.terminate().success());
    fs::write(key_file(&daemon), key).unwrap();
    daemon.run();
    assert_eq!(daemon.wait(job), "done");
    let shown = daemon.job(job);
    let ends: Vec<_> = shown["attempts"].as_array().unwrap().iter().map(|attempt| &attempt["ended_as"]).collect();
    assert_eq!(ends, [&json!("daemon_stopped"), &json!("done")]);
    daemon.database().check();
}

#[test]
fn d4_a_new_database_beside_an_old_key_takes_the_key_up() {
    let (mut daemon, _) = with_jobs();
    let key = fs::read(key_file(&daemon)).unwrap();
    for file in ["leasehold.db", "leasehold.db-wal", "leasehold.db-shm"] {
        let _ = fs::remove_file(daemon.data().join(file));
    }
    daemon.run();
    daemon.enqueue("job", &json!({ "do": "echo" }), &[]);
    assert_eq!(fs::read(key_file(&daemon)).unwrap(), key);
}

#[test]
fn d4_a_sealed_payload_that_was_moved_to_another_job_does_not_open() {
    let mut daemon = Daemon::start(&config().kind("attempts = 1"));
    let jobs = [1, 2].map(|number| daemon.enqueue("job", &json!({ "do": "echo", "payload": number }), &[]));
    daemon.terminate();
    let connection = Connection::open(daemon.data().join("leasehold.db")).unwrap();
    let moved = connection.execute(
        "UPDATE jobs SET payload_sealed = (SELECT payload_sealed FROM jobs WHERE id = ?2) WHERE id = ?1",
        [jobs[0], jobs[1]],
    );
    assert_eq!(moved, Ok(1));
    drop(connection);
    daemon.run();
    daemon.push_live(&guest("misbehave@1.0.0"));
    assert_eq!(daemon.wait(jobs[1]), "done");
    assert_eq!(daemon.wait(jobs[0]), "dead");
    let letter = daemon.dead_letter(jobs[0]);
    assert_eq!((&letter["cause"], &letter["error_class"]), (&json!("poison"), &json!("payload.invalid")));
    assert!(letter["redacted_payload"].as_str().unwrap().starts_with("\"[redacted"), "{letter}");
}

#[test]
fn d4_a_kind_can_forbid_keeping_the_original() {
    let daemon = Daemon::with_misbehave(&config().kind("keep_original = false"));
    let letter = letter_of(&daemon, "job", &told("rejected", "shop.closed"));
    assert_eq!(letter["original_kept"], false);
    assert_eq!(daemon.database().one::<i64>("SELECT count(*) FROM dead_letters WHERE payload_sealed IS NOT NULL"), 0);
    let (code, _) = refused_replay(&daemon, &letter, &[]);
    assert_eq!(code, "original_not_kept");
    let job = replay(&daemon, &letter, &["--payload", r#"{"do":"echo"}"#]);
    assert_eq!(job["state"], "done");
}
