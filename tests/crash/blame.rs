//! Q13: a job that stops the daemon each time, its neighbours, and the rest of the queue.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use serde_json::{Value, json};

use crate::support::{ConfigText, Daemon, Reply, Server, guest};

const NEIGHBOURS: usize = 7;

#[test]
fn q13_a_job_that_kills_the_daemon_dies_of_it_and_its_neighbours_do_not() {
    let holds = Arc::new(AtomicBool::new(true));
    let asked = Arc::clone(&holds);
    let server = Server::answering(move |_, _| {
        let reply = Reply::status(200);
        if asked.load(Ordering::SeqCst) { Reply::Held(Box::new(reply)) } else { reply }
    });
    let lines = "attempts = 5\nbackoff = { min = \"10ms\", max = \"50ms\" }\ndeadline = \"20s\"";
    let config = ConfigText::default().kind("attempts = 5").reaching(server.url()).another_kind("killer", lines);
    let mut daemon = Daemon::prepare(&config);
    daemon.set_crash_points("attempt.begin.killer=kill");
    daemon.run();
    daemon.push_live(&guest("misbehave@1.0.0"));
    let get = json!({ "do": "get", "url": format!("{}/", server.url()) });
    let neighbours: Vec<_> = (0..NEIGHBOURS).map(|_| daemon.enqueue("job", &get, &[])).collect();
    server.wait_for(NEIGHBOURS);

    // The first stop finds all of them running; so does the second, and then all are suspects.
    daemon.ask(&["enqueue", "killer", "--payload", r#"{"do":"echo"}"#]);
    daemon.wait_for_exit();
    daemon.spawn();
    daemon.wait_for_exit();
    holds.store(false, Ordering::SeqCst);
    // Suspects run one at a time: the neighbours end well, and the daemon stops under the killer alone.
    daemon.spawn();
    daemon.wait_for_exit();
    daemon.run();

    let killer: i64 = daemon.database().one("SELECT id FROM ended_jobs WHERE kind = 'killer'");
    assert_eq!(daemon.dead_letter(killer)["cause"], "crashed");
    for neighbour in neighbours {
        assert_eq!(daemon.wait(neighbour), "done");
        assert_eq!(daemon.job(neighbour)["attempts_used"], 3, "two stops and the run that went well");
    }
    let bystander = daemon.enqueue("job", &get, &[]);
    assert_eq!(daemon.wait(bystander), "done");
    daemon.database().check();
}

/// A full daemon: all slots but the one of the job that kills it.
const CROWD: usize = 63;
/// Jobs that stand behind them in line.
const REST: usize = 100;

/// Sends jobs of the kind `job` in as one file.
fn enqueue_many(daemon: &Daemon, priority: i64, payload: &Value, count: usize) -> Vec<i64> {
    let line = json!({ "kind": "job", "priority": priority, "payload": payload }).to_string();
    let path = daemon.directory().join(format!("jobs-{priority}.jsonl"));
    fs::write(&path, vec![line; count].join("\n")).unwrap();
    let answer = daemon.ask(&["enqueue", "--file", path.to_str().unwrap()]);
    assert_eq!(answer.status, 0, "{}{}", answer.stdout, answer.stderr);
    let answers = answer.stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    answers.filter_map(|answer| answer["id"].as_i64()).collect()
}

#[test]
fn q13_on_a_full_daemon_one_job_is_blamed_its_63_neighbours_end_well_and_the_rest_goes_on() {
    let holds = Arc::new(AtomicBool::new(true));
    let asked = Arc::clone(&holds);
    let server = Server::answering(move |_, _| {
        let reply = Reply::status(200);
        if asked.load(Ordering::SeqCst) { Reply::Held(Box::new(reply)) } else { reply }
    });
    let lines = "attempts = 5\nbackoff = { min = \"10ms\", max = \"50ms\" }\ndeadline = \"20s\"";
    let config = ConfigText::default().sandbox("slots = 64").kind("attempts = 5").kind("deadline = \"10m\"");
    let mut daemon = Daemon::prepare(&config.reaching(server.url()).another_kind("killer", lines));
    daemon.set_crash_points("attempt.begin.killer=kill");
    daemon.run();
    daemon.push_live(&guest("misbehave@1.0.0"));
    let get = json!({ "do": "get", "url": format!("{}/", server.url()) });
    let neighbours = enqueue_many(&daemon, 5, &get, CROWD);
    server.wait_for(CROWD);
    // Its one free slot goes to the job that kills it, so the rest has not been leased when it stops.
    daemon.ask(&["enqueue", "killer", "--priority", "4", "--payload", r#"{"do":"echo"}"#]);
    daemon.wait_for_exit();
    daemon.spawn();
    daemon.wait_for_exit();

    // All 64 are suspects now, and by its priority the one that kills is the last. The first one runs, and is held;
    // beside it the rest goes on, which comes in only now.
    daemon.run();
    let rest = enqueue_many(&daemon, 0, &json!({ "do": "echo" }), REST);
    for job in &rest {
        assert_eq!(daemon.wait(*job), "done");
    }
    let database = daemon.database();
    assert_eq!(database.one::<i64>("SELECT count(*) FROM jobs WHERE state = 2"), 1, "one suspect runs");
    assert_eq!(database.one::<i64>("SELECT count(*) FROM jobs"), i64::try_from(CROWD).unwrap() + 1);
    drop(database);
    holds.store(false, Ordering::SeqCst);
    server.let_go();
    daemon.wait_for_exit();
    daemon.run();

    let killer: i64 = daemon.database().one("SELECT id FROM ended_jobs WHERE kind = 'killer'");
    let letter = daemon.dead_letter(killer);
    assert_eq!((&letter["cause"], letter["attempts"].as_array().unwrap().len()), (&json!("crashed"), 3));
    for job in neighbours {
        assert_eq!(daemon.wait(job), "done");
        assert_eq!(daemon.job(job)["attempts_used"], 3, "two stops and the run that went well");
    }
    for job in rest {
        assert_eq!(daemon.job(job)["attempts"].as_array().unwrap().len(), 1);
    }
    assert_eq!(daemon.database().one::<i64>("SELECT count(*) FROM dead_letters"), 1);
    daemon.database().check();
}
