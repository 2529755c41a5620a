//! I2 and I6: two leases of one job that overlap, and how duplicates are counted. The overlap is made by force: crash
//! points lose the first lease's heartbeats and let a guest whose lease is lost run on. The server does not deduplicate.

use std::sync::{Mutex, mpsc};

use serde_json::{Value, json};

use crate::{
    helpers::ends,
    support::{ConfigText, Daemon, Reply, Server, daemon::PATIENCE, guest},
};

/// No heartbeats for the first lease, and nothing is stopped for a lease that is lost.
const OVERLAP: &str = "heartbeat.send=1*return->off;lease.keep_running_when_lost=return";
/// The host forgets as well that the first attempt's guest runs, so that the second takes its step over.
const TAKE_OVER: &str = "heartbeat.send=1*return->off;lease.keep_running_when_lost=return;running.forget_others=return";

/// A daemon whose leases overlap. Attempts are given back as often as it takes.
fn overlapping(server: &Server, crash_points: &str) -> Daemon {
    let config = ConfigText::default()
        .kind("visibility_timeout = \"4s\"")
        .kind("deadline = \"5m\"")
        .kind("attempts = 10")
        .queue("release_max = 1000")
        .queue("release_delay = \"100ms\"")
        .reaching(server.url());
    let mut daemon = Daemon::prepare(&config);
    daemon.set_crash_points(crash_points);
    daemon.run();
    daemon.push_live(&guest("misbehave@1.0.0"));
    daemon
}

fn enqueue(daemon: &Daemon, server: &Server) -> i64 {
    daemon.enqueue("job", &json!({ "do": "step", "name": "s", "url": server.url() }), &[])
}

fn applied_twice(daemon: &Daemon) -> f64 {
    daemon.metric("leasehold_duplicates_applied_total", &[])
}

fn stale(daemon: &Daemon) -> f64 {
    daemon.metric("leasehold_stale_settlements_total", &[])
}

fn number_in_body(number: usize) -> Reply {
    Reply::Status(200, Vec::new(), format!("answer {number}"))
}

fn answer_stored(daemon: &Daemon, job: i64) -> Value {
    daemon.result(job)["result"]["answers"][0]["body"].clone()
}

#[test]
fn i2_two_overlapping_leases_apply_a_step_once() {
    let server = Server::answering(|_, number| Reply::Held(Box::new(number_in_body(number))));
    let daemon = overlapping(&server, OVERLAP);
    let job = enqueue(&daemon, &server);
    server.wait_for(1);
    daemon.wait_for_log("a lease ran out");
    // The second attempt comes to the step while the first one's guest is in it, and is given back.
    daemon.wait_for_log("an attempt was given back");
    let shown = daemon.job(job);
    assert_eq!(ends(&shown)[..2], [("expired", true), ("released", false)]);
    assert_eq!(shown["steps"][0]["begun_by_attempt"], 1);
    // The first one's lease is long lost; the step is still its own.
    server.let_go();
    daemon.wait_for_log("a late result changed nothing");
    assert_eq!(daemon.wait(job), "done");
    let shown = daemon.job(job);
    assert_eq!((&shown["steps"][0]["state"], &shown["steps"][0]["begun_by_attempt"]), (&json!("applied"), &json!(1)));
    assert_eq!(daemon.result(job)["has_run"], false);
    assert_eq!(answer_stored(&daemon, job), "answer 0");
    let counted = ends(&shown).iter().filter(|(_, counted)| *counted).count();
    assert_eq!(shown["attempts_used"], counted, "{shown}");
    assert_eq!(server.received().len(), 1);
    assert_eq!((applied_twice(&daemon), stale(&daemon)), (0.0, 1.0));
    assert!(daemon.metric("leasehold_duplicates_prevented_total", &[("what", "step")]) >= 1.0);
    daemon.database().check();
}

#[test]
fn i2_without_the_crash_points_a_guest_whose_lease_is_lost_is_stopped_before_its_step_ends() {
    let server = Server::answering(|_, number| match number {
        0 => Reply::Held(Box::new(Reply::status(200))),
        number => number_in_body(number),
    });
    let daemon = overlapping(&server, "heartbeat.send=1*return->off");
    let job = enqueue(&daemon, &server);
    daemon.wait_for_log("its guest is stopped");
    assert_eq!(daemon.wait(job), "done");
    // The first attempt's request had left, so the second one was told of the doubt.
    assert_eq!(daemon.result(job)["result"]["in_doubt"], true);
    assert_eq!(daemon.job(job)["attempts"][0]["in_doubt_steps"], json!(["s"]));
    assert_eq!(applied_twice(&daemon), 0.0);
}

#[test]
fn i6_a_step_that_two_attempts_ran_is_counted_as_applied_twice() {
    let server = Server::answering(|_, number| match number {
        0 => Reply::Held(Box::new(number_in_body(0))),
        number => number_in_body(number),
    });
    let daemon = overlapping(&server, TAKE_OVER);
    let job = enqueue(&daemon, &server);
    assert_eq!(daemon.wait(job), "done");
    let before = daemon.job(job);
    assert_eq!((before["steps"][0]["begun_by_attempt"].clone(), applied_twice(&daemon)), (json!(2), 0.0));
    // The first one comes to its end long after it was overtaken.
    server.let_go();
    daemon.wait_for_log("a late result changed nothing");
    assert_eq!((applied_twice(&daemon), stale(&daemon)), (1.0, 2.0));
    assert_eq!(answer_stored(&daemon, job), "answer 1");
    let after = daemon.job(job);
    assert_eq!(after["steps"][0]["applied_at"], before["steps"][0]["applied_at"]);
    assert_eq!(after["steps"][0]["runs"][0]["ended_as"], "stale");
    assert_eq!(server.received().len(), 2);
}

#[test]
fn i6_the_count_does_not_depend_on_which_attempt_ends_first() {
    let (arrived, second_arrived) = mpsc::channel();
    let (let_second_go, go) = mpsc::channel::<()>();
    let (arrived, go) = (Mutex::new(arrived), Mutex::new(go));
    let server = Server::answering(move |_, number| match number {
        0 => Reply::Held(Box::new(number_in_body(0))),
        number => tokio::task::block_in_place(|| {
            arrived.lock().unwrap().send(()).unwrap();
            let _ = go.lock().unwrap().recv_timeout(PATIENCE);
            number_in_body(number)
        }),
    });
    let daemon = overlapping(&server, TAKE_OVER);
    let job = enqueue(&daemon, &server);
    second_arrived.recv_timeout(PATIENCE).unwrap();
    server.let_go();
    // The overtaken attempt ends first: it changes nothing, and nobody can know yet what becomes of the other.
    daemon.wait_for_log("a late result changed nothing");
    assert_eq!((applied_twice(&daemon), stale(&daemon)), (0.0, 2.0));
    let step = daemon.job(job)["steps"][0].clone();
    assert_eq!((&step["state"], &step["begun_by_attempt"]), (&json!("begun"), &json!(2)));
    let_second_go.send(()).unwrap();
    assert_eq!(daemon.wait(job), "done");
    assert_eq!(answer_stored(&daemon, job), "answer 1");
    assert_eq!(applied_twice(&daemon), 1.0);
}
