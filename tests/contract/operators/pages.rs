//! O2: when dead letters arrive somebody is told, once and at each doubling, whatever happens in between, and never with
//! anything of a job.

use std::{
    fs,
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use hmac::{Hmac, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;

use crate::{
    forms::assert_free,
    letters::{config, id, letter_of, told},
    support::{ConfigText, Daemon, Received, Reply, Server, guest},
};

/// A configuration whose pages go to the server.
pub fn paging(server: &Server) -> ConfigText {
    paging_with(server, "")
}

fn paging_with(server: &Server, lines: &str) -> ConfigText {
    config().more(&format!("[alerts]\nwebhook = \"{}/page?to=ops\"\n{lines}", server.url()))
}

/// Lets a job of kind `job` die of a class; answers its dead letter.
#[track_caller]
fn dies(daemon: &Daemon) -> Value {
    letter_of(daemon, "job", &told("rejected", "shop.closed"))
}

fn bodies(received: &[Received]) -> Vec<Value> {
    received.iter().map(|page| serde_json::from_str(&page.body).unwrap()).collect()
}

fn arrivals(received: &[Received]) -> Vec<u64> {
    bodies(received).iter().map(|body| body["arrivals"].as_u64().unwrap()).collect()
}

/// The pages that the daemon knows of, the first one first.
#[track_caller]
fn pages(daemon: &Daemon) -> Vec<Value> {
    let mut pages = daemon.ask(&["alerts", "pages"]).json()["items"].as_array().unwrap().clone();
    pages.reverse();
    pages
}

#[track_caller]
fn open_incident(daemon: &Daemon, options: &[&str]) -> String {
    id(&daemon.ask(&[&["incidents", "open", "--kind", "job", "--note", "seen"], options].concat()).json())
}

#[test]
fn o2_dead_letters_page_once_and_at_each_doubling_whatever_becomes_of_them() {
    let server = Server::accepting();
    let daemon = Daemon::with_misbehave(&paging(&server));
    for _ in 0..8 {
        let letter = dies(&daemon);
        daemon.ask(&["dlq", "discard", &id(&letter), "--reason", "given up"]).json();
    }
    let received = server.wait_for(4);
    daemon.wait_for_log_lines(4, "a page was sent");
    assert_eq!(arrivals(&received), [1, 2, 4, 8]);
    assert_eq!(pages(&daemon).len(), 4, "a page is made with its dead letter or not at all");
    assert_eq!(server.received().len(), 4);
    let last = &bodies(&received)[3];
    assert_eq!(
        (&last["type"], &last["kind"], &last["error_class"], &last["cause"], &last["handler"]),
        (&json!("dead_letters"), &json!("job"), &json!("shop.closed"), &json!("rejected"), &json!("misbehave@1.0.0"))
    );
    assert_eq!((&last["dead_letter_id"], &last["previous_incident_id"]), (&json!(8), &Value::Null));
    let request = &received[3];
    assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/page?to=ops"));
    assert_eq!(request.header("content-type"), Some("application/json"));
    assert_eq!(request.header("idempotency-key"), last["id"].as_str());
    assert_eq!(request.header("webhook-signature"), None);
    let shown = pages(&daemon).pop().unwrap();
    assert_eq!((&shown["page_id"], &shown["sent_by"], &shown["failures"]), (&last["id"], &json!("webhook"), &json!(0)));
}

#[test]
fn o2_the_first_page_waits_for_as_many_as_the_configuration_says() {
    let server = Server::accepting();
    let daemon = Daemon::with_misbehave(&paging_with(&server, "page_after = 2"));
    for _ in 0..5 {
        dies(&daemon);
    }
    // Another class is counted by itself.
    letter_of(&daemon, "job", &told("poison", "shop.defect"));
    assert_eq!(arrivals(&server.wait_for(2)), [2, 4]);
    assert_eq!(pages(&daemon).len(), 2);
}

#[test]
fn o2_an_open_incident_pages_nobody_and_counting_starts_anew_after_it() {
    let server = Server::accepting();
    let daemon = Daemon::with_misbehave(&paging(&server));
    dies(&daemon);
    let other = open_incident(&daemon, &["--class", "shop.defect"]);
    dies(&daemon);
    assert_eq!(arrivals(&server.wait_for(2)), [1, 2], "an incident of another class covers nothing of this one");
    let incident = open_incident(&daemon, &["--class", "shop.closed"]);
    for _ in 0..3 {
        dies(&daemon);
    }
    assert_eq!(pages(&daemon).len(), 2);
    let shown = daemon.ask(&["incidents", "show", &incident]).json();
    assert_eq!((&shown["arrivals"], &shown["open_dead_letters"]), (&json!(3), &json!(5)));
    let group = json!([{ "error_class": "shop.closed", "handler": "misbehave@1.0.0", "arrivals": 3,
                         "open_dead_letters": 5 }]);
    assert_eq!(shown["groups"], group);
    assert_eq!(shown["pages"].as_array().unwrap().len(), 2);
    daemon.ask(&["incidents", "close", &incident, "--note", "the shop is open again"]).json();
    daemon.ask(&["incidents", "close", &other, "--note", "no"]).json();
    dies(&daemon);
    let received = server.wait_for(3);
    assert_eq!(arrivals(&received), [1, 2, 1]);
    assert_eq!(bodies(&received)[2]["previous_incident_id"].to_string(), incident);
    assert_eq!(pages(&daemon).len(), 3);
    daemon.database().check();
}

/// A daemon that is killed at a point while a job dies, and runs again.
fn killed_at(server: &Server, point: &str) -> (Daemon, i64) {
    let mut daemon = Daemon::with_misbehave(&paging(server));
    daemon.terminate();
    daemon.set_crash_points(&format!("{point}=kill"));
    daemon.run();
    let job = daemon.enqueue("job", &told("rejected", "shop.closed"), &[]);
    daemon.wait_for_exit();
    daemon.set_crash_points("");
    daemon.run();
    assert_eq!(daemon.wait(job), "dead");
    (daemon, job)
}

#[test]
fn o2_a_kill_between_a_dead_letter_and_its_page_loses_no_page() {
    let server = Server::accepting();
    let (daemon, _) = killed_at(&server, "page.send");
    daemon.wait_for_log("a page was sent");
    assert_eq!(arrivals(&server.received()), [1]);
    assert_eq!(pages(&daemon).len(), 1);
}

#[test]
fn o2_a_kill_between_a_page_and_its_record_sends_it_again_under_the_same_id() {
    let server = Server::accepting();
    let (daemon, _) = killed_at(&server, "page.sent");
    daemon.wait_for_log("a page was sent");
    let received = server.received();
    assert_eq!(received.len(), 2);
    assert_eq!(received[0].body, received[1].body);
    assert_eq!(received[0].header("idempotency-key"), received[1].header("idempotency-key"));
    assert_eq!(pages(&daemon)[0]["sent_by"], "webhook");
}

#[test]
fn o2_a_kill_before_a_dead_letters_commit_counts_nothing() {
    let server = Server::accepting();
    let (daemon, _) = killed_at(&server, "settle.before_commit");
    daemon.wait_for_log("a page was sent");
    assert_eq!(arrivals(&server.received()), [1]);
    assert_eq!(daemon.database().one::<i64>("SELECT arrivals FROM uncovered_arrivals"), 1);
}

#[test]
fn o2_a_page_that_is_not_taken_is_tried_again_and_holds_nothing_up() {
    let server = Server::answering(|_, number| match number {
        0 => Reply::status(503),
        1 => Reply::Held(Box::new(Reply::status(202))),
        _ => Reply::status(204),
    });
    let daemon = Daemon::with_misbehave(&paging(&server));
    let first = dies(&daemon);
    let received = server.wait_for(2);
    assert_eq!(received[0].body, received[1].body, "it is the same page");
    assert!(received[1].at_ms - received[0].at_ms >= 1_000, "it waited before the second try");
    let waiting = &pages(&daemon)[0];
    assert_eq!((&waiting["failures"], waiting.get("sent_at")), (&json!(1), None));
    assert!(waiting["last_error"].as_str().unwrap().contains("503"), "{waiting}");
    assert_eq!(alert_names(&daemon), ["pages_undelivered", "dead_letters"]);
    // While the receiver thinks about it, jobs end as ever.
    let second = dies(&daemon);
    assert_ne!(first["id"], second["id"]);
    let done = daemon.enqueue("job", &json!({ "do": "echo" }), &[]);
    assert_eq!(daemon.wait(done), "done");
    server.let_go();
    daemon.wait_for_log_lines(2, "a page was sent");
    assert_eq!(arrivals(&server.received()), [1, 1, 2]);
    assert_eq!(alert_names(&daemon), ["dead_letters"]);
    assert!((daemon.metric("leasehold_page_failures_total", &[]) - 1.0).abs() < 0.1);
    assert!((daemon.metric("leasehold_pages_sent_total", &[("by", "webhook")]) - 2.0).abs() < 0.1);
}

/// The names of the active alerts.
#[track_caller]
pub fn alert_names(daemon: &Daemon) -> Vec<String> {
    let alerts = daemon.ask(&["alerts", "ls"]).json();
    alerts["items"].as_array().unwrap().iter().map(|alert| alert["alert"].as_str().unwrap().to_owned()).collect()
}

/// A script beside the daemon's configuration.
fn script(directory: &Path, text: &str) -> PathBuf {
    let path = directory.join("page.sh");
    let mut options = fs::OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o700).open(&path).unwrap();
    std::io::Write::write_all(&mut &file, format!("#!/bin/sh\n{text}\n").as_bytes()).unwrap();
    assert!(fs::metadata(&path).unwrap().permissions().mode() & 0o100 != 0);
    path
}

/// A daemon whose pages go to a script, which is given the words `$HOME` and `a b`.
fn with_script(text: &str, lines: &str) -> Daemon {
    let mut daemon = Daemon::prepare(&config());
    script(daemon.directory(), text);
    daemon.write_config(&config().more(&format!("[alerts]\ncommand = [\"./page.sh\", \"$HOME\", \"a b\"]\n{lines}")));
    daemon.set_environment("TEST_SECRET", "not-for-scripts");
    daemon.run();
    daemon.push_live(&guest("misbehave@1.0.0"));
    daemon
}

#[test]
fn o2_pages_go_to_a_command_that_no_shell_reads() {
    let daemon = with_script(
        "d=$(dirname \"$0\")\ncat >> \"$d/pages\"\nprintf '%s|%s|%s\\n' \"$#\" \"$1\" \"$2\" > \"$d/words\"\nenv > \"$d/env\"",
        "",
    );
    dies(&daemon);
    daemon.wait_for_log("a page was sent");
    dies(&daemon);
    daemon.wait_for_log_lines(2, "a page was sent");
    let read = |name: &str| fs::read_to_string(daemon.directory().join(name)).unwrap();
    let told: Vec<Value> = read("pages").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(told.iter().map(|page| page["arrivals"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(read("words"), "2|$HOME|a b\n");
    let environment = read("env");
    assert!(!environment.contains("TEST_SECRET") && environment.contains("PATH="), "{environment}");
    assert!(environment.contains(&format!("LEASEHOLD_PAGE_ID={}", told[1]["id"].as_str().unwrap())), "{environment}");
    assert_eq!(pages(&daemon)[0]["sent_by"], "command");
}

#[test]
fn o2_a_command_that_fails_or_hangs_is_killed_and_tried_again() {
    let text = "d=$(dirname \"$0\")\necho $$ >> \"$d/runs\"\ncase $(wc -l < \"$d/runs\") in\n1) exit 3;;\n\
                2) sleep 1000;;\n*) cat > \"$d/page\";;\nesac";
    let daemon = with_script(text, "timeout = \"1s\"");
    dies(&daemon);
    daemon.wait_for_log("the command ended with exit status: 3");
    daemon.wait_for_log("the command took longer than 1000 ms");
    let runs = fs::read_to_string(daemon.directory().join("runs")).unwrap();
    let hung = runs.lines().nth(1).and_then(|id| rustix::process::Pid::from_raw(id.parse().unwrap())).unwrap();
    assert!(rustix::process::test_kill_process(hung).is_err(), "it runs still");
    daemon.wait_for_log("a page was sent");
    assert!(fs::read_to_string(daemon.directory().join("page")).unwrap().contains("\"arrivals\":1"));
}

#[test]
fn o2_without_a_receiver_a_page_is_logged_once_and_shown() {
    let mut daemon = Daemon::with_misbehave(&config());
    dies(&daemon);
    daemon.wait_for_log("a page was sent");
    let logged = "a dead letter of kind job with the error class shop.closed has arrived";
    assert_eq!(daemon.log().matches(logged).count(), 1);
    assert_eq!(pages(&daemon)[0]["sent_by"], "log");
    let alerts = daemon.ask(&["alerts", "ls"]).json();
    let alert = &alerts["items"][0];
    assert_eq!((&alert["alert"], &alert["subject"]), (&json!("dead_letters"), &json!("job shop.closed")));
    assert!(alert["to_do"].as_str().unwrap().contains("incidents open --kind job --class shop.closed"), "{alert}");
    let active = |daemon: &Daemon| daemon.metric("leasehold_alert_active", &[("alert", "dead_letters")]) > 0.5;
    assert!(active(&daemon));
    daemon.terminate();
    daemon.run();
    // The page after it is sent after whatever else there was to send.
    dies(&daemon);
    daemon.wait_for_log_lines(2, "a page was sent");
    assert_eq!(daemon.log().matches(logged).count(), 1);
    open_incident(&daemon, &[]);
    assert_eq!(alert_names(&daemon), [""; 0]);
    assert!(!active(&daemon));
}

#[test]
fn o2_a_reload_changes_where_pages_go_and_a_secret_signs_them() {
    let server = Server::accepting();
    let mut daemon = Daemon::prepare(&config());
    daemon.set_environment("TEST_ALERTS_SECRET", &format!("whsec_{}", BASE64_STANDARD.encode("a-signing-key")));
    daemon.run();
    daemon.push_live(&guest("misbehave@1.0.0"));
    daemon.write_config(&paging_with(&server, "webhook_secret = { env = \"TEST_ALERTS_SECRET\" }"));
    daemon.ask(&["reload"]).json();
    dies(&daemon);
    let page = &server.wait_for(1)[0];
    let header = |name: &str| page.header(name).unwrap_or_else(|| panic!("no {name}: {page:?}"));
    let mut mac = Hmac::<Sha256>::new_from_slice(b"a-signing-key").unwrap();
    mac.update(format!("{}.{}.{}", header("webhook-id"), header("webhook-timestamp"), page.body).as_bytes());
    let expected = format!("v1,{}", BASE64_STANDARD.encode(mac.finalize().into_bytes()));
    assert_eq!(header("webhook-signature"), expected);
    assert_eq!(header("webhook-id"), header("idempotency-key"));
}

#[test]
fn d2_no_page_holds_anything_of_a_job() {
    const CANARIES: [&str; 6] = [
        "payl0ad-canary@example.org",
        "k3y-canary@example.org",
        "m3ssage-canary@example.org",
        "lane-canary",
        "m3ta-canary@example.org",
        "n0te-canary",
    ];
    let [payload, key, message, lane, metadata, note] = CANARIES;
    let server = Server::accepting();
    let daemon = Daemon::with_misbehave(&paging(&server));
    let act = json!({ "do": "fail", "as": "rejected", "class": "shop.closed", "message": message, "x": payload });
    let metadata = format!("email={metadata}");
    for number in 0..2 {
        let key = format!("{key}{number}");
        let job = daemon.enqueue("job", &act, &["--key", &key, "--lane", lane, "--meta", &metadata]);
        assert_eq!(daemon.wait(job), "dead");
    }
    server.wait_for(2);
    let incident = id(&daemon.ask(&["incidents", "open", "--kind", "job", "--note", note]).json());
    daemon.ask(&["incidents", "close", &incident, "--note", note]).json();
    dies(&daemon);
    for page in server.wait_for(3) {
        assert_free(&format!("{page:?}"), &CANARIES, "a page");
    }
    assert_free(&daemon.ask(&["alerts", "pages"]).stdout, &CANARIES, "the list of pages");
    assert_free(&daemon.ask(&["alerts", "ls"]).stdout, &CANARIES, "the list of alerts");
    assert_free(&daemon.ask(&["dlq", "groups"]).stdout, &CANARIES, "the groups");
}
