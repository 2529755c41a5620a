//! H5 and H7: each limit ends its own attempt and no other, and no state leaks from one attempt to the next.

use serde_json::{Value, json};

use crate::{
    helpers::{dead, done, ends, kind},
    support::{ConfigText, Daemon, Reply, Server},
};

/// Small limits, and one attempt for each job.
fn limited() -> ConfigText {
    ConfigText::default()
        .kind("attempts = 1")
        .handler("limits = { output_max = \"1KiB\", log_max = \"2KiB\", log_lines_max = 20, host_calls_max = 5 }")
}

#[test]
fn h5_each_limit_has_its_own_class_and_touches_no_other_attempt() {
    let server = Server::answering(|_, _| Reply::Held(Box::new(Reply::status(200))));
    let daemon = Daemon::with_misbehave(
        &limited().reaching(server.url()).another_kind("quick", "attempts = 1\ndeadline = \"1s\"\n"),
    );
    let beside = daemon.enqueue("job", &json!({ "do": "get", "url": server.url() }), &[]);
    server.wait_for(1);
    let exists = json!({ "op": "set", "store": "s", "key": "k", "value": "v" });
    let acts = [
        (json!({ "do": "memory" }), "limit.memory"),
        (json!({ "do": "stack" }), "limit.stack"),
        (json!({ "do": "output", "bytes": 1025 }), "limit.output"),
        (json!({ "do": "kv", "ops": vec![exists; 6] }), "limit.host_calls"),
        (json!({ "do": "flood", "lines": 1_000_000 }), "limit.log"),
        (json!({ "do": "panic" }), "handler.panic"),
        (json!({ "do": "exit" }), "handler.exit"),
    ];
    for (payload, class) in acts {
        let letter = dead(&daemon, &payload);
        assert_eq!((&letter["error_class"], &letter["cause"]), (&json!(class), &json!("poison")));
    }
    // One that loops in its own code and one that waits in the host.
    for payload in [json!({ "do": "loop" }), json!({ "do": "sleep", "ms": 3_600_000 })] {
        let job = daemon.enqueue("quick", &payload, &[]);
        assert_eq!(daemon.wait(job), "dead");
        assert_eq!(daemon.dead_letter(job)["error_class"], "limit.time");
    }
    // What stays within each limit goes through, and what ran beside all of it was not touched.
    done(
        &daemon,
        &json!({ "do": "kv", "ops": vec![json!({ "op": "set", "store": "s", "key": "k", "value": "v" }); 5] }),
    );
    let within = daemon.enqueue("job", &json!({ "do": "output", "bytes": 1024 }), &[]);
    assert_eq!(daemon.wait(within), "done");
    server.let_go();
    assert_eq!(daemon.wait(beside), "done");
    assert_eq!(ends(&daemon.job(beside)), [("done", true)]);
}

#[test]
fn h5_a_log_that_is_too_long_is_cut_and_its_job_goes_on() {
    let daemon = Daemon::with_misbehave(&limited());
    let job = daemon.enqueue("job", &json!({ "do": "flood", "lines": 50, "length": 50 }), &[]);
    assert_eq!(daemon.wait(job), "done");
    let shown = daemon.job(job);
    let log = shown["attempts"][0]["log"].as_str().unwrap();
    assert!(log.len() < 4 << 10, "{} bytes", log.len());
    assert_eq!(log.lines().filter(|line| line.contains("ffff")).count(), 20);
    assert!(log.contains("30 further lines"), "{log}");
}

#[test]
fn h5_an_endless_loop_on_every_slot_ends_at_its_deadline_and_blocks_nothing() {
    // The leases are shorter than the deadline: only heartbeats keep them.
    let config = ConfigText::default().sandbox("slots = 4").kind("attempts = 1").kind("deadline = \"12s\"");
    let config = config.kind("visibility_timeout = \"8s\"").kind("heartbeat = \"500ms\"");
    let daemon = Daemon::with_misbehave(&config);
    let loops: Vec<i64> = (0..4).map(|_| daemon.enqueue("job", &json!({ "do": "loop" }), &[])).collect();
    let after = daemon.enqueue("job", &json!({ "do": "count" }), &[]);
    for job in &loops {
        assert_eq!(daemon.wait(*job), "dead");
        let letter = daemon.dead_letter(*job);
        assert_eq!((&letter["error_class"], &letter["attempt"]), (&json!("limit.time"), &json!(1)));
    }
    assert_eq!(daemon.wait(after), "done");
    // All four ran at once to their deadline, and the fifth job had to wait for one of their slots.
    let loops = format!("FROM attempts WHERE job_id <> {after}");
    let database = daemon.database();
    let first_end: i64 = database.one(&format!("SELECT min(ended_at) {loops}"));
    assert!(database.one::<i64>(&format!("SELECT max(leased_at) {loops}")) < first_end);
    assert!(database.one::<i64>(&format!("SELECT min(ended_at - leased_at) {loops}")) >= 12_000);
    assert!(database.one::<i64>(&format!("SELECT leased_at FROM attempts WHERE job_id = {after}")) >= first_end);
    assert_eq!(daemon.metric("leasehold_lease_expiries_total", &[]), 0.0);
    assert!(daemon.metric("leasehold_heartbeat_delay_seconds_count", &[]) > 0.0);
}

#[test]
fn h5_the_api_answers_and_other_jobs_run_while_guests_loop_for_ever() {
    let config = ConfigText::default().sandbox("slots = 5").kind("attempts = 1").kind("deadline = \"10m\"");
    let config = config.kind("concurrency = 4").another_kind("other", "");
    let daemon = Daemon::with_misbehave(&config);
    let loops: Vec<i64> = (0..4).map(|_| daemon.enqueue("job", &json!({ "do": "loop" }), &[])).collect();
    for _ in 0..10 {
        let other = daemon.enqueue("other", &json!({ "do": "count" }), &[]);
        assert_eq!(daemon.wait(other), "done");
    }
    assert_eq!(kind(&daemon, "job")["depth"]["leased"], 4);
    for job in loops {
        assert_eq!(daemon.job(job)["state"], "leased");
        daemon.ask(&["jobs", "cancel", &job.to_string()]).json();
        assert_eq!(daemon.wait(job), "cancelled");
    }
}

#[test]
fn h5_a_deadline_during_an_outbound_call_is_downstreams_and_no_defect() {
    let server = Server::answering(|_, _| Reply::Held(Box::new(Reply::status(200))));
    let config = ConfigText::default().kind("attempts = 2").kind("deadline = \"1s\"").reaching(server.url());
    let daemon = Daemon::with_misbehave(&config);
    let letter = dead(&daemon, &json!({ "do": "get", "url": server.url() }));
    assert_eq!((&letter["error_class"], &letter["cause"]), (&json!("downstream.timeout"), &json!("exhausted")));
    assert_eq!(server.received().len(), 2);
}

#[test]
fn h7_no_state_leaks_from_one_attempt_to_the_next() {
    // With one slot every attempt gets the memory that the one before it has used.
    let daemon = Daemon::with_misbehave(&ConfigText::default().sandbox("slots = 1"));
    let jobs: Vec<i64> = (0..20).map(|_| daemon.enqueue("job", &json!({ "do": "count" }), &[])).collect();
    let counts: Vec<Value> = jobs
        .into_iter()
        .map(|job| {
            assert_eq!(daemon.wait(job), "done");
            daemon.result(job)
        })
        .collect();
    assert_eq!(counts, vec![json!(1); 20]);
}
