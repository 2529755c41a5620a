//! O6, Q11 and Q17: a disk that has little room, and one that has none.

use std::fs;

use serde_json::json;

use crate::{
    support::{
        ConfigText, Daemon, guest,
        mounts::{Mounted, in_own_mounts},
    },
    told::{UNWRITTEN, echo, ends, get, holding_the_first, lines_of_trouble, send_and_break},
};

/// Enqueues until a job is refused; answers the ids of those that were taken, and the code of the refusal.
#[track_caller]
fn enqueue_until_refused(daemon: &Daemon, payload_bytes: usize) -> (Vec<i64>, String) {
    let payload = json!({ "do": "echo", "payload": "x".repeat(payload_bytes) }).to_string();
    let file = daemon.directory().join("payload.json");
    fs::write(&file, payload).unwrap();
    let from_file = format!("@{}", file.display());
    let mut taken = Vec::new();
    for _ in 0..2_000 {
        let answer = daemon.ask(&["enqueue", "later", "--payload", &from_file]);
        if answer.status != 0 {
            return (taken, answer.refusal());
        }
        taken.push(answer.json()["id"].as_i64().unwrap());
    }
    panic!("the disk never filled up");
}

#[test]
fn o6_below_the_reserve_nothing_is_enqueued_and_what_runs_goes_on() {
    in_own_mounts("full::o6_below_the_reserve_nothing_is_enqueued_and_what_runs_goes_on", || {
        let server = holding_the_first(1);
        let config = ConfigText::default()
            .reaching(server.url())
            .queue("disk_reserve = \"16MiB\"")
            .kind("heartbeat = \"100ms\"")
            .another_kind("dies", "attempts = 1");
        let mut daemon = Daemon::prepare(&config);
        let disk = Mounted::tmpfs(&daemon, 64);
        daemon.run();
        daemon.push_live(&guest("misbehave@1.0.0"));
        let running = daemon.enqueue("job", &get(&server), &[]);
        let dying = daemon.enqueue("dies", &json!({ "do": "panic" }), &["--delay", "2s"]);
        server.wait_for(1);
        let ballast = daemon.data().join("ballast");
        fs::write(&ballast, vec![0; 50 << 20]).unwrap();
        let refused = daemon.ask(&["enqueue", "job", "--payload", "{}"]);
        assert_eq!(refused.refusal(), "disk_low");
        assert!(refused.stderr.contains("disk_reserve under [queue]"), "{}", refused.stderr);
        // The reserve is for this: a death and its letter, heartbeats and a settlement.
        assert_eq!(daemon.wait(dying), "dead");
        server.let_go();
        assert_eq!(daemon.wait(running), "done");
        assert_eq!(ends(&daemon, running), ["done"]);
        fs::remove_file(ballast).unwrap();
        let after = daemon.enqueue("job", &echo(), &[]);
        assert_eq!(daemon.wait(after), "done");
        daemon.database().check();
        drop(disk);
    });
}

#[test]
fn q11_on_a_full_disk_verdicts_are_held_and_nothing_that_was_answered_is_lost() {
    in_own_mounts("full::q11_on_a_full_disk_verdicts_are_held_and_nothing_that_was_answered_is_lost", || {
        let server = holding_the_first(2);
        let config = ConfigText::default()
            .reaching(server.url())
            .queue("disk_reserve = 0")
            .queue("wal_autocheckpoint_pages = 100")
            .kind("visibility_timeout = \"10m\"")
            .kind("heartbeat = \"1s\"")
            .kind("deadline = \"5m\"")
            .kind("attempts = 1")
            .another_kind("later", "");
        let mut daemon = Daemon::prepare(&config);
        let disk = Mounted::tmpfs(&daemon, 24);
        daemon.run();
        daemon.push_live(&guest("misbehave@1.0.0"));
        daemon.ask(&["kinds", "pause", "later"]);
        let ends_well = daemon.enqueue("job", &get(&server), &[]);
        let dies = daemon.enqueue("job", &send_and_break(&server), &[]);
        server.wait_for(2);
        let ballast = disk.fill();
        let (mut taken, code) = enqueue_until_refused(&daemon, 64 << 10);
        assert_eq!(code, "disk_full");
        let (small, code) = enqueue_until_refused(&daemon, 1);
        assert_eq!(code, "disk_full");
        taken.extend(small);
        server.let_go();
        daemon.wait_for_log_lines(2, UNWRITTEN);
        assert_eq!(
            (daemon.job(ends_well)["state"].clone(), daemon.job(dies)["state"].clone()),
            (json!("leased"), json!("leased"))
        );
        fs::remove_file(ballast).unwrap();
        // By itself, from what is held in memory: neither handler runs again.
        assert_eq!((daemon.wait(ends_well), daemon.wait(dies)), ("done".into(), "dead".into()));
        assert_eq!(
            (ends(&daemon, ends_well), ends(&daemon, dies)),
            (vec!["done".to_owned()], vec!["failed".to_owned()])
        );
        assert_eq!(daemon.dead_letter(dies)["cause"], "poison");
        assert_eq!(server.received().len(), 2);
        daemon.ask(&["kinds", "resume", "later"]);
        for job in taken {
            assert_eq!(daemon.wait(job), "done");
        }
        assert!(daemon.readiness().is_ok());
        daemon.database().check();
        let trouble = lines_of_trouble(&daemon);
        assert!(trouble < 100, "{trouble} lines of trouble:\n{}", daemon.log());
        drop(disk);
    });
}

#[test]
fn o6_a_daemon_that_is_killed_on_a_full_disk_goes_on_once_there_is_room() {
    in_own_mounts("full::o6_a_daemon_that_is_killed_on_a_full_disk_goes_on_once_there_is_room", || {
        let server = holding_the_first(1);
        let config = ConfigText::default()
            .reaching(server.url())
            .queue("disk_reserve = 0")
            .kind("visibility_timeout = \"10m\"")
            .another_kind("later", "");
        let mut daemon = Daemon::prepare(&config);
        let disk = Mounted::tmpfs(&daemon, 24);
        daemon.run();
        daemon.push_live(&guest("misbehave@1.0.0"));
        daemon.ask(&["kinds", "pause", "later"]);
        let running = daemon.enqueue("job", &get(&server), &[]);
        server.wait_for(1);
        let ballast = disk.fill();
        let (mut taken, _) = enqueue_until_refused(&daemon, 64 << 10);
        taken.extend(enqueue_until_refused(&daemon, 1).0);
        daemon.kill();
        // A start on the full disk serves what can be read, and gives the lease back once that can be written.
        daemon.run();
        assert!(["leased", "waiting", "ready"].contains(&daemon.job(running)["state"].as_str().unwrap()));
        fs::remove_file(ballast).unwrap();
        daemon.ask(&["kinds", "resume", "later"]);
        assert_eq!(daemon.wait(running), "done");
        for job in taken {
            assert_eq!(daemon.wait(job), "done");
        }
        daemon.database().check();
        drop(disk);
    });
}
