//! I4: jobs and values that a guest hands to the host become visible once, with its job's success.

use serde_json::{Value, json};

use crate::{
    helpers::{done, replay_with},
    support::{ConfigText, Daemon, guest},
};

/// A kind for the jobs that guests enqueue.
fn config() -> ConfigText {
    ConfigText::default().kind("attempts = 2").another_kind("child", "")
}

/// A job that stores a value and enqueues another job, in a step or outside of one.
fn keeping(in_step: bool, then: &str) -> Value {
    let set = json!([{ "op": "set", "store": "s", "key": "k", "value": "kept" }]);
    let child = json!([{ "kind": "child", "payload": { "do": "count" } }]);
    if in_step {
        json!({ "do": "step", "name": "s", "kv": set, "enqueue": child, "then": then })
    } else {
        json!({ "do": "enqueue", "jobs": child, "then": then })
    }
}

/// How many jobs of the kind `child` there are, or were.
fn children(daemon: &Daemon) -> i64 {
    daemon.database().one(
        "SELECT (SELECT count(*) FROM jobs WHERE kind = 'child') + (SELECT count(*) FROM ended_jobs WHERE kind = 'child')",
    )
}

/// The stored value as another job sees it.
fn value(daemon: &Daemon) -> Value {
    done(daemon, &json!({ "do": "kv", "ops": [{ "op": "get", "store": "s", "key": "k" }] }))[0].clone()
}

#[test]
fn i4_what_a_step_kept_becomes_visible_once_with_the_success_of_whichever_attempt() {
    let daemon = Daemon::with_misbehave(&config());
    let job = daemon.enqueue("job", &keeping(true, "retry"), &[]);
    assert_eq!(daemon.wait(job), "dead");
    assert_eq!(daemon.job(job)["steps"][0]["state"], "applied");
    assert_eq!((children(&daemon), value(&daemon)), (0, Value::Null));
    // The replay's attempt does not run the step; what the first attempt kept in it becomes real.
    assert_eq!(replay_with(&daemon, job, &keeping(true, "done")), "done");
    assert_eq!(daemon.result(job)["has_run"], false);
    assert_eq!((children(&daemon), value(&daemon)), (1, json!("kept")));
    let child = "SELECT id FROM jobs WHERE kind = 'child' UNION SELECT id FROM ended_jobs WHERE kind = 'child'";
    assert_eq!(daemon.wait(daemon.database().one(child)), "done");
}

#[test]
fn i4_what_was_kept_outside_a_step_lives_and_dies_with_its_attempt() {
    let daemon = Daemon::with_misbehave(&config());
    let job = daemon.enqueue("job", &keeping(false, "retry"), &[]);
    assert_eq!(daemon.wait(job), "dead");
    assert_eq!(daemon.job(job)["attempts_used"], 2);
    assert_eq!(children(&daemon), 0);
    assert_eq!(replay_with(&daemon, job, &keeping(false, "done")), "done");
    assert_eq!(children(&daemon), 1);
    let set = |then: &str| json!({ "do": "kv", "ops": [{ "op": "set", "store": "s", "key": "k", "value": "v" }], "then": then });
    let failing = daemon.enqueue("job", &set("poison"), &[]);
    assert_eq!(daemon.wait(failing), "dead");
    assert_eq!(value(&daemon), Value::Null);
    done(&daemon, &set("done"));
    assert_eq!(value(&daemon), "v");
}

#[test]
fn i4_a_suppressed_job_has_succeeded_and_a_cancelled_one_has_not() {
    let daemon = Daemon::with_misbehave(&config().kind("backoff = { min = \"1h\", max = \"2h\" }"));
    let suppressed = daemon.enqueue("job", &keeping(true, "suppressed"), &[]);
    assert_eq!(daemon.wait(suppressed), "suppressed");
    assert_eq!((children(&daemon), value(&daemon)), (1, json!("kept")));
    let cancelled = daemon.enqueue("job", &keeping(true, "loop"), &[]);
    daemon.ask(&["jobs", "cancel", &cancelled.to_string()]).json();
    assert_eq!(daemon.wait(cancelled), "cancelled");
    assert_eq!(children(&daemon), 1);
    assert_eq!(daemon.database().one::<i64>("SELECT count(*) FROM step_effects"), 0);
}

#[test]
fn i4_a_job_that_a_step_enqueued_is_there_once_over_kills_at_each_point() {
    for (point, in_step) in
        [("step.completed=kill", true), ("settle.before_commit=kill", true), ("settle.before_commit=kill", false)]
    {
        let mut daemon = Daemon::prepare(&config());
        daemon.set_crash_points(point);
        daemon.run();
        daemon.push_live(&guest("misbehave@1.0.0"));
        let job = daemon.enqueue("job", &keeping(in_step, "done"), &[]);
        daemon.wait_for_exit();
        assert_eq!(children(&daemon), 0, "{point}");
        daemon.set_crash_points("");
        daemon.run();
        assert_eq!(daemon.wait(job), "done", "{point}");
        assert_eq!(daemon.job(job)["attempts_used"], 2, "{point}");
        assert_eq!(children(&daemon), 1, "{point}");
        if in_step {
            assert_eq!(value(&daemon), "kept", "{point}");
        }
        daemon.database().check();
    }
}
