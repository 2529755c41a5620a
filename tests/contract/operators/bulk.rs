//! What tests of bulk replays share: dead letters in numbers, and questions about a bulk replay. It asserts nothing of a
//! clause by itself.

use std::{collections::BTreeSet, sync::Mutex};

use serde_json::{Value, json};

use crate::{
    letters::config,
    raw_http,
    support::{Answer, ConfigText, Daemon, Reply, Server, daemon::PATIENCE},
};

/// Enqueues jobs that have to die; answers their dead letters in the order of their ids.
#[track_caller]
pub fn die(daemon: &Daemon, kind: &str, payload: &Value, count: usize) -> Vec<i64> {
    let jobs: Vec<_> = (0..count).map(|_| daemon.enqueue(kind, payload, &[])).collect();
    for job in &jobs {
        assert_eq!(daemon.wait(*job), "dead");
    }
    let mut letters: Vec<_> = jobs.into_iter().map(|job| daemon.dead_letter(job)["id"].as_i64().unwrap()).collect();
    // They run side by side, so the first may die last.
    letters.sort_unstable();
    letters
}

/// Previews the kind `job` with further options.
#[track_caller]
pub fn preview(daemon: &Daemon, options: &[&str]) -> Value {
    daemon.ask(&[&["dlq", "replay", "--kind", "job", "--dry-run"], options].concat()).json()
}

/// Asks for a bulk replay of the kind `job` with further options.
pub fn ask_for(daemon: &Daemon, options: &[&str]) -> Answer {
    daemon.ask(&[&["dlq", "replay", "--kind", "job", "--reason", "mended", "--yes"], options].concat())
}

/// Starts a bulk replay of the kind `job` with further options; answers its id.
#[track_caller]
pub fn start(daemon: &Daemon, options: &[&str]) -> String {
    ask_for(daemon, options).json()["id"].to_string()
}

/// Waits until nothing of a bulk replay is under way; answers how it stands.
#[track_caller]
pub fn settle(daemon: &Daemon, id: &str) -> Value {
    let seconds = format!("{}s", PATIENCE.as_secs());
    let answer = daemon.ask(&["replays", "wait", id, "--timeout", &seconds]);
    assert!(matches!(answer.status, 0 | 5), "{answer:?}");
    show(daemon, id)
}

/// How a bulk replay stands.
#[track_caller]
pub fn show(daemon: &Daemon, id: &str) -> Value {
    daemon.ask(&["replays", "show", id]).json()
}

/// Some of a bulk replay's counts, by name.
#[track_caller]
pub fn counts<const N: usize>(shown: &Value, names: [&str; N]) -> [u64; N] {
    names.map(|name| shown["counts"][name].as_u64().unwrap_or_else(|| panic!("no {name}: {shown}")))
}

/// The members of a bulk replay in the order of their turns.
#[track_caller]
pub fn members(daemon: &Daemon, id: &str) -> Vec<Value> {
    daemon.ask(&["replays", "members", id, "--limit", "1000"]).json()["items"].as_array().unwrap().clone()
}

/// The dead letters of the members in a state.
#[track_caller]
pub fn letters_in(daemon: &Daemon, id: &str, state: &str) -> Vec<i64> {
    let members = members(daemon, id).into_iter().filter(|member| member["state"] == state);
    members.map(|member| member["dead_letter_id"].as_i64().unwrap()).collect()
}

/// Starts from a token over HTTP; answers the status and the body.
#[track_caller]
pub fn start_from(daemon: &Daemon, selection: &Value, fields: &Value) -> (u16, Value) {
    let mut body = json!({ "selection": selection, "reason": "mended" });
    for (name, value) in fields.as_object().unwrap() {
        body[name] = value.clone();
    }
    raw_http::send(daemon, "POST", "/v1/replays", &[], &body.to_string())
}

/// What a job does whose first request is broken off: it dies once, and its replay is answered as the test says.
pub fn order(server: &Server, name: &str) -> Value {
    json!({ "do": "step", "name": "order", "url": server.url(), "body": name })
}

/// A server that breaks off the first request of each order, and answers the later ones as told.
pub fn mending_server(later: impl Fn(&str) -> Reply + Send + Sync + 'static) -> Server {
    let seen = Mutex::new(BTreeSet::new());
    Server::answering(move |request, _| {
        let is_first = seen.lock().unwrap().insert(request.body.clone());
        if is_first { Reply::Broken } else { later(&request.body) }
    })
}

/// A daemon whose jobs have one attempt and reach a server.
pub fn daemon_reaching(server: &Server) -> Daemon {
    Daemon::with_misbehave(&reaching(server))
}

/// The configuration of such a daemon.
pub fn reaching(server: &Server) -> ConfigText {
    config().kind("attempts = 1").reaching(server.url())
}

/// Orders that have died of their first request; answers their dead letters.
#[track_caller]
pub fn dead_orders(daemon: &Daemon, server: &Server, names: &[&str]) -> Vec<i64> {
    names.iter().flat_map(|name| die(daemon, "job", &order(server, name), 1)).collect()
}

/// The orders that the server was asked for beyond the first so many requests.
pub fn orders_after(server: &Server, count: usize) -> Vec<String> {
    server.received().into_iter().skip(count).map(|request| request.body).collect()
}

/// No dead letter was replayed twice, nothing stands in two states, and what is counted is what there is.
#[track_caller]
pub fn check(daemon: &Daemon) {
    let database = daemon.database();
    database.check();
    for (what, sql) in [
        ("a dead letter was replayed twice", "SELECT dead_letter_id FROM replays GROUP BY dead_letter_id HAVING count(*) > 1"),
        (
            "a member has another bulk replay's replay",
            "SELECT m.replay_id FROM bulk_replay_members m LEFT JOIN replays r ON r.id = m.replay_id
             WHERE m.state = 'replayed' AND (r.bulk_replay_id IS NOT m.bulk_replay_id
                 OR r.dead_letter_id IS NOT m.dead_letter_id)",
        ),
        (
            "a replay of a bulk replay has no member",
            "SELECT r.id FROM replays r LEFT JOIN bulk_replay_members m ON m.replay_id = r.id
             WHERE r.bulk_replay_id IS NOT NULL AND m.replay_id IS NULL",
        ),
        (
            "a replay has no audit row",
            "SELECT r.id FROM replays r WHERE NOT EXISTS (
                 SELECT 1 FROM audit a WHERE a.action = 'dead_letter.replay' AND a.detail ->> 'replay' = r.id
                     AND a.actor = r.actor AND a.detail ->> 'reason' = r.reason
                     AND a.detail ->> 'bulk_replay' IS r.bulk_replay_id)",
        ),
        (
            "the members are counted wrongly",
            "SELECT id FROM bulk_replays b WHERE
                 members <> (SELECT count(*) FROM bulk_replay_members WHERE bulk_replay_id = b.id)
                 OR replayed <> (SELECT count(*) FROM bulk_replay_members WHERE bulk_replay_id = b.id AND state = 'replayed')
                 OR refused <> (SELECT count(*) FROM bulk_replay_members WHERE bulk_replay_id = b.id AND state = 'refused')",
        ),
        (
            "the ends are counted wrongly",
            "SELECT id FROM bulk_replays b WHERE
                 ended_done <> (SELECT count(*) FROM replays WHERE bulk_replay_id = b.id AND result = 'done')
                 OR ended_dead <> (SELECT count(*) FROM replays WHERE bulk_replay_id = b.id AND result = 'dead')
                 OR ended_suppressed <> (SELECT count(*) FROM replays WHERE bulk_replay_id = b.id AND result = 'suppressed')
                 OR ended_cancelled <> (SELECT count(*) FROM replays WHERE bulk_replay_id = b.id AND result = 'cancelled')",
        ),
    ] {
        assert_eq!(database.one::<i64>(&format!("SELECT count(*) FROM ({sql})")), 0, "{what}");
    }
}
