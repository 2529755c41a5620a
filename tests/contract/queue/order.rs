//! Q15 and H9: the order in which jobs run, and who is not held up by whom.

use serde_json::{Value, json};

use crate::{
    support::{ConfigText, Daemon, Reply, Server},
    told::{echo, enqueue_file, get, send},
};

/// The bodies of what reached a server, in order.
fn bodies(server: &Server) -> Vec<String> {
    server.received().into_iter().map(|request| request.body).collect()
}

/// Many jobs that end well if they run at all.
fn backlog(kind: &str, lane: &str, count: usize) -> impl Iterator<Item = Value> {
    let job = json!({ "kind": kind, "lane": lane, "payload": echo() });
    std::iter::repeat_n(job, count)
}

#[test]
fn q15_priority_goes_first_and_equals_run_in_the_order_of_their_enqueue() {
    let server = Server::accepting();
    let daemon = Daemon::with_misbehave(&ConfigText::default().reaching(server.url()).sandbox("slots = 1"));
    daemon.ask(&["kinds", "pause", "job"]).json();
    let job =
        |body: &str, priority: i64| json!({ "kind": "job", "priority": priority, "payload": send(&server, body) });
    let sent = [job("low", -1), job("first", 0), job("second", 0), job("high", 2), job("higher", 3)];
    let jobs = enqueue_file(&daemon, sent);
    daemon.ask(&["kinds", "resume", "job"]).json();
    for job in jobs {
        assert_eq!(daemon.wait(job), "done");
    }
    assert_eq!(bodies(&server), ["higher", "high", "first", "second", "low"]);
}

#[test]
fn q15_waiting_makes_up_for_priority() {
    let server = Server::accepting();
    let config = ConfigText::default().reaching(server.url()).sandbox("slots = 1").queue("priority_step = \"1ms\"");
    let daemon = Daemon::with_misbehave(&config);
    daemon.ask(&["kinds", "pause", "job"]).json();
    let old = daemon.enqueue("job", &send(&server, "old"), &["--priority", "-1"]);
    // Another command takes longer than the two steps of a millisecond that are between them.
    let new = daemon.enqueue("job", &send(&server, "new"), &["--priority", "1"]);
    daemon.ask(&["kinds", "resume", "job"]).json();
    assert_eq!((daemon.wait(old).as_str(), daemon.wait(new).as_str()), ("done", "done"));
    assert_eq!(bodies(&server), ["old", "new"]);
}

#[test]
fn q15_a_paused_kind_and_one_without_a_handler_block_nobody_whatever_their_backlog() {
    let config = ConfigText::default()
        .another_kind("paused", "")
        .more("[handlers.absent]\n[kinds.unserved]\nhandler = \"absent\"\nowner = \"tests\"");
    let daemon = Daemon::with_misbehave(&config);
    daemon.ask(&["kinds", "pause", "paused"]).json();
    enqueue_file(&daemon, backlog("paused", "a", 3_000).chain(backlog("unserved", "a", 3_000)));
    let job = daemon.enqueue("job", &echo(), &[]);
    assert_eq!(daemon.wait(job), "done");
    let database = daemon.database();
    assert_eq!(database.one::<i64>("SELECT count(*) FROM jobs WHERE attempt = 0"), 6_000);
    database.check();
}

/// How many attempts of the kind `job` began before the one attempt of another job, by the order of their leases.
fn began_before(daemon: &Daemon, job: i64) -> i64 {
    daemon.database().one(&format!(
        "SELECT count(*) FROM attempts a JOIN jobs ON jobs.id = a.job_id WHERE jobs.kind = 'job'
         AND a.leased_at <= (SELECT leased_at FROM attempts WHERE job_id = {job})"
    ))
}

#[test]
fn q15_one_job_of_a_kind_is_not_held_up_by_a_backlog_of_100_000_of_another() {
    const LIMIT: i64 = 4;
    let server = Server::answering(|_, _| Reply::Held(Box::new(Reply::status(200))));
    let config = ConfigText::default().reaching(server.url()).kind("deadline = \"10m\"").kind("concurrency = 4");
    let daemon = Daemon::with_misbehave(&config.another_kind("other", "").queue("durability = \"normal\""));
    // Half of it is due when it comes in, the other half a moment later.
    let job = |delay_ms: i64| json!({ "kind": "job", "delay_ms": delay_ms, "payload": get(&server) });
    let backlog = std::iter::repeat_n(job(0), 50_000).chain(std::iter::repeat_n(job(1), 50_000));
    assert_eq!(enqueue_file(&daemon, backlog).len(), 100_000);
    let one = daemon.enqueue("other", &echo(), &[]);
    assert_eq!(daemon.wait(one), "done");
    assert_eq!((began_before(&daemon, one), server.wait_for(4).len()), (LIMIT, 4));
    daemon.database().check();
}

#[test]
fn h9_a_job_without_a_live_handler_waits_and_burns_no_attempt() {
    let daemon = Daemon::start(&ConfigText::default());
    let job = daemon.enqueue("job", &echo(), &[]);
    let kinds = daemon.ask(&["kinds", "ls"]).json();
    let kind = kinds["items"].as_array().unwrap().iter().find(|kind| kind["kind"] == "job").unwrap();
    assert_eq!((&kind["waiting_for_handler"], &kind["depth"]["ready"]), (&json!(true), &json!(1)));
    let waiting = daemon.job(job);
    assert_eq!((&waiting["state"], &waiting["attempts_used"]), (&json!("ready"), &json!(0)));
    daemon.push_live(&crate::support::guest("misbehave@1.0.0"));
    assert_eq!(daemon.wait(job), "done");
    assert_eq!(daemon.job(job)["attempts"].as_array().unwrap().len(), 1);
    let kinds = daemon.ask(&["kinds", "ls"]).json();
    assert_eq!(kinds["items"][0]["waiting_for_handler"], false);
}
