//! Q1 and Q2: what was answered is durable, and a key makes one job.

use serde_json::json;

use crate::{
    support::{ConfigText, Daemon},
    told::{count, echo, fail},
};

/// The exit status of a command whose daemon went away or was not there.
const UNREACHABLE: i32 = 3;

#[test]
fn q1_an_answered_enqueue_survives_a_kill() {
    let mut daemon = Daemon::start(&ConfigText::default());
    let job = daemon.enqueue("job", &echo(), &["--key", "order-1"]);
    daemon.kill_and_run();
    assert_eq!(daemon.job(job)["state"], "ready");
    let again = daemon.ask(&["enqueue", "job", "--payload", r#"{"do":"echo"}"#, "--key", "order-1"]).json();
    assert_eq!((&again["id"], &again["duplicate"]), (&json!(job), &json!(true)));
    daemon.database().check();
}

/// Whether there is a job after a kill at this point, whose client was not answered.
fn jobs_after_a_kill_at(point: &str) -> i64 {
    let mut daemon = Daemon::prepare(&ConfigText::default());
    daemon.set_crash_points(&format!("{point}=kill"));
    daemon.run();
    let arguments = ["enqueue", "job", "--payload", r#"{"do":"echo"}"#, "--key", "order-1"];
    let unanswered = daemon.ask(&arguments);
    assert_eq!(unanswered.status, UNREACHABLE, "{}{}", unanswered.stdout, unanswered.stderr);
    daemon.wait_for_exit();
    daemon.set_crash_points("");
    daemon.run();
    let jobs = daemon.database().one("SELECT count(*) FROM jobs");
    let again = daemon.ask(&arguments).json();
    assert_eq!(again["duplicate"], jobs == 1);
    assert_eq!(daemon.database().one::<i64>("SELECT count(*) FROM jobs"), 1);
    daemon.database().check();
    jobs
}

#[test]
fn q1_a_kill_before_the_commit_leaves_nothing_and_the_retry_makes_one_job() {
    assert_eq!(jobs_after_a_kill_at("enqueue.inserted"), 0);
}

#[test]
fn q1_a_kill_after_the_commit_leaves_the_job_and_the_retry_makes_no_second() {
    assert_eq!(jobs_after_a_kill_at("enqueue.committed"), 1);
}

#[test]
fn q1_a_kill_at_any_commit_loses_nothing_that_was_answered() {
    // The first commits may be the start's own; from the fourth on they are of the jobs that are sent.
    for point in ["writer.before_commit", "writer.after_commit"] {
        for times in [4, 5, 8] {
            let mut daemon = Daemon::prepare(&ConfigText::default());
            daemon.set_crash_points(&format!("{point}=kill@{times}"));
            daemon.run();
            let send = |daemon: &Daemon, number: i64| {
                daemon.ask(&["enqueue", "job", "--payload", "{}", "--key", &format!("order-{number}")])
            };
            let mut answered = Vec::new();
            let unanswered = loop {
                let number = i64::try_from(answered.len()).unwrap();
                let answer = send(&daemon, number);
                if answer.status != 0 {
                    break number;
                }
                answered.push(answer.json()["id"].as_i64().unwrap());
            };
            daemon.wait_for_exit();
            daemon.set_crash_points("");
            daemon.run();
            for (number, id) in (0..).zip(answered) {
                let again = send(&daemon, number).json();
                assert_eq!((&again["id"], &again["duplicate"]), (&json!(id), &json!(true)), "{point}@{times}");
            }
            send(&daemon, unanswered).json();
            assert_eq!(daemon.database().one::<i64>("SELECT count(*) FROM jobs"), unanswered + 1);
            daemon.database().check();
        }
    }
}

#[test]
fn q2_a_key_gives_the_first_job_back_also_when_it_has_ended() {
    let daemon = Daemon::with_misbehave(&ConfigText::default().kind("attempts = 1"));
    let done = daemon.enqueue("job", &echo(), &["--key", "done"]);
    let dead = daemon.enqueue("job", &fail(), &["--key", "dead"]);
    assert_eq!((daemon.wait(done).as_str(), daemon.wait(dead).as_str()), ("done", "dead"));
    for (key, payload, first, state) in [("done", echo(), done, "done"), ("dead", fail(), dead, "dead")] {
        let again = daemon.ask(&["enqueue", "job", "--payload", &payload.to_string(), "--key", key]).json();
        assert_eq!(again, json!({ "id": first, "duplicate": true, "state": state }));
    }
    assert_eq!(count(&daemon, "leasehold_duplicates_prevented_total", &[("what", "job")]), 2);
    assert_eq!(count(&daemon, "leasehold_jobs_enqueued_total", &[]), 2);
}

#[test]
fn q2_the_same_key_with_another_payload_is_refused() {
    let daemon = Daemon::start(&ConfigText::default().another_kind("other", ""));
    let first = daemon.enqueue("job", &echo(), &["--key", "order-1"]);
    let other = daemon.ask(&["enqueue", "job", "--payload", r#"{"do":"count"}"#, "--key", "order-1"]);
    assert_eq!(other.refusal(), "key_conflict");
    assert!(other.stderr.contains(&format!("job {first}")), "{}", other.stderr);
    // A key is one of its kind: another kind's jobs have keys of their own.
    let of_other_kind = daemon.enqueue("other", &echo(), &["--key", "order-1"]);
    assert_ne!(of_other_kind, first);
    assert_eq!(daemon.database().one::<i64>("SELECT count(*) FROM jobs"), 2);
}
