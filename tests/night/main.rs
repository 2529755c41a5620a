//! A night on call, played through with the real binary: a broken version goes live, 500 jobs die of it, some of them with
//! hostile payloads; the dead letters are looked at, the fix is rehearsed, put in and replayed onto, first a probe, then
//! all at a rate, by two operators at once, with a `kill -9` in the middle.
//!
//! A real HTTP server outside counts what reaches it. Nothing here sleeps: it waits for lines, requests and ends of jobs.

#[path = "../support/mod.rs"]
mod support;

mod orders;
mod seen;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use support::{ConfigText, Daemon, Server, guest};

use crate::{
    orders::{HOSTILE, ORDERS, hostile, orders},
    seen::assert_nobody_is_shown,
};

/// How many receipts have been sent when the daemon is killed.
const RECEIPTS_BEFORE_KILL: usize = 60;

fn start(provider: &Server, pager: &Server) -> Daemon {
    let config = ConfigText::default().more(&format!(
        "\"downstream.unavailable\" = \"retry\"\n\
         [alerts]\nwebhook = \"{pager}/pages\"\n\
         [handlers.charge-card]\noutbound = [\"POST {provider}\"]\nsettings = {{ endpoint = \"{provider}\" }}\n\
         [kinds.charge]\nhandler = \"charge-card\"\nowner = \"payments\"\nattempts = 2\nin_doubt = \"begin-again\"\n\
         backoff = {{ min = \"10ms\", max = \"50ms\" }}\nconcurrency = 4\nredact = {{ names = [\"card\", \"text\"] }}\n\
         [kinds.raw]\nhandler = \"charge-card\"\nowner = \"payments\"\nattempts = 1\npayload = \"bytes\"\n",
        provider = provider.url(),
        pager = pager.url()
    ));
    let daemon = Daemon::start(&config);
    daemon.push_live(&guest("charge-card@1.0.0"));
    daemon
}

#[test]
fn r6_a_night_on_call_ends_with_every_effect_applied_once() {
    let (provider, pager) = (Server::accepting(), Server::accepting());
    let mut daemon = start(&provider, &pager);
    everything_dies(&daemon);
    let incident = the_operator_is_paged_and_opens_an_incident(&daemon, &pager);
    assert_nobody_is_shown(&daemon, &pager);
    the_fix_is_rehearsed_and_put_in(&daemon, &provider);
    let bulk = two_operators_replay_at_once(&daemon, &provider);
    provider.wait_for(ORDERS + RECEIPTS_BEFORE_KILL);
    daemon.kill_and_run();
    all_but_the_hostile_end_well(&daemon, &bulk);
    what_nobody_can_read_is_given_up(&daemon);
    daemon.ask(&["incidents", "close", &incident, "--note", "1.1.0 takes orders without a currency"]).json();
    every_effect_was_applied_once(&daemon, &provider);
    the_audit_says_who_did_what(&daemon);
    assert_nobody_is_shown(&daemon, &pager);
    daemon.database().check();
}

fn everything_dies(daemon: &Daemon) {
    let file = daemon.directory().join("orders.jsonl");
    std::fs::write(&file, orders().join("\n")).unwrap();
    let sent = daemon.ask(&["enqueue", "--file", file.to_str().unwrap()]);
    assert_eq!(sent.status, 0, "{sent:?}");
    // The orders die first, so that a rehearsal and a probe, which take the oldest, meet one of them.
    daemon.wait_for_log_lines(ORDERS, "a job died");
    for (kind, payload) in hostile() {
        let file = daemon.directory().join("payload");
        std::fs::write(&file, payload).unwrap();
        let payload = format!("@{}", file.display());
        let bytes: &[&str] = if kind == "raw" { &["--bytes"] } else { &[] };
        daemon.ask(&[&["enqueue", kind, "--payload", &payload], bytes].concat()).json();
    }
    daemon.wait_for_log_lines(ORDERS + HOSTILE, "a job died");
    let groups = daemon.ask(&["dlq", "groups"]).json();
    let counts = groups["items"].as_array().unwrap().iter().map(|group| group["open_dead_letters"].as_u64().unwrap());
    assert_eq!(counts.sum::<u64>(), u64::try_from(ORDERS + HOSTILE).unwrap(), "{groups}");
}

/// A page goes out at the first death and at each doubling, and none once an incident covers the kind.
fn the_operator_is_paged_and_opens_an_incident(daemon: &Daemon, pager: &Server) -> String {
    assert!(pager.wait_for(9).iter().all(|page| page.path == "/pages"));
    let opened = daemon.ask(&["incidents", "open", "--kind", "charge", "--note", "orders die", "--fixed-in", "1.1.0"]);
    opened.json()["id"].to_string()
}

fn the_fix_is_rehearsed_and_put_in(daemon: &Daemon, provider: &Server) {
    let component = guest("charge-card@1.1.0");
    daemon.ask(&["handlers", "push", component.to_str().unwrap()]).json();
    let letter = first_letter(daemon);
    let on_the_broken = daemon.ask(&["dlq", "replay", &letter, "--reason", "again"]);
    assert!(["defect_not_fixed", "not_fixed_in"].contains(&on_the_broken.refusal().as_str()));

    let reached = provider.received().len();
    let answers = daemon.directory().join("answers.jsonl");
    let answer = json!({ "method": "POST", "url": format!("{}/receipts", provider.url()), "status": 201 });
    std::fs::write(&answers, answer.to_string()).unwrap();
    let options = ["--version", "1.1.0", "--answers", answers.to_str().unwrap()];
    let report = daemon.ask(&[&["dlq", "rehearse", &letter], &options[..]].concat()).json();
    let steps: Vec<_> = events(&report, "step_begun").map(|event| (&event["step"], &event["found"])).collect();
    assert_eq!(steps[0], (&json!("charge"), &json!("applied")), "{report}");
    assert_eq!(steps[1], (&json!("receipt"), &json!("fresh")), "{report}");
    assert_eq!(events(&report, "request").count(), 1, "{report}");
    assert_eq!(provider.received().len(), reached, "a rehearsal reached the provider");
    daemon.ask(&["handlers", "activate", "charge-card@1.1.0"]).json();
}

fn events<'a>(report: &'a Value, name: &'static str) -> impl Iterator<Item = &'a Value> {
    report["events"].as_array().unwrap().iter().filter(move |event| event["event"] == name)
}

/// A dead letter of an order, not of a hostile payload.
fn first_letter(daemon: &Daemon) -> String {
    let id: i64 = daemon.database().one("SELECT min(id) FROM dead_letters WHERE kind = 'charge' AND state = 'open'");
    id.to_string()
}

/// Both begin at the same moment; each member goes once, whoever it belongs to. Answers the bulk replays.
fn two_operators_replay_at_once(daemon: &Daemon, provider: &Server) -> Vec<String> {
    let shown = daemon.ask(&["dlq", "replay", "--kind", "charge", "--reason", "fixed", "--dry-run"]).json();
    assert_eq!(shown["with_applied_steps"], ORDERS, "{shown}");
    let before = provider.received().len();
    let options = ["--reason", "fixed in 1.1.0", "--probe", "--rate", "200/s", "--yes"];
    let started: Vec<_> = std::thread::scope(|scope| {
        let ask = || daemon.ask(&[&["dlq", "replay", "--kind", "charge"], &options[..]].concat());
        let operators = [scope.spawn(ask), scope.spawn(ask)];
        operators.map(|operator| operator.join().unwrap()).into()
    });
    let begun: Vec<_> = started.iter().filter(|answer| answer.status == 0).map(|answer| answer.json()).collect();
    let members: u64 = begun.iter().map(|bulk| bulk["counts"]["members"].as_u64().unwrap()).sum();
    assert_eq!(members, shown["replayable"].as_u64().unwrap(), "{started:?}");
    provider.wait_for(before + 1);
    begun.iter().map(|bulk| bulk["id"].to_string()).collect()
}

fn all_but_the_hostile_end_well(daemon: &Daemon, bulks: &[String]) {
    for bulk in bulks {
        let waited = daemon.ask(&["replays", "wait", bulk, "--timeout", "60s"]);
        assert!(matches!(waited.status, 0 | 5), "{waited:?}");
        let shown = daemon.ask(&["replays", "show", bulk]).json();
        assert_eq!(shown["state"], "done", "{shown}");
    }
    let done: usize =
        daemon.database().one::<i64>("SELECT count(*) FROM ended_jobs WHERE state = 'done'").try_into().unwrap();
    assert_eq!(done, ORDERS);
    let replayed_twice = "SELECT dead_letter_id FROM replays GROUP BY dead_letter_id HAVING count(*) > 1";
    assert!(daemon.database().all::<i64>(replayed_twice).is_empty());
}

fn what_nobody_can_read_is_given_up(daemon: &Daemon) {
    let open = daemon.database().all::<i64>("SELECT id FROM dead_letters WHERE state = 'open' ORDER BY id");
    assert_eq!(open.len(), HOSTILE);
    for letter in open {
        let letter = letter.to_string();
        // Each of them can be looked at, whatever is in it.
        daemon.ask(&["dlq", "show", &letter]).json();
        daemon.ask(&["dlq", "discard", &letter, "--reason", "nobody can read it"]).json();
    }
}

/// The provider deduplicates by key, as payment services do: what it counts is keys.
fn every_effect_was_applied_once(daemon: &Daemon, provider: &Server) {
    let mut keys: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
    let mut requests = 0;
    for request in provider.received() {
        let body: Value = serde_json::from_str(&request.body).unwrap();
        let key = request.header("idempotency-key").expect("a key").to_owned();
        keys.entry((request.path.clone(), body["order"].as_str().unwrap().to_owned())).or_default().insert(key);
        requests += 1;
    }
    assert_eq!(keys.len(), 2 * ORDERS);
    let (twice, all): (Vec<_>, BTreeSet<_>) =
        (keys.iter().filter(|(_, keys)| keys.len() > 1).collect(), keys.values().flatten().collect());
    assert!(twice.is_empty(), "{twice:?}");
    assert_eq!(all.len(), 2 * ORDERS, "two effects share a key");
    // Whatever went out again did so because nobody could know whether it had arrived before the kill.
    let in_doubt: i64 = daemon.database().one("SELECT count(*) FROM step_runs WHERE in_doubt = 1");
    assert!(requests - 2 * ORDERS <= usize::try_from(in_doubt).unwrap(), "{requests} requests, {in_doubt} in doubt");
}

fn the_audit_says_who_did_what(daemon: &Daemon) {
    let rows = "SELECT action || ' ' || count(*) FROM audit WHERE actor <> '' GROUP BY action";
    let acts: BTreeMap<String, usize> = daemon
        .database()
        .all::<String>(rows)
        .iter()
        .map(|row| row.rsplit_once(' ').map(|(action, count)| (action.to_owned(), count.parse().unwrap())).unwrap())
        .collect();
    for (action, count) in [
        ("incident.open", 1),
        ("incident.close", 1),
        ("dead_letter.rehearse", 1),
        ("handler.activate", 2),
        ("dead_letter.discard", HOSTILE),
    ] {
        assert_eq!(acts.get(action), Some(&count), "{action}: {acts:?}");
    }
    let replays: i64 = daemon.database().one("SELECT count(*) FROM replays");
    assert_eq!(acts.get("dead_letter.replay").copied(), usize::try_from(replays).ok(), "{acts:?}");
}
