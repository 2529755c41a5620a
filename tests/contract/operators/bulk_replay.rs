//! R6: a bulk replay replays what it has shown and nothing else; what is refused says why.

use rusqlite::Connection;
use serde_json::{Value, json};

use crate::{
    bulk::{ask_for, check, counts, die, letters_in, members, preview, settle, start, start_from},
    letters::{activate, config, other_misbehave, push, told},
    raw_http,
    support::{ConfigText, Daemon, Server},
};

/// A daemon on which 1.0.0 is live and 1.1.0 is stored, with other bytes.
fn with_two_versions(config: &ConfigText) -> Daemon {
    let daemon = Daemon::with_misbehave(config);
    push(&daemon, &other_misbehave(daemon.directory(), 1), "1.1.0");
    daemon
}

#[test]
fn r6_each_filter_selects_its_own_dead_letters_and_no_others() {
    let daemon = with_two_versions(&config().another_kind("other", "attempts = 1"));
    let closed = die(&daemon, "job", &told("rejected", "shop.closed"), 2);
    let defect = die(&daemon, "job", &told("poison", "shop.defect"), 1);
    let other = die(&daemon, "other", &told("rejected", "shop.closed"), 1);
    activate(&daemon, "1.1.0", &[]);
    let late = die(&daemon, "job", &told("rejected", "shop.closed"), 1);
    let died_at = daemon.ask(&["dlq", "show", &late[0].to_string()]).json()["died_at"].as_str().unwrap().to_owned();

    let seen = preview(&daemon, &[]);
    assert_eq!((&seen["matching"], &seen["replayable"]), (&json!(4), &json!(4)));
    assert_eq!(seen["version"], "misbehave@1.1.0");
    assert_eq!(seen["by_cause"], json!({ "poison": 1, "rejected": 3 }));
    assert_eq!(seen["by_class"], json!({ "shop.closed": 3, "shop.defect": 1 }));
    assert_eq!(seen["by_version"], json!({ "misbehave@1.0.0": 3, "misbehave@1.1.0": 1 }));
    let selected = |options: &[&str]| {
        let id = start(&daemon, options);
        members(&daemon, &id).iter().map(|member| member["dead_letter_id"].as_i64().unwrap()).collect::<Vec<_>>()
    };
    let matching = |options: &[&str]| preview(&daemon, options)["matching"].as_u64().unwrap();
    assert_eq!(matching(&["--class", "shop.defect"]), 1);
    assert_eq!(matching(&["--cause", "rejected"]), 3);
    assert_eq!(matching(&["--died-on", "1.0.0"]), 3);
    assert_eq!(matching(&["--died-on", "misbehave@1.1.0"]), 1);
    assert_eq!(matching(&["--since", &died_at]), 1);
    assert_eq!(matching(&["--until", &died_at]), 3);
    assert_eq!(matching(&["--since", "1h"]), 4);
    assert_eq!(matching(&["--until", "1h"]), 0);
    assert_eq!(matching(&["--cause", "rejected", "--died-on", "1.0.0", "--class", "shop.closed"]), 2);
    daemon.ask(&["kinds", "pause", "job"]).json();
    assert_eq!(selected(&["--cause", "poison"]), defect);
    assert_eq!(selected(&["--cause", "rejected", "--died-on", "1.0.0"]), closed);
    assert_eq!(selected(&["--since", &died_at]), late);
    assert_eq!(daemon.ask(&["dlq", "show", &other[0].to_string()]).json()["state"], "open");
    check(&daemon);
}

#[test]
fn r6_a_preview_changes_nothing_and_says_what_would_be_refused_and_what_to_do() {
    let server = Server::accepting();
    let lines = "attempts = 1\nin_doubt = \"dead-letter\"\nkeep_original = false";
    let daemon = Daemon::with_misbehave(
        &config().reaching(server.url()).kind("in_doubt = \"dead-letter\"").another_kind("unkept", lines),
    );
    let applied = json!({ "do": "step", "name": "buy", "url": server.url(), "then": "rejected" });
    let doubtful = json!({ "do": "step", "name": "buy", "url": server.url(), "inside": "unknown" });
    die(&daemon, "job", &applied, 2);
    let doubtful = die(&daemon, "job", &doubtful, 1);
    let poison = die(&daemon, "job", &told("poison", "shop.defect"), 7);
    let before = daemon.database().all::<String>("SELECT state || id FROM dead_letters ORDER BY id");
    let audited = daemon.database().one::<i64>("SELECT count(*) FROM audit");

    let seen = preview(&daemon, &[]);
    assert_eq!((&seen["matching"], &seen["replayable"]), (&json!(10), &json!(2)), "{seen}");
    assert_eq!((&seen["with_applied_steps"], &seen["with_steps_in_doubt"]), (&json!(2), &json!(1)));
    let refused = seen["refused"].as_array().unwrap();
    let told: Vec<_> = refused.iter().map(|group| (group["code"].as_str().unwrap(), &group["count"])).collect();
    assert_eq!(told, [("step_unresolved", &json!(1)), ("defect_not_fixed", &json!(7))]);
    assert_eq!(refused[0]["examples"], json!(doubtful));
    assert_eq!(refused[1]["examples"], json!(poison[..5]));
    assert!(refused[0]["detail"].as_str().unwrap().contains("--step"), "{seen}");
    assert!(refused[1]["detail"].as_str().unwrap().contains("--override-reason"), "{seen}");
    // What would be done differently is previewed differently.
    assert_eq!(preview(&daemon, &["--override-reason", "the shop's fault"])["replayable"], 9);
    let unlive = preview(&daemon, &["--version", "9.9.9"]);
    assert_eq!(
        (&unlive["refused"][0]["code"], &unlive["refused"][0]["count"]),
        (&json!("version_not_live"), &json!(10))
    );
    assert_eq!((unlive.get("token"), unlive.get("version")), (None, None));
    die(&daemon, "unkept", &told_rejected(), 1);
    let unkept = daemon.ask(&["dlq", "replay", "--kind", "unkept", "--dry-run"]).json();
    assert_eq!(unkept["refused"][0]["code"], "original_not_kept");

    let after = "SELECT state || id FROM dead_letters WHERE kind = 'job' ORDER BY id";
    assert_eq!(daemon.database().all::<String>(after), before);
    assert_eq!(daemon.database().one::<i64>("SELECT count(*) FROM audit"), audited);
    assert_eq!(daemon.database().one::<i64>("SELECT count(*) FROM bulk_replays"), 0);
    // Nor can anything be started of which nothing would go through.
    let refused = ask_for(&daemon, &["--cause", "poison"]);
    assert_eq!(refused.refusal(), "nothing_to_replay");
    assert!(refused.stderr.contains("7 × defect_not_fixed"), "{refused:?}");
    assert_eq!(ask_for(&daemon, &["--class", "no.such"]).refusal(), "nothing_to_replay");
}

fn told_rejected() -> Value {
    told("rejected", "shop.closed")
}

#[test]
fn r6_what_dies_after_the_preview_is_not_in_it_and_what_was_closed_since_drops_out() {
    let daemon = Daemon::with_misbehave(&config());
    let letters = die(&daemon, "job", &told_rejected(), 4);
    let token = preview(&daemon, &[])["token"].clone();
    let late = die(&daemon, "job", &told_rejected(), 2);
    daemon.ask(&["dlq", "discard", &letters[1].to_string(), "--reason", "given up"]).json();

    let (status, started) = start_from(&daemon, &json!({ "kind": "job" }), &json!({ "token": token }));
    assert_eq!(status, 201, "{started}");
    assert_eq!(counts(&started, ["members", "left_out_closed", "left_out_in_others"]), [3, 1, 0]);
    let id = started["id"].to_string();
    let settled = settle(&daemon, &id);
    assert_eq!(settled["state"], "done");
    assert_eq!(counts(&settled, ["replayed", "refused", "dead"]), [3, 0, 3], "{settled}");
    assert_eq!(letters_in(&daemon, &id, "replayed"), [letters[0], letters[2], letters[3]]);
    for letter in late {
        assert_eq!(daemon.ask(&["dlq", "show", &letter.to_string()]).json()["state"], "open");
    }
    check(&daemon);
}

#[test]
fn r6_nothing_is_started_that_was_not_previewed_as_it_is_started() {
    let daemon = with_two_versions(&config());
    die(&daemon, "job", &told_rejected(), 2);
    let selection = json!({ "kind": "job" });
    let refused = |selection: &Value, fields: &Value| {
        let (status, problem) = start_from(&daemon, selection, fields);
        assert_eq!(status, 409, "{problem}");
        problem["code"].as_str().unwrap().to_owned()
    };
    let token = preview(&daemon, &[])["token"].as_str().unwrap().to_owned();
    assert_eq!(refused(&selection, &json!({})), "preview_required");
    for forged in ["", "00", &token[..94], &format!("{token}00"), &token.replace(&token[..16], "7fffffffffffffff")] {
        assert_eq!(refused(&selection, &json!({ "token": forged })), "preview_mismatch", "{forged}");
    }
    for (selection, fields) in [
        (json!({ "kind": "job", "class": "shop.closed" }), json!({ "token": token })),
        (selection.clone(), json!({ "token": token, "version": "1.0.0" })),
        (selection.clone(), json!({ "token": token, "override_reason": "why not" })),
    ] {
        assert_eq!(refused(&selection, &fields), "preview_mismatch", "{selection} {fields}");
    }
    activate(&daemon, "1.1.0", &[]);
    assert_eq!(refused(&selection, &json!({ "token": token })), "preview_target_changed");
    let named = preview(&daemon, &["--version", "1.1.0"])["token"].clone();
    daemon.ask(&["handlers", "retire", "misbehave@1.1.0"]).json();
    assert_eq!(refused(&selection, &json!({ "token": named, "version": "1.1.0" })), "version_not_live");
    let (status, problem) = start_from(&daemon, &selection, &json!({ "token": token, "rate": "fast" }));
    assert_eq!((status, &problem["code"]), (422, &json!("invalid_rate")));
    let (status, problem) = start_from(&daemon, &selection, &json!({ "token": token, "reason": " " }));
    assert_eq!((status, &problem["code"]), (422, &json!("reason_missing")));
    let (status, problem) = raw_http::send(&daemon, "POST", "/v1/replays:preview", &[], r#"{"selection":{}}"#);
    assert_eq!((status, &problem["code"]), (400, &json!("malformed")), "{problem}");
    let nobody = daemon.command(&["dlq", "replay", "--kind", "job", "--reason", "mended"]).output().unwrap();
    assert_eq!(nobody.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&nobody.stderr).contains("confirmation_needed"), "{nobody:?}");
    assert_eq!(daemon.database().one::<i64>("SELECT count(*) FROM replays"), 0);
    assert_eq!(daemon.database().one::<i64>("SELECT count(*) FROM bulk_replays"), 0);
}

#[test]
fn r6_a_preview_can_be_started_from_for_a_quarter_of_an_hour() {
    let mut daemon = Daemon::with_misbehave(&config());
    die(&daemon, "job", &told_rejected(), 2);
    let token = preview(&daemon, &[])["token"].clone();
    // The queue's clock never goes back behind what it has persisted, so this moves it forward.
    let forward = |daemon: &mut Daemon, minutes: i64| {
        daemon.terminate();
        let connection = Connection::open(daemon.data().join("leasehold.db")).unwrap();
        let sql = "UPDATE meta SET value = value + ?1 WHERE name = 'queue_clock_ms'";
        assert_eq!(connection.execute(sql, [minutes * 60_000]).unwrap(), 1);
        drop(connection);
        daemon.run();
    };
    forward(&mut daemon, 16);
    let (status, problem) = start_from(&daemon, &json!({ "kind": "job" }), &json!({ "token": token }));
    assert_eq!((status, &problem["code"]), (409, &json!("preview_expired")));
    // A restart alone takes no preview away.
    let token = preview(&daemon, &[])["token"].clone();
    forward(&mut daemon, 12);
    let (status, started) = start_from(&daemon, &json!({ "kind": "job" }), &json!({ "token": token }));
    assert_eq!(status, 201, "{started}");
}
