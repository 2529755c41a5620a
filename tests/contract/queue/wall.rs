//! Q14: the wall clock is stepped by a day each way under a daemon that runs. Only jobs that are scheduled for a wall time
//! follow it. The step is the daemon's alone: the machine's clock is left as it is.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde_json::json;

use crate::{
    support::{ConfigText, Daemon, Reply, Server, guest},
    told::{attempts, count, echo, ended, get},
};

const DAY_MS: i64 = 86_400_000;
const HOUR_MS: i64 = 3_600_000;

/// Sets how far a clock of the daemon's is off, whole or not at all.
fn set_off(file: &Path, by_ms: i64) {
    let aside = file.with_extension("part");
    fs::write(&aside, by_ms.to_string()).unwrap();
    fs::rename(aside, file).unwrap();
}

/// The machine's wall time, some milliseconds off, as the command line takes it.
fn wall(off_ms: i64) -> String {
    let now_ms = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap();
    leasehold_api::Timestamp::from_ms(now_ms + off_ms).to_string()
}

/// A daemon whose wall clock and boot clock a test can set off, and the two files by which it does.
fn with_clocks(config: &ConfigText, crash_points: &str) -> (Daemon, PathBuf, PathBuf) {
    let mut daemon = Daemon::prepare(config);
    let files = ["wall", "boot"].map(|name| daemon.directory().join(name));
    let [wall, boot] = &files;
    daemon.set_crash_points(&format!(
        "clock.wall=return({});clock.boot=return({});{crash_points}",
        wall.display(),
        boot.display()
    ));
    daemon.run();
    daemon.push_live(&guest("misbehave@1.0.0"));
    let [wall, boot] = files;
    (daemon, wall, boot)
}

/// A job that ends after a delay on the queue's clock, by which the daemon has had time for whatever else was due.
#[track_caller]
fn let_pass(daemon: &Daemon, delay: &str) {
    let job = daemon.enqueue("job", &echo(), &["--delay", delay]);
    assert_eq!(daemon.wait(job), "done");
}

#[test]
fn q14_a_job_for_a_wall_time_is_due_at_once_when_the_wall_steps_over_it() {
    let (daemon, wall_file, _) = with_clocks(&ConfigText::default(), "");
    let run_at = wall(12 * HOUR_MS);
    let job = daemon.enqueue("job", &echo(), &["--run-at", &run_at]);
    let delayed = daemon.enqueue("job", &echo(), &["--delay", "12h"]);
    let shown = daemon.job(job);
    assert_eq!((&shown["state"], &shown["visible_at"]), (&json!("waiting"), &json!(run_at)));
    set_off(&wall_file, DAY_MS);
    assert_eq!(daemon.wait(job), "done");
    assert_eq!(daemon.job(delayed)["state"], "waiting", "a delay is the queue's");
    // What the wall shows already is no reason to wait, whatever the queue's clock shows.
    let past = daemon.enqueue("job", &echo(), &["--run-at", &wall(HOUR_MS)]);
    assert_eq!(daemon.wait(past), "done");
}

#[test]
fn q14_a_job_for_a_wall_time_waits_on_when_the_wall_steps_back() {
    let (mut daemon, wall_file, _) = with_clocks(&ConfigText::default(), "");
    let job = daemon.enqueue("job", &echo(), &["--run-at", &wall(3_000)]);
    set_off(&wall_file, -DAY_MS);
    let_pass(&daemon, "5s");
    assert_eq!(daemon.job(job)["state"], "waiting");
    // Nor does a restart run it, although the queue's clock is past its time.
    daemon.kill_and_run();
    let_pass(&daemon, "100ms");
    assert_eq!(daemon.job(job)["state"], "waiting");
    set_off(&wall_file, 0);
    assert_eq!(daemon.wait(job), "done");
    daemon.database().check();
}

#[test]
fn q14_a_job_for_a_wall_time_runs_at_its_time() {
    let (daemon, _, _) = with_clocks(&ConfigText::default(), "");
    let run_at: leasehold_api::Timestamp = wall(2_000).parse().unwrap();
    let job = daemon.enqueue("job", &echo(), &["--run-at", &run_at.to_string()]);
    assert_eq!(daemon.job(job)["state"], "waiting");
    assert_eq!(daemon.wait(job), "done");
    let leased_at_ms: i64 = daemon.database().one("SELECT leased_at FROM attempts");
    // Two clocks, each read in whole milliseconds.
    assert!(leased_at_ms >= run_at.as_ms() - 5, "{leased_at_ms} is before {run_at}");
}

/// A kind with short leases, and a server that holds the first answer back.
fn short_leases() -> (ConfigText, Server) {
    let server = Server::answering(|_, number| match number {
        0 => Reply::Held(Box::new(Reply::status(200))),
        _ => Reply::status(200),
    });
    let config = ConfigText::default()
        .reaching(server.url())
        .kind("visibility_timeout = \"1500ms\"")
        .kind("heartbeat = \"100ms\"")
        .kind("deadline = \"1m\"");
    (config, server)
}

#[test]
fn q14_no_step_of_the_wall_expires_a_live_lease() {
    let (config, server) = short_leases();
    let (daemon, wall_file, _) = with_clocks(&config, "");
    let job = daemon.enqueue("job", &get(&server), &[]);
    server.wait_for(1);
    for by_ms in [DAY_MS, -DAY_MS, 0] {
        set_off(&wall_file, by_ms);
        // Longer than the lease holds without heartbeats.
        let_pass(&daemon, "2s");
    }
    server.let_go();
    assert_eq!(daemon.wait(job), "done");
    assert_eq!(attempts(&daemon, job), ended([("done", true)]));
    assert_eq!(count(&daemon, "leasehold_lease_expiries_total", &[]), 0);
}

#[test]
fn q14_no_step_of_the_wall_keeps_an_expired_lease() {
    for by_ms in [DAY_MS, -DAY_MS] {
        let (config, server) = short_leases();
        let (daemon, wall_file, _) = with_clocks(&config, "heartbeat.send=1*return->off");
        let job = daemon.enqueue("job", &get(&server), &[]);
        server.wait_for(1);
        set_off(&wall_file, by_ms);
        assert_eq!(daemon.wait(job), "done");
        assert_eq!(attempts(&daemon, job), ended([("expired", true), ("done", true)]));
        let waited_ms: i64 = daemon.database().one("SELECT max(leased_at) - min(leased_at) FROM attempts");
        assert!((1_500..30_000).contains(&waited_ms), "{waited_ms} ms");
    }
}

#[test]
fn q14_after_a_suspend_leases_and_delays_are_looked_at_by_the_queues_clock() {
    let (config, server) = short_leases();
    // By timers, which stand still in a suspend, nothing would be looked at for a minute.
    let config = config.kind("visibility_timeout = \"10m\"").kind("heartbeat = \"3m\"").kind("deadline = \"1d\"");
    let (daemon, _, boot_file) = with_clocks(&config, "");
    let job = daemon.enqueue("job", &get(&server), &[]);
    let delayed = daemon.enqueue("job", &echo(), &["--delay", "50m"]);
    server.wait_for(1);
    set_off(&boot_file, HOUR_MS);
    assert_eq!(daemon.wait(job), "done");
    assert_eq!(daemon.wait(delayed), "done");
    assert_eq!(attempts(&daemon, job), ended([("expired", true), ("done", true)]));
    let woken_after_ms: i64 = daemon.database().one("SELECT max(leased_at) - min(leased_at) - 3600000 FROM attempts");
    assert!(woken_after_ms < 40_000, "{woken_after_ms} ms after the suspend");
}

#[test]
fn q14_a_guest_that_ends_while_the_daemon_stands_still_is_settled_once() {
    let (config, server) = short_leases();
    let (daemon, _, _) = with_clocks(&config, "");
    let step = json!({ "do": "step", "name": "send", "url": server.url() });
    let job = daemon.enqueue("job", &step, &[]);
    server.wait_for(1);
    // The answer arrives at the beginning of three visibility timeouts without a heartbeat.
    daemon.signal(rustix::process::Signal::STOP);
    server.let_go();
    daemon.freeze(Duration::from_millis(4_500));
    assert_eq!(daemon.wait(job), "done");
    let shown = daemon.job(job);
    let steps = shown["steps"].as_array().unwrap();
    assert_eq!((steps.len(), &steps[0]["state"]), (1, &json!("applied")));
    let in_doubt: i64 = daemon.database().one("SELECT count(*) FROM step_runs WHERE in_doubt = 1");
    assert_eq!(server.received().len(), 1 + usize::try_from(in_doubt).unwrap());
    assert_eq!(count(&daemon, "leasehold_duplicates_applied_total", &[]), 0);
    daemon.database().check();
}
