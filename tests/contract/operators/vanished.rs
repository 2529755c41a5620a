//! Callers that go away before they are answered: what the queue has done for them has all of its consequences.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold_api::Timestamp;
use rusqlite::Connection;
use serde_json::json;

use crate::{
    raw_http::{begin, send},
    support::{ConfigText, Daemon},
};

/// Posts something and goes away while the queue is kept from doing it. By the return the daemon has noticed that.
fn post_and_vanish(daemon: &Daemon, path: &str, body: &str) {
    // Answered by the daemon's one thread, so what came before it has been seen by then.
    let look = || assert_eq!(send(daemon, "GET", "/v1/kinds", &[], "").0, 200);
    let stream = begin(daemon, "POST", path, &[], body.as_bytes());
    look();
    look();
    drop(stream);
    look();
    look();
}

#[test]
fn q1_a_scheduled_job_runs_at_its_time_also_when_its_sender_went_away_unanswered() {
    let daemon = Daemon::with_misbehave(&ConfigText::default());
    let first = daemon.enqueue("job", &json!({ "do": "echo" }), &[]);
    assert_eq!(daemon.wait(first), "done");
    let now_ms = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap();
    let body =
        json!({ "kind": "job", "payload": { "do": "echo" }, "run_at": Timestamp::from_ms(now_ms + 3_000).to_string() });
    let other = Connection::open(daemon.data().join("leasehold.db")).unwrap();
    other.busy_timeout(Duration::from_secs(30)).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    post_and_vanish(&daemon, "/v1/jobs", &body.to_string());
    other.execute_batch("ROLLBACK").unwrap();
    // It is behind the other one in the queue of the writer, and is answered.
    let second = daemon.enqueue("job", &json!({ "do": "echo" }), &[]);
    let scheduled = daemon.database().one::<i64>(&format!("SELECT id FROM jobs WHERE id NOT IN ({first}, {second})"));
    assert_eq!(daemon.wait(scheduled), "done");
}
