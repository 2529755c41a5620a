//! H4 and Q5: what takes long about a component keeps nobody waiting but those who asked for it.

use std::{
    process::{Child, Stdio},
    sync::mpsc,
    time::Duration,
};

use serde_json::{Value, json};

use crate::{
    helpers::{FIRST, SECOND, push_second},
    support::{ConfigText, Daemon, guest},
};

/// Far longer than any of these commands takes.
const PATIENCE: Duration = Duration::from_mins(1);
/// More than the daemon has threads for requests and leases.
const PUSHES: usize = 3;

/// A command that will not come to its end while the daemon lives.
struct Hanging(Child);

impl Hanging {
    fn begin(daemon: &Daemon, arguments: &[&str]) -> Self {
        let mut command = daemon.command(arguments);
        Self(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Hanging {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a command to its end, which a daemon that is blocked would never let it come to.
#[track_caller]
fn ask(daemon: &Daemon, arguments: &[&str]) -> Value {
    let child = daemon.command(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let (sender, ended) = mpsc::channel();
    std::thread::spawn(move || drop(sender.send(child.wait_with_output())));
    let output = ended.recv_timeout(PATIENCE).expect("the daemon answers while it is busy with components").unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap_or_default()
}

fn restart_with(daemon: &mut Daemon, crash_points: &str) {
    daemon.kill();
    daemon.set_crash_points(crash_points);
    daemon.run();
}

#[test]
fn q5_components_that_are_being_stored_delay_no_job_and_no_heartbeat() {
    let config = ConfigText::default().kind("visibility_timeout = \"2s\"").kind("heartbeat = \"200ms\"");
    let mut daemon = Daemon::with_misbehave(&config);
    restart_with(&mut daemon, "artefacts.put=pause");
    let component = guest(FIRST);
    let push = ["handlers", "push", component.to_str().unwrap(), "--name", "misbehave", "--version", "2.0.0"];
    let _pushes: Vec<_> = (0..PUSHES).map(|_| Hanging::begin(&daemon, &push)).collect();
    daemon.wait_for_log_lines(1 + PUSHES, "a component came in");
    // Longer than its lease holds without a heartbeat.
    let payload = json!({ "do": "sleep", "ms": 4_000 }).to_string();
    let job = ask(&daemon, &["enqueue", "job", "--payload", &payload])["id"].to_string();
    ask(&daemon, &["jobs", "wait", &job, "--timeout", "50s"]);
    let shown = ask(&daemon, &["jobs", "show", &job]);
    assert_eq!((&shown["state"], shown["attempts"].as_array().unwrap().len()), (&json!("done"), 1));
}

#[test]
fn h4_a_kind_is_paused_while_a_component_is_being_made_ready() {
    let mut daemon = Daemon::with_misbehave(&ConfigText::default());
    push_second(&daemon);
    restart_with(&mut daemon, "artefacts.get=1*off->pause");
    let _activation = Hanging::begin(&daemon, &["handlers", "activate", SECOND]);
    daemon.wait_for_log_lines(3, "a component is made ready");
    let _reload = Hanging::begin(&daemon, &["reload"]);
    ask(&daemon, &["kinds", "pause", "job"]);
    let job = daemon.enqueue("job", &json!({ "do": "echo" }), &[]);
    assert_eq!(daemon.job(job)["attempts"], json!([]), "a paused kind runs nothing");
    ask(&daemon, &["kinds", "resume", "job"]);
    assert_eq!(daemon.wait(job), "done");
}
