//! Q11, H1 and their like: what is wrong with the daemon itself is shown while it holds, told once, and over when it is.

use std::fs;

use rusqlite::Connection;
use serde_json::{Value, json};

use crate::{
    letters::{activate, config, letter_of, other_misbehave, push, refused_replay, replay, told},
    pages::{alert_names, paging},
    support::{Daemon, Received, Reply, Server, daemon::PATIENCE, guest},
};

/// The one active alert of a name.
#[track_caller]
fn alert(daemon: &Daemon, name: &str) -> Value {
    let alerts = daemon.ask(&["alerts", "ls"]).json();
    let found = alerts["items"].as_array().unwrap().iter().find(|alert| alert["alert"] == name);
    found.unwrap_or_else(|| panic!("no alert {name}: {alerts}")).clone()
}

fn is_active(daemon: &Daemon, name: &str) -> bool {
    daemon.metric("leasehold_alert_active", &[("alert", name)]) > 0.5
}

/// The codes of the alerts of a name that were told.
fn told_of(received: &[Received], name: &str) -> Vec<String> {
    let bodies = received.iter().map(|page| serde_json::from_str::<Value>(&page.body).unwrap());
    bodies.filter(|body| body["alert"] == name).map(|body| body["code"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn q11_a_dead_letter_that_can_not_be_written_is_an_alert_until_it_is() {
    let server = Server::accepting();
    let mut daemon = Daemon::with_misbehave(&paging(&server));
    daemon.terminate();
    daemon.set_crash_points("dead_letter.write=return");
    daemon.run();
    let job = daemon.enqueue("job", &told("rejected", "shop.closed"), &[]);
    let received = server.wait_for(1);
    assert_eq!(told_of(&received, "verdicts_held"), ["database_unexpected"]);
    let shown = alert(&daemon, "verdicts_held");
    assert!(shown["detail"].as_str().unwrap().contains(&format!("{job}#1")), "{shown}");
    assert!(shown["to_do"].as_str().unwrap().contains("let the daemon run"), "{shown}");
    assert!(is_active(&daemon, "verdicts_held"));
    // It is told once, however often it fails.
    daemon.wait_for_log_lines(4, "a settlement could not be written");
    daemon.wait_for_log("an alert was sent");
    assert_eq!(server.received().len(), 1);
    daemon.kill();
    daemon.set_crash_points("");
    daemon.run();
    assert_eq!(daemon.wait(job), "dead");
    assert_eq!(alert_names(&daemon), ["dead_letters"]);
    assert!(!is_active(&daemon, "verdicts_held"));
}

#[test]
fn q11_the_alert_is_over_when_every_held_verdict_is_written() {
    let server = Server::accepting();
    let mut daemon = Daemon::with_misbehave(&paging(&server));
    daemon.terminate();
    daemon.set_crash_points("dead_letter.write=10*return->off");
    daemon.run();
    let jobs = [1, 2].map(|_| daemon.enqueue("job", &told("rejected", "shop.closed"), &[]));
    for job in jobs {
        assert_eq!(daemon.wait(job), "dead");
    }
    daemon.wait_for_log("an alert is over alert=\"verdicts_held\"");
    assert_eq!(alert_names(&daemon), ["dead_letters"]);
    // The alert, and the pages of the dead letters once they are written: none of it is lost, none is told twice.
    let received = server.wait_for(3);
    assert_eq!(told_of(&received, "verdicts_held").len(), 1);
    assert_eq!(daemon.database().one::<i64>("SELECT arrivals FROM uncovered_arrivals"), 2);
}

#[test]
fn h1_a_component_that_does_not_have_its_digest_is_an_alert_until_it_is_pushed_again() {
    let server = Server::accepting();
    let mut daemon = Daemon::with_misbehave(&paging(&server));
    let second = other_misbehave(daemon.directory(), 1);
    let digest = push(&daemon, &second, "1.1.0")["digest"].as_str().unwrap().to_owned();
    let stored = daemon.data().join("handlers").join(format!("{digest}.wasm"));
    let whole = fs::read(&stored).unwrap();
    fs::write(&stored, &whole[..whole.len() / 2]).unwrap();
    assert_eq!(daemon.ask(&["handlers", "activate", "misbehave@1.1.0"]).refusal(), "component_damaged");
    let shown = alert(&daemon, "component_damaged");
    assert_eq!(shown["subject"], "misbehave@1.1.0");
    assert!(shown["detail"].as_str().unwrap().contains("does not have its digest"), "{shown}");
    assert!(is_active(&daemon, "component_damaged"));
    let page: Value = serde_json::from_str(&server.wait_for(1)[0].body).unwrap();
    assert_eq!((&page["alert"], &page["subject"]), (&json!("component_damaged"), &json!("misbehave@1.1.0")));
    assert!(!page.to_string().contains("leasehold-data"), "a page quotes a path: {page}");
    push(&daemon, &second, "1.1.0");
    assert_eq!(alert_names(&daemon), [""; 0]);
    assert!(!is_active(&daemon, "component_damaged"));
    activate(&daemon, "1.1.0", &[]);
    // A live one that is damaged is found by the next start.
    daemon.terminate();
    fs::remove_file(&stored).unwrap();
    daemon.run();
    assert!(alert(&daemon, "component_damaged")["detail"].as_str().unwrap().contains("is missing"));
    server.wait_for(2);
    push(&daemon, &second, "1.1.0");
    assert_eq!(alert_names(&daemon), [""; 0]);
}

#[test]
fn h1_a_component_that_is_damaged_under_a_live_version_is_an_alert_when_a_replay_meets_it() {
    let daemon = Daemon::with_misbehave(&config());
    let letter = letter_of(&daemon, "job", &told("rejected", "shop.closed"));
    let stored = daemon.data().join("handlers").join(format!("{}.wasm", letter["digest"].as_str().unwrap()));
    let whole = fs::read(&stored).unwrap();
    fs::write(&stored, &whole[1..]).unwrap();
    assert_eq!(refused_replay(&daemon, &letter, &[]).0, "version_not_live");
    assert_eq!(alert(&daemon, "component_damaged")["subject"], "misbehave@1.0.0");
    push(&daemon, &guest("misbehave@1.0.0"), "1.0.0");
    assert_eq!(alert_names(&daemon), ["dead_letters"]);
    fs::write(&stored, &whole[1..]).unwrap();
    assert_eq!(refused_replay(&daemon, &letter, &[]).0, "version_not_live");
    // Put right by somebody else, it is over when it is looked at.
    fs::write(&stored, &whole).unwrap();
    replay(&daemon, &letter, &[]);
    assert_eq!(alert_names(&daemon), ["dead_letters"]);
}

#[test]
fn q17_too_little_disk_is_an_alert_until_there_is_enough() {
    let server = Server::accepting();
    let daemon = Daemon::with_misbehave(&paging(&server));
    daemon.write_config(&paging(&server).queue("disk_reserve = \"1024GiB\""));
    daemon.ask(&["reload"]).json();
    let enqueue = ["enqueue", "job", "--payload", r#"{"do":"echo"}"#];
    assert_eq!(daemon.ask(&enqueue).refusal(), "disk_low");
    assert!(alert(&daemon, "disk_low")["detail"].as_str().unwrap().contains("disk_reserve"));
    assert_eq!(told_of(&server.wait_for(1), "disk_low"), ["disk_low"]);
    daemon.write_config(&paging(&server).queue("disk_reserve = \"0B\""));
    daemon.ask(&["reload"]).json();
    daemon.ask(&enqueue).json();
    assert_eq!(alert_names(&daemon), [""; 0]);
}

#[test]
fn d4_a_key_that_is_not_there_is_an_alert_and_pages_go_out_without_it() {
    let server = Server::answering(|_, number| if number == 0 { Reply::status(500) } else { Reply::status(200) });
    let mut daemon = Daemon::with_misbehave(&paging(&server));
    letter_of(&daemon, "job", &told("rejected", "shop.closed"));
    server.wait_for(1);
    daemon.kill();
    let key = daemon.data().join("leasehold.key");
    fs::rename(&key, daemon.directory().join("away")).unwrap();
    daemon.run();
    assert_eq!(alert_names(&daemon), ["key_unavailable", "dead_letters"]);
    // The page that was not taken before, and the alert.
    let received = server.wait_for(3);
    assert_eq!(told_of(&received, "key_unavailable"), ["key_unavailable"]);
    daemon.terminate();
    fs::rename(daemon.directory().join("away"), &key).unwrap();
    daemon.run();
    assert_eq!(alert_names(&daemon), ["dead_letters"]);
}

#[test]
fn f2_an_outbox_that_can_not_be_relayed_is_an_alert_until_it_can() {
    let server = Server::accepting();
    let outbox = "[outbox.shop]\ndatabase = \"shop.db\"\npoll = \"20ms\"";
    let daemon = Daemon::start(&paging(&server).more(outbox));
    assert_eq!(told_of(&server.wait_for(1), "outbox_stuck").len(), 1);
    assert_eq!(alert(&daemon, "outbox_stuck")["subject"], "shop");
    let database = Connection::open(daemon.directory().join("shop.db")).unwrap();
    database.busy_timeout(PATIENCE).unwrap();
    let table =
        "CREATE TABLE outbox (id INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT, payload TEXT, relayed_at INTEGER)";
    database.execute_batch(table).unwrap();
    daemon.wait_for_log("an alert is over alert=\"outbox_stuck\"");
    assert_eq!(alert_names(&daemon), [""; 0]);
}

#[test]
fn q7_leases_that_can_not_be_extended_are_an_alert_until_they_are() {
    let server = Server::answering(|request, _| match request.path.as_str() {
        "/held" => Reply::Held(Box::new(Reply::status(200))),
        _ => Reply::status(200),
    });
    let lines = "visibility_timeout = \"60s\"\nheartbeat = \"50ms\"\ndeadline = \"60s\"";
    let config = paging(&server).reaching(server.url()).another_kind("slow", lines);
    let daemon = Daemon::start(&config);
    daemon.push_live(&guest("misbehave@1.0.0"));
    let job = daemon.enqueue("slow", &json!({ "do": "get", "url": format!("{}/held", server.url()) }), &[]);
    server.wait_for(1);
    // Another program holds the database's lock for longer than a write waits.
    let other = Connection::open(daemon.data().join("leasehold.db")).unwrap();
    other.busy_timeout(PATIENCE).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    // The alert is told although nothing can be written.
    let received = server.wait_for(2);
    assert_eq!(told_of(&received[1..], "leases_not_extended"), ["database_busy"]);
    assert_eq!(alert(&daemon, "leases_not_extended")["alert"], "leases_not_extended");
    other.execute_batch("ROLLBACK").unwrap();
    daemon.wait_for_log("an alert is over alert=\"leases_not_extended\"");
    server.let_go();
    assert_eq!(daemon.wait(job), "done");
}

#[test]
fn o2_the_daemons_alerts_are_at_zero_from_the_start() {
    let daemon = Daemon::start(&config());
    assert_eq!(alert_names(&daemon), [""; 0]);
    let metrics = daemon.metrics();
    for name in [
        "verdicts_held",
        "leases_not_extended",
        "component_damaged",
        "disk_low",
        "key_unavailable",
        "outbox_stuck",
        "pages_undelivered",
        "dead_letters",
    ] {
        assert!(metrics.contains(&format!("leasehold_alert_active{{alert=\"{name}\"}} 0")), "{name}:\n{metrics}");
    }
}
