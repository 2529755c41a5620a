//! A bulk replay whose daemon is killed: it goes on by itself, and no member is replayed twice or lost.

use std::fs;

use serde_json::json;

use crate::support::{ConfigText, Daemon, daemon::PATIENCE};

const LETTERS: i64 = 120;

/// A daemon with many dead letters, whose replays die again.
fn with_dead_letters() -> Daemon {
    let config = ConfigText::default().kind("attempts = 1");
    let daemon = Daemon::with_misbehave(&config);
    let act = json!({ "do": "fail", "as": "retry", "class": "handler.told" });
    let line = json!({ "kind": "job", "payload": act }).to_string();
    let path = daemon.directory().join("jobs.jsonl");
    fs::write(&path, vec![line; usize::try_from(LETTERS).unwrap()].join("\n")).unwrap();
    daemon.ask(&["enqueue", "--file", path.to_str().unwrap()]);
    for job in daemon.database().all::<i64>("SELECT id FROM jobs UNION ALL SELECT id FROM ended_jobs") {
        assert_eq!(daemon.wait(job), "dead");
    }
    daemon
}

fn start(daemon: &Daemon) -> crate::support::Answer {
    daemon.ask(&["dlq", "replay", "--kind", "job", "--reason", "mended", "--yes"])
}

/// Waits until every member had its turn and every replayed job has ended, and checks what must hold.
fn finish(daemon: &Daemon, what: &str) {
    let seconds = format!("{}s", PATIENCE.as_secs());
    let waited = daemon.ask(&["replays", "wait", "1", "--timeout", &seconds]);
    assert_eq!(waited.status, 5, "{what}: they all die again: {waited:?}");
    let shown = daemon.ask(&["replays", "show", "1"]).json();
    assert_eq!((&shown["state"], &shown["settled"]), (&json!("done"), &json!(true)), "{what}");
    let counts = &shown["counts"];
    let told = ["members", "replayed", "dead"].map(|name| counts[name].as_i64().unwrap());
    assert_eq!(told, [LETTERS; 3], "{what}: {counts}");
    let database = daemon.database();
    database.check();
    let replays = database.one::<i64>("SELECT count(*) FROM replays");
    let letters = database.one::<i64>("SELECT count(DISTINCT dead_letter_id) FROM replays WHERE bulk_replay_id = 1");
    let audited = database.one::<i64>("SELECT count(*) FROM audit WHERE action = 'dead_letter.replay'");
    assert_eq!((replays, letters, audited), (LETTERS, LETTERS, LETTERS), "{what}");
}

#[test]
fn r6_a_bulk_replay_goes_on_after_a_kill_and_replays_no_member_twice() {
    // Members go in batches of 25; what was durable before the batch of the kill has to be durable after it.
    for (point, durable) in [
        ("bulk_replay.turn=kill", 0),
        ("bulk_replay.turn=kill@40", 25),
        ("bulk_replay.turn=kill@120", 100),
        ("bulk_replay.batch_done=kill", 25),
        ("bulk_replay.batch_done=kill@3", 75),
    ] {
        let mut daemon = with_dead_letters();
        daemon.terminate();
        daemon.set_crash_points(point);
        daemon.run();
        // Whether the start's answer came through before the kill is not the matter; it was durable before any turn.
        start(&daemon);
        daemon.wait_for_exit();
        let replayed = daemon.database().one::<i64>("SELECT replayed FROM bulk_replays");
        assert!((durable..LETTERS).contains(&replayed), "{point}: {replayed}");
        daemon.set_crash_points("");
        daemon.run();
        finish(&daemon, point);
    }
}

#[test]
fn r6_a_kill_in_the_start_leaves_no_bulk_replay_or_a_whole_one() {
    let mut daemon = with_dead_letters();
    daemon.terminate();
    daemon.set_crash_points("bulk_replay.started=kill");
    daemon.run();
    start(&daemon);
    daemon.wait_for_exit();
    daemon.set_crash_points("");
    daemon.run();
    assert_eq!(daemon.database().one::<i64>("SELECT count(*) FROM bulk_replays"), 0);
    assert_eq!(daemon.database().one::<i64>("SELECT count(*) FROM bulk_replay_members"), 0);
    start(&daemon).json();
    finish(&daemon, "a second start");
}
