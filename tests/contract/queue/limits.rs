//! Q15: limits of concurrency, and that what is at its limit holds up nobody else.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use serde_json::json;

use crate::{
    support::{ConfigText, Daemon, Reply, Server},
    told::{echo, enqueue_file, get},
};

/// A server that holds its answers until it is told to go on.
fn holding() -> (Server, impl Fn()) {
    let holds = Arc::new(AtomicBool::new(true));
    let asked = Arc::clone(&holds);
    let server = Server::answering(move |_, _| {
        let answer = Reply::status(200);
        if asked.load(Ordering::SeqCst) { Reply::Held(Box::new(answer)) } else { answer }
    });
    (server, move || holds.store(false, Ordering::SeqCst))
}

/// How many jobs of the kind `job` are leased, by lane.
fn leased(daemon: &Daemon, lane: &str) -> i64 {
    daemon.database().one(&format!("SELECT count(*) FROM jobs WHERE state = 2 AND kind = 'job' AND lane = '{lane}'"))
}

/// Runs a job of another kind to its end: by then the dispatcher has looked at all the kinds again.
fn let_the_dispatcher_look(daemon: &Daemon) {
    let job = daemon.enqueue("other", &echo(), &[]);
    assert_eq!(daemon.wait(job), "done");
}

#[test]
fn q15_a_kind_runs_no_more_jobs_at_once_than_its_limit() {
    let (server, go_on) = holding();
    let config = ConfigText::default().reaching(server.url()).kind("concurrency = 2").another_kind("other", "");
    let daemon = Daemon::with_misbehave(&config);
    let jobs = enqueue_file(&daemon, (0..6).map(|_| json!({ "kind": "job", "lane": "a", "payload": get(&server) })));
    server.wait_for(2);
    let_the_dispatcher_look(&daemon);
    assert_eq!((leased(&daemon, "a"), server.received().len()), (2, 2));
    go_on();
    server.let_go();
    for job in jobs {
        assert_eq!(daemon.wait(job), "done");
    }
}

#[test]
fn q15_a_lane_runs_no_more_jobs_at_once_than_its_limit() {
    let (server, go_on) = holding();
    let config = ConfigText::default().reaching(server.url()).kind("lane_concurrency = 1").another_kind("other", "");
    let daemon = Daemon::with_misbehave(&config);
    let lanes = ["a", "a", "a", "b", "b", "b"];
    let jobs = enqueue_file(&daemon, lanes.map(|lane| json!({ "kind": "job", "lane": lane, "payload": get(&server) })));
    server.wait_for(2);
    let_the_dispatcher_look(&daemon);
    assert_eq!((leased(&daemon, "a"), leased(&daemon, "b"), server.received().len()), (1, 1, 2));
    go_on();
    server.let_go();
    for job in jobs {
        assert_eq!(daemon.wait(job), "done");
    }
    daemon.database().check();
}

#[test]
fn q15_a_lane_at_its_limit_blocks_no_other_whatever_its_backlog() {
    let (server, _) = holding();
    let daemon = Daemon::with_misbehave(&ConfigText::default().reaching(server.url()).kind("lane_concurrency = 1"));
    let busy = json!({ "kind": "job", "lane": "a", "payload": get(&server) });
    enqueue_file(&daemon, std::iter::repeat_n(busy, 20_000));
    let other = daemon.enqueue("job", &echo(), &["--lane", "b"]);
    assert_eq!(daemon.wait(other), "done");
    assert_eq!((leased(&daemon, "a"), server.wait_for(1).len()), (1, 1));
    daemon.database().check();
}

#[test]
fn q15_a_backlog_held_back_by_its_lane_drains_by_itself() {
    let (server, go_on) = holding();
    let daemon = Daemon::with_misbehave(&ConfigText::default().reaching(server.url()).kind("lane_concurrency = 1"));
    let jobs = enqueue_file(&daemon, (0..60).map(|_| json!({ "kind": "job", "lane": "a", "payload": get(&server) })));
    server.wait_for(1);
    go_on();
    server.let_go();
    for job in jobs {
        assert_eq!(daemon.wait(job), "done");
    }
}

/// How long the process has computed, in clock ticks of a hundredth of a second (proc(5), fields 14 and 15).
fn computed_ticks(daemon: &Daemon) -> u64 {
    let owner = std::fs::read_to_string(daemon.data().join("leasehold.lock")).unwrap();
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", owner.trim())).unwrap();
    let fields: Vec<_> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

#[test]
fn q15_a_due_job_of_a_kind_at_its_limit_is_waited_for_without_computing() {
    let config = ConfigText::default().kind("concurrency = 1");
    let daemon = Daemon::with_misbehave(&config);
    let sleeper = daemon.enqueue("job", &json!({ "do": "sleep", "ms": 4000 }), &[]);
    let due = daemon.enqueue("job", &echo(), &["--delay", "100ms"]);
    let before = computed_ticks(&daemon);
    assert_eq!(daemon.wait(sleeper), "done");
    let computed = computed_ticks(&daemon) - before;
    assert_eq!(daemon.wait(due), "done");
    // At rest it computes some hundredths of a second; looking again at each tick of a timer takes ten times that.
    assert!(computed < 25, "{computed} hundredths of a second were computed in four seconds");
}
