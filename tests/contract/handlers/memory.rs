//! H5: the memory of all attempts together. An attempt takes all that its handler may use before its job is leased, so
//! none is refused memory because of others, and waiting for it counts no attempt.

use serde_json::{Value, json};

use crate::{
    helpers::{dead, done, push_as},
    support::{ConfigText, Daemon, Reply, Server, guest},
};

const MIB: f64 = 1_048_576.0;

/// The handler `misbehave`, whose attempts take 16 MiB, and the same component as `small`, whose attempts take 4 MiB.
fn config(server: &Server, total: &str) -> ConfigText {
    let small = format!(
        "[handlers.small]\nstores = {{ s = \"read-write\" }}\nsettings = {{ greeting = \"hello\" }}\n\
         outbound = [\"GET,POST {}\"]\nlimits = {{ memory_max = \"4MiB\" }}\n\
         [kinds.small]\nhandler = \"small\"\nowner = \"tests\"\ndeadline = \"10m\"",
        server.url()
    );
    let config = ConfigText::default().reaching(server.url()).kind("deadline = \"10m\"").more(&small);
    config.sandbox("slots = 16").sandbox(&format!("memory_total_max = \"{total}\""))
}

fn start(config: &ConfigText) -> Daemon {
    let daemon = Daemon::with_misbehave(config);
    push_as(&daemon, &guest("misbehave@1.0.0"), "small@1.0.0", &["--activate"]).json();
    daemon
}

fn holding() -> Server {
    Server::answering(|_, _| Reply::Held(Box::new(Reply::status(200))))
}

fn get(server: &Server) -> Value {
    json!({ "do": "get", "url": server.url() })
}

#[test]
fn h5_no_more_attempts_run_than_their_memory_allows_and_small_ones_go_on() {
    let server = holding();
    let daemon = start(&config(&server, "40MiB"));
    let large: Vec<i64> = (0..3).map(|_| daemon.enqueue("job", &get(&server), &[])).collect();
    server.wait_for(2);
    for _ in 0..5 {
        let small = daemon.enqueue("small", &json!({ "do": "echo" }), &[]);
        assert_eq!(daemon.wait(small), "done");
    }
    // The claims that leased the small ones have passed the third large one by.
    let waiting = daemon.job(large[2]);
    assert_eq!((&waiting["state"], &waiting["attempts_used"]), (&json!("ready"), &json!(0)));
    assert_eq!(server.received().len(), 2);
    assert_eq!(daemon.metric("leasehold_attempts_memory_reserved_bytes", &[]), 32.0 * MIB);
    assert_eq!(daemon.metric("leasehold_attempts_memory_max_bytes", &[]), 40.0 * MIB);
    server.let_go();
    server.wait_for(3);
    server.let_go();
    for job in large {
        assert_eq!(daemon.wait(job), "done");
        assert_eq!(daemon.job(job)["attempts"].as_array().unwrap().len(), 1);
    }
    daemon.database().check();
}

#[test]
fn h5_an_attempt_has_all_of_its_handlers_memory_whatever_runs_beside_it() {
    let server = holding();
    let daemon = start(&config(&server, "40MiB"));
    let fill = json!({ "do": "memory", "then": "done" });
    let alone = done(&daemon, &fill);
    assert!(alone["refused_at_mib"].as_u64().unwrap() >= 12, "{alone}");
    let others: Vec<i64> = ["job", "small", "small"].map(|kind| daemon.enqueue(kind, &get(&server), &[])).into();
    server.wait_for(3);
    assert_eq!(done(&daemon, &fill), alone);
    // What is over the handler's own limit is still the attempt's fault.
    assert_eq!(dead(&daemon, &json!({ "do": "memory" }))["error_class"], "limit.memory");
    server.let_go();
    for job in others {
        assert_eq!(daemon.wait(job), "done");
    }
}

#[test]
fn h5_a_large_attempt_does_not_starve_behind_small_ones() {
    let server = holding();
    let daemon = start(&config(&server, "20MiB"));
    let first: Vec<i64> = (0..2).map(|_| daemon.enqueue("small", &get(&server), &[])).collect();
    server.wait_for(2);
    let large = daemon.enqueue("job", &json!({ "do": "echo" }), &[]);
    // There is room for each of these, but what they took would be kept from the large one.
    let behind: Vec<i64> = (0..6).map(|_| daemon.enqueue("small", &json!({ "do": "echo" }), &[])).collect();
    server.let_go();
    for job in first.into_iter().chain([large]).chain(behind.clone()) {
        assert_eq!(daemon.wait(job), "done");
    }
    let database = daemon.database();
    let leased_at = |job: i64| database.one::<i64>(&format!("SELECT leased_at FROM attempts WHERE job_id = {job}"));
    let first_behind = behind.into_iter().map(leased_at).min().unwrap();
    assert!(leased_at(large) <= first_behind, "{} after {first_behind}", leased_at(large));
    database.check();
}

#[test]
fn h10_a_changed_total_holds_for_what_begins_after_the_reload() {
    let server = holding();
    let daemon = start(&config(&server, "16MiB"));
    let jobs: Vec<i64> = (0..3).map(|_| daemon.enqueue("job", &get(&server), &[])).collect();
    server.wait_for(1);
    daemon.write_config(&config(&server, "48MiB"));
    daemon.ask(&["reload"]).json();
    server.wait_for(3);
    server.let_go();
    for job in &jobs {
        assert_eq!(daemon.wait(*job), "done");
    }
    let database = daemon.database();
    let reloaded_at: i64 = database.one("SELECT at FROM audit WHERE action = 'config.reload'");
    let leased_before = format!("SELECT count(*) FROM attempts WHERE leased_at < {reloaded_at}");
    assert_eq!(database.one::<i64>(&leased_before), 1);
}

#[test]
fn h5_a_handler_that_takes_more_than_there_is_for_all_is_refused_with_the_figures() {
    let daemon = Daemon::prepare(&config(&holding(), "8MiB"));
    let refused = daemon.ask(&["config", "check"]);
    assert_ne!(refused.status, 0);
    let said = format!("{}{}", refused.stdout, refused.stderr);
    assert!(
        said.contains("sandbox.memory_total_max: 8MiB is below what one attempt of handler misbehave may use, 16MiB"),
        "{said}"
    );
    assert!(said.contains("config.toml:"), "{said}");
}
