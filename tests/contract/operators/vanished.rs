//! Callers that go away before they are answered: what the queue has done for them has all of its consequences.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold_api::Timestamp;
use rusqlite::Connection;
use serde_json::json;

use crate::{
    raw_http::{begin, send},
    support::{ConfigText, Daemon, Reply, Server},
};

/// Posts something and goes away while the queue is kept from doing it, and lets the queue go on once the daemon has
/// noticed that.
fn post_and_vanish(daemon: &Daemon, path: &str, body: &str) {
    let other = Connection::open(daemon.data().join("leasehold.db")).unwrap();
    other.busy_timeout(Duration::from_secs(30)).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    // Answered by the daemon's one thread, so what came before it has been seen by then.
    let look = || assert_eq!(send(daemon, "GET", "/v1/kinds", &[], "").0, 200);
    let stream = begin(daemon, "POST", path, &[], body.as_bytes());
    look();
    look();
    drop(stream);
    look();
    look();
    other.execute_batch("ROLLBACK").unwrap();
}

#[test]
fn q1_a_scheduled_job_runs_at_its_time_also_when_its_sender_went_away_unanswered() {
    let daemon = Daemon::with_misbehave(&ConfigText::default());
    let first = daemon.enqueue("job", &json!({ "do": "echo" }), &[]);
    assert_eq!(daemon.wait(first), "done");
    let now_ms = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap();
    let body =
        json!({ "kind": "job", "payload": { "do": "echo" }, "run_at": Timestamp::from_ms(now_ms + 3_000).to_string() });
    post_and_vanish(&daemon, "/v1/jobs", &body.to_string());
    // If it were due by now, it would run by the bell of the job after it.
    let vanished_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
    assert!(vanished_ms < u128::from((now_ms + 3_000).unsigned_abs()), "the sender took too long to go away");
    // It is behind the other one in the queue of the writer, and is answered.
    let second = daemon.enqueue("job", &json!({ "do": "echo" }), &[]);
    let all = "SELECT id FROM jobs UNION SELECT id FROM ended_jobs";
    let ids = daemon.database().all::<i64>(all);
    let [scheduled] = ids.into_iter().filter(|id| ![first, second].contains(id)).collect::<Vec<_>>()[..] else {
        panic!("the job of the sender that went away is not there");
    };
    assert_eq!(daemon.wait(scheduled), "done");
}

#[test]
fn q16_a_guest_is_stopped_also_when_who_cancelled_its_job_went_away_unanswered() {
    let server = Server::answering(|_, _| Reply::Held(Box::new(Reply::status(200))));
    let daemon = Daemon::with_misbehave(&ConfigText::default().reaching(server.url()).kind("deadline = \"1h\""));
    let job = daemon.enqueue("job", &json!({ "do": "get", "url": server.url() }), &[]);
    server.wait_for(1);
    post_and_vanish(&daemon, &format!("/v1/jobs/{job}/cancel"), "{}");
    assert_eq!(daemon.wait(job), "cancelled");
}
