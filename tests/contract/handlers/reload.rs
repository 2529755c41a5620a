//! H10: a changed configuration is applied whole or not at all, to attempts that begin after it.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    helpers::{FIRST, detail, done, version},
    support::{ConfigText, Daemon, Reply, Server},
};

fn greeting(daemon: &Daemon) -> Value {
    done(daemon, &json!({ "do": "settings", "name": "greeting" }))
}

#[test]
fn h10_a_changed_grant_holds_for_new_attempts_and_running_ones_keep_theirs() {
    let server = Server::answering(|_, number| match number {
        0 => Reply::Held(Box::new(Reply::status(200))),
        _ => Reply::status(200),
    });
    let daemon = Daemon::with_misbehave(&ConfigText::default().reaching(server.url()));
    let two = json!({ "do": "step", "name": "s", "url": server.url(), "requests": 2, "own_key": true });
    let running = daemon.enqueue("job", &two, &[]);
    server.wait_for(1);
    daemon.write_config(&ConfigText::default());
    daemon.ask(&["reload"]).json();
    assert_eq!(done(&daemon, &json!({ "do": "get", "url": server.url() }))["error"], "Denied");
    server.let_go();
    assert_eq!(daemon.wait(running), "done");
    // Its second request came after the reload, under the grants that it began with.
    assert_eq!(daemon.result(running)["result"]["answers"][1]["status"], 200);
    assert_eq!(server.received().len(), 2);
}

#[test]
fn h10_a_new_kind_and_a_new_limit_hold_after_a_reload() {
    let daemon = Daemon::with_misbehave(&ConfigText::default().kind("attempts = 1"));
    assert_eq!(daemon.ask(&["enqueue", "later", "--payload", "{}"]).refusal(), "unknown_kind");
    let output = json!({ "do": "output", "bytes": 100 });
    done_with_any_result(&daemon, &output, "done");
    let changed = ConfigText::default().kind("attempts = 1").handler("limits = { output_max = \"99B\" }");
    daemon.write_config(&changed.another_kind("later", ""));
    daemon.ask(&["reload"]).json();
    done_with_any_result(&daemon, &output, "dead");
    let job = daemon.enqueue("later", &json!({ "do": "count" }), &[]);
    assert_eq!(daemon.wait(job), "done");
    assert_eq!(daemon.database().one::<i64>("SELECT count(*) FROM audit WHERE action = 'config.reload'"), 1);
    assert_eq!(daemon.log().matches("ready socket").count(), 1);
}

#[track_caller]
fn done_with_any_result(daemon: &Daemon, payload: &Value, end: &str) {
    let job = daemon.enqueue("job", payload, &[]);
    assert_eq!(daemon.wait(job), end);
}

#[test]
fn h10_the_signal_reloads_as_the_command_does() {
    let daemon = Daemon::with_misbehave(&ConfigText::default());
    daemon.write_config(&ConfigText::default().handler("settings = { greeting = \"changed\" }"));
    daemon.signal(Signal::HUP);
    daemon.wait_for_log("the configuration was reloaded");
    assert_eq!(greeting(&daemon), "changed");
    let actor: String = daemon.database().one("SELECT actor FROM audit WHERE action = 'config.reload'");
    assert_eq!(actor, "signal:SIGHUP");
}

#[test]
fn h10_what_can_not_be_applied_whole_changes_nothing() {
    let daemon = Daemon::with_misbehave(&ConfigText::default());
    let changed = || ConfigText::default().handler("settings = { greeting = \"changed\" }");
    let refused = [
        (changed().kind("no_such_key = 1"), "config_invalid", "no_such_key"),
        (changed().kind("visibility_timeout = \"2s\""), "config_invalid", "heartbeat"),
        (changed().sandbox("slots = 9"), "needs_restart", "slots"),
        (changed().daemon("shutdown_grace = \"6s\""), "needs_restart", "[daemon]"),
        (changed().queue("durability = \"normal\""), "needs_restart", "durability"),
        // The live version imports what it would no longer be granted.
        (changed().handler("outbound = []"), "component_not_granted", "wasi:http/outgoing-handler"),
    ];
    for (config, code, words) in refused {
        daemon.write_config(&config);
        let answer = daemon.ask(&["reload"]);
        assert_eq!(answer.refusal(), code);
        assert!(detail(&answer).contains(words), "{code}: {}", detail(&answer));
        assert_eq!(greeting(&daemon), "hello", "after {code}");
    }
    assert_eq!(version(&daemon, FIRST)["state"], "live");
    assert_eq!(daemon.database().one::<i64>("SELECT count(*) FROM audit WHERE action = 'config.reload'"), 0);
    daemon.write_config(&changed());
    daemon.ask(&["reload"]).json();
    assert_eq!(greeting(&daemon), "changed");
}
