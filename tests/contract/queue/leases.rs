//! Q1 to Q7: enqueue, leases, heartbeats, expiry and fencing.

use serde_json::json;

use crate::support::{ConfigText, Daemon};

#[test]
fn q1_an_answered_enqueue_survives_a_kill() {
    let mut daemon = Daemon::start(&ConfigText::default());
    let job = daemon.enqueue("job", &json!({ "do": "echo" }), &["--key", "order-1"]);
    daemon.kill_and_run();
    assert_eq!(daemon.job(job)["state"], "ready");
    let again = daemon.ask(&["enqueue", "job", "--payload", r#"{"do":"echo"}"#, "--key", "order-1"]).json();
    assert_eq!((&again["id"], &again["duplicate"]), (&json!(job), &json!(true)));
    daemon.database().check();
}
