//! The daemon killed at every point that matters, and again and again under load. After each kill it is started again, and
//! what must hold is checked in the database and at the server outside.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
};

use serde_json::{Value, json};

use crate::support::{ConfigText, Daemon, Server, guest};

/// How many jobs of a load have a step, and how many are poison.
const STEPS: usize = 16;
const POISON: usize = 6;

/// Jobs with one request in a step each, and jobs that die, as lines of a file.
struct Load {
    path: String,
    orders: usize,
}

impl Load {
    fn write(daemon: &Daemon, server: &Server, orders: usize, poison: usize) -> Self {
        let mut lines = String::new();
        for order in 0..orders {
            let body = json!({ "order": order }).to_string();
            let act = json!({ "do": "step", "name": "pay", "url": server.url(), "body": body });
            writeln!(lines, r#"{{"kind":"job","key":"order-{order}","payload":{act}}}"#).unwrap();
        }
        for number in 0..poison {
            let act = json!({ "do": "fail", "as": "poison", "class": "handler.told", "message": "as told" });
            writeln!(lines, r#"{{"kind":"dies","key":"poison-{number}","payload":{act}}}"#).unwrap();
        }
        let path = daemon.directory().join("jobs.jsonl");
        fs::write(&path, lines).unwrap();
        Self { path: path.to_str().unwrap().to_owned(), orders }
    }

    /// Sends the file. A daemon that dies meanwhile leaves some lines without an answer.
    fn send(&self, daemon: &Daemon) {
        daemon.ask(&["enqueue", "--file", &self.path]);
    }

    /// Sends the file again, waits for every end and checks all that must hold.
    fn finish(&self, daemon: &Daemon, server: &Server, what: &str) {
        let answer = daemon.ask(&["enqueue", "--file", &self.path]);
        assert_eq!(answer.status, 0, "{what}: {}", answer.stderr);
        for job in daemon.database().all::<i64>("SELECT id FROM jobs ORDER BY id") {
            daemon.wait(job);
        }
        let database = daemon.database();
        database.check();
        let done = database.one::<i64>("SELECT count(*) FROM ended_jobs WHERE kind = 'job' AND state = 'done'");
        assert_eq!(done, i64::try_from(self.orders).unwrap(), "{what}");
        assert_eq!(
            database.one::<i64>("SELECT count(*) FROM ended_jobs WHERE state NOT IN ('done', 'dead')"),
            0,
            "{what}"
        );
        self.check_requests(daemon, server, what);
    }

    /// Each order was requested once, and again only by runs that were in doubt.
    fn check_requests(&self, daemon: &Daemon, server: &Server, what: &str) {
        let mut by_key = BTreeMap::<String, usize>::new();
        let mut orders = BTreeSet::new();
        for request in server.received() {
            let body: Value = serde_json::from_str(&request.body).unwrap();
            orders.insert(body["order"].as_u64().unwrap());
            *by_key.entry(request.header("idempotency-key").unwrap().to_owned()).or_default() += 1;
        }
        assert_eq!((orders.len(), by_key.len()), (self.orders, self.orders), "{what}");
        let repeated: usize = by_key.values().map(|count| count - 1).sum();
        let in_doubt = daemon.database().one::<i64>("SELECT count(*) FROM step_runs WHERE in_doubt = 1");
        assert!(repeated <= usize::try_from(in_doubt).unwrap(), "{what}: {repeated} repetitions, {in_doubt} in doubt");
    }
}

fn prepare(server: &Server) -> Daemon {
    let lines = "attempts = 1\nbackoff = { min = \"10ms\", max = \"50ms\" }\ndeadline = \"20s\"";
    let errors = "\"handler.told\" = \"poison\"";
    let config = ConfigText::default()
        .kind("attempts = 20")
        .reaching(server.url())
        .another_kind("dies", lines)
        .more("[redaction]\nnames = []");
    let mut daemon = Daemon::prepare(&config);
    fs::write(daemon.config_path(), config.text().replace("\"handler.told\" = \"retry\"", errors)).unwrap();
    daemon.run();
    daemon.push_live(&guest("misbehave@1.0.0"));
    daemon
}

#[test]
fn o6_a_kill_at_any_point_loses_nothing_and_applies_nothing_twice() {
    for point in [
        "enqueue.inserted=kill",
        "enqueue.committed=kill",
        "claim.leased=kill",
        "claim.leased=kill@4",
        "step.begun=kill@3",
        "step.completed=kill@5",
        "settle.before_commit=kill@4",
        "dead_letter.write=kill@2",
        "writer.before_commit=kill@6",
        "writer.before_commit=kill@17",
        "writer.after_commit=kill@9",
        "writer.after_commit=kill@23",
    ] {
        let server = Server::accepting();
        let mut daemon = prepare(&server);
        let load = Load::write(&daemon, &server, STEPS, POISON);
        daemon.terminate();
        daemon.set_crash_points(point);
        daemon.run();
        load.send(&daemon);
        daemon.wait_for_exit();
        daemon.set_crash_points("");
        daemon.run();
        load.finish(&daemon, &server, point);
    }
}

#[test]
fn o6_a_kill_in_a_replay_leaves_the_dead_letter_or_the_replayed_job() {
    let server = Server::accepting();
    let mut daemon = prepare(&server);
    let load = Load::write(&daemon, &server, 0, 1);
    load.send(&daemon);
    // The job may have ended already, or not have been attempted yet.
    let job: i64 =
        daemon.database().one("SELECT max(id) FROM (SELECT id FROM jobs UNION ALL SELECT id FROM ended_jobs)");
    daemon.wait(job);
    let letter = daemon.dead_letter(job)["id"].to_string();
    daemon.terminate();
    daemon.set_crash_points("replay.inserted=kill");
    daemon.run();
    let replay = ["dlq", "replay", &letter, "--reason", "again", "--override-reason", "it was told to fail"];
    daemon.ask(&replay);
    daemon.wait_for_exit();
    daemon.set_crash_points("");
    daemon.run();
    daemon.database().check();
    assert_eq!(daemon.job(job)["replays"].as_array().unwrap().len(), 0, "it was not durable");
    daemon.ask(&replay).json();
    assert_eq!(daemon.wait(job), "dead");
    assert_eq!(daemon.job(job)["replays"].as_array().unwrap().len(), 1);
    daemon.database().check();
}

#[test]
fn o6_ten_kills_under_load_lose_nothing_and_apply_nothing_twice() {
    const ORDERS: usize = 150;
    const KILLS: usize = 10;
    let server = Server::accepting();
    let mut daemon = prepare(&server);
    let load = Load::write(&daemon, &server, ORDERS, 0);
    load.send(&daemon);
    for kill in 1..=KILLS {
        server.wait_for(ORDERS * kill / (KILLS + 1));
        daemon.kill_and_run();
    }
    load.finish(&daemon, &server, "kills under load");
}
