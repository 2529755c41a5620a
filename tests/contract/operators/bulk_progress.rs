//! R6: how a bulk replay goes on: its probe, its rate, what stops it, and what others do meanwhile.

use std::thread;

use serde_json::{Value, json};

use crate::{
    bulk::{
        ask_for, check, counts, daemon_reaching, dead_orders, die, letters_in, members, mending_server, orders_after,
        preview, reaching, settle, show, start, start_from,
    },
    dead_letters::retain_for_years,
    letters::{activate, config, other_misbehave, push, told},
    support::{Answer, ConfigText, Daemon, Reply},
};

fn ok() -> Reply {
    Reply::status(200)
}

/// A server that holds the answer to one order.
fn holding(held: &'static str) -> crate::support::Server {
    mending_server(move |order| if order == held { Reply::Held(Box::new(ok())) } else { ok() })
}

fn acting_as(config: ConfigText, name: &str) -> ConfigText {
    let uid = rustix::process::geteuid().as_raw();
    config.more(&format!("[actors]\n\"uid:{uid}\" = {{ name = \"{name}\", role = \"admin\" }}"))
}

#[test]
fn r6_with_a_probe_the_rest_goes_only_once_its_job_has_ended_well() {
    let server = holding("a");
    let daemon = daemon_reaching(&server);
    let letters = dead_orders(&daemon, &server, &["a", "b", "c"]);
    let id = start(&daemon, &["--probe"]);
    server.wait_for(4);
    let probing = show(&daemon, &id);
    assert_eq!(probing["state"], "probing");
    assert_eq!(counts(&probing, ["replayed", "pending", "running"]), [1, 2, 1]);
    assert_eq!(letters_in(&daemon, &id, "replayed"), letters[..1]);

    server.let_go();
    let settled = settle(&daemon, &id);
    assert_eq!((&settled["state"], &settled["settled"]), (&json!("done"), &json!(true)));
    assert_eq!(counts(&settled, ["done", "replayed", "pending", "dead"]), [3, 3, 0, 0]);
    let mut orders = orders_after(&server, 3);
    orders.sort();
    assert_eq!(orders, ["a", "b", "c"]);
    assert_eq!(daemon.ask(&["replays", "wait", &id]).status, 0);
    check(&daemon);
}

#[test]
fn r6_a_probe_that_dies_stops_the_rest_and_a_resume_tries_the_next_one() {
    let server = mending_server(|order| match order {
        "a" => Reply::Broken,
        "b" => Reply::Held(Box::new(ok())),
        _ => ok(),
    });
    let daemon = daemon_reaching(&server);
    dead_orders(&daemon, &server, &["a", "b", "c"]);
    let id = start(&daemon, &["--probe"]);
    let stopped = settle(&daemon, &id);
    assert_eq!((&stopped["state"], stopped.get("stopped_by")), (&json!("stopped"), None), "{stopped}");
    let job = members(&daemon, &id)[0]["job_id"].as_i64().unwrap();
    let letter = daemon.dead_letter(job);
    let class = letter["error_class"].as_str().unwrap();
    let reason = format!("the probe died: job {job} is dead letter {}, of exhausted, with {class}", letter["id"]);
    assert_eq!(stopped["stop_reason"], reason);
    assert_eq!(counts(&stopped, ["replayed", "dead", "pending", "running"]), [1, 1, 2, 0]);
    assert_eq!(orders_after(&server, 3), ["a"], "others went before the probe had ended");
    let waited = daemon.ask(&["replays", "wait", &id]);
    assert_eq!((waited.status, waited.refusal()), (5, "ended_otherwise".into()));

    assert_eq!(daemon.ask(&["replays", "resume", &id]).json()["changed"], true);
    server.wait_for(5);
    let probing = show(&daemon, &id);
    assert_eq!((&probing["state"], counts(&probing, ["replayed", "pending"])), (&json!("probing"), [2, 1]));
    server.let_go();
    let settled = settle(&daemon, &id);
    assert_eq!((&settled["state"], settled.get("stop_reason")), (&json!("done"), None), "{settled}");
    assert_eq!(counts(&settled, ["done", "dead", "pending"]), [2, 1, 0]);
    assert_eq!(orders_after(&server, 4), ["b", "c"]);
    check(&daemon);
}

#[test]
fn r6_a_probe_that_is_cancelled_stops_the_rest() {
    let server = holding("a");
    let daemon = daemon_reaching(&server);
    dead_orders(&daemon, &server, &["a", "b"]);
    let id = start(&daemon, &["--probe"]);
    server.wait_for(3);
    let job = members(&daemon, &id)[0]["job_id"].to_string();
    daemon.ask(&["jobs", "cancel", &job]).json();
    let stopped = settle(&daemon, &id);
    assert_eq!((&stopped["state"], counts(&stopped, ["cancelled", "pending"])), (&json!("stopped"), [1, 1]));
    assert_eq!(stopped["stop_reason"], format!("the probe, job {job}, ended as cancelled"));
}

#[test]
fn r6_a_member_that_is_refused_at_its_turn_is_recorded_and_the_rest_goes_on() {
    let server = holding("a");
    let daemon = daemon_reaching(&server);
    let letters = dead_orders(&daemon, &server, &["a", "b", "c", "d"]);
    let poison = die(&daemon, "job", &told("poison", "shop.defect"), 1);
    let id = start(&daemon, &["--probe"]);
    server.wait_for(5);
    // While the probe is out, others take two of the members.
    daemon.ask(&["dlq", "replay", &letters[1].to_string(), "--reason", "by hand"]).json();
    daemon.ask(&["dlq", "discard", &letters[2].to_string(), "--reason", "given up"]).json();
    server.let_go();
    let settled = settle(&daemon, &id);
    assert_eq!(settled["state"], "done");
    assert_eq!(counts(&settled, ["members", "replayed", "refused", "done"]), [5, 2, 3, 2], "{settled}");
    let members = members(&daemon, &id);
    let told: Vec<_> =
        members.iter().map(|member| (&member["dead_letter_id"], &member["state"], &member["code"])).collect();
    let null = Value::Null;
    let expected = [
        (letters[0], "replayed", null.clone()),
        (letters[1], "refused", json!("already_replayed")),
        (letters[2], "refused", json!("already_discarded")),
        (letters[3], "replayed", null),
        (poison[0], "refused", json!("defect_not_fixed")),
    ];
    let expected: Vec<_> = expected.map(|(letter, state, code)| (json!(letter), json!(state), code)).into();
    assert_eq!(told, expected.iter().map(|(letter, state, code)| (letter, state, code)).collect::<Vec<_>>());
    assert!(members[4]["detail"].as_str().unwrap().contains("misbehave@1.0.0"), "{members:?}");
    let groups: Vec<_> = settled["refused"].as_array().unwrap().iter().map(|group| &group["code"]).collect();
    assert_eq!(groups, ["already_discarded", "already_replayed", "defect_not_fixed"]);
    assert_eq!(daemon.ask(&["replays", "wait", &id]).status, 5, "three were refused");
    let metric =
        |result: &str| daemon.metric("leasehold_bulk_replay_members_total", &[("kind", "job"), ("result", result)]);
    assert!((metric("replayed") - 2.0).abs() < 0.1 && (metric("refused") - 3.0).abs() < 0.1);
    assert!((daemon.metric("leasehold_bulk_replays_started_total", &[("kind", "job")]) - 1.0).abs() < 0.1);
    check(&daemon);
}

#[test]
fn r6_a_step_that_was_applied_is_not_applied_again_by_a_bulk_replay() {
    let server = crate::support::Server::accepting();
    let daemon = Daemon::with_misbehave(&config().reaching(server.url()));
    let act = json!({ "do": "step", "name": "buy", "url": server.url(), "then": "rejected" });
    die(&daemon, "job", &act, 3);
    assert_eq!(preview(&daemon, &[])["with_applied_steps"], 3);
    let id = start(&daemon, &[]);
    assert_eq!(counts(&settle(&daemon, &id), ["replayed", "dead"]), [3, 3]);
    assert_eq!(server.received().len(), 3, "a step was applied again");
    check(&daemon);
}

#[test]
fn r6_members_go_in_order_at_their_rate_and_a_restart_is_no_burst() {
    let server = mending_server(|_| ok());
    let mut daemon = daemon_reaching(&server);
    die(&daemon, "job", &told("poison", "shop.defect"), 2);
    dead_orders(&daemon, &server, &["a", "b", "c", "d"]);
    // Those that are refused come first, and take none of the hour.
    let id = start(&daemon, &["--rate", "1/h"]);
    server.wait_for(5);
    daemon.terminate();
    daemon.run();
    server.wait_for(6);
    daemon.ask(&["replays", "stop", &id]).json();
    daemon.ask(&["replays", "resume", &id]).json();
    server.wait_for(7);
    assert_eq!(orders_after(&server, 4), ["a", "b", "c"]);
    let stopped = daemon.ask(&["replays", "stop", &id]).json()["bulk_replay"].clone();
    assert_eq!((&stopped["rate"], counts(&stopped, ["replayed", "refused", "pending"])), (&json!("1/h"), [3, 2, 1]));
    assert_eq!(counts(&settle(&daemon, &id), ["done", "pending"]), [3, 1]);
    check(&daemon);
}

#[test]
fn r6_stopping_and_resuming_are_said_once_and_are_in_the_audit_log() {
    let server = holding("a");
    let daemon = Daemon::with_misbehave(&acting_as(reaching(&server), "jo"));
    dead_orders(&daemon, &server, &["a", "b"]);
    let id = start(&daemon, &["--probe", "--rate", "100/s"]);
    server.wait_for(3);
    daemon.write_config(&acting_as(reaching(&server), "kim"));
    daemon.ask(&["reload"]).json();
    for (act, changed) in [("stop", true), ("stop", false), ("resume", true), ("resume", false), ("stop", true)] {
        assert_eq!(daemon.ask(&["replays", act, &id]).json()["changed"], changed, "{act}");
    }
    server.let_go();
    let stopped = settle(&daemon, &id);
    assert_eq!((&stopped["state"], &stopped["stopped_by"]), (&json!("stopped"), &json!("kim")));
    assert_eq!(stopped["stop_reason"], "stopped by kim");
    assert_eq!(counts(&stopped, ["done", "pending"]), [1, 1]);
    daemon.ask(&["replays", "resume", &id]).json();
    assert_eq!(counts(&settle(&daemon, &id), ["done", "pending"]), [2, 0]);
    for act in ["stop", "resume"] {
        assert_eq!(daemon.ask(&["replays", act, &id]).refusal(), "already_done");
        assert_eq!(daemon.ask(&["replays", act, "4711"]).refusal(), "not_found");
    }

    let audit = daemon.ask(&["audit", "ls"]).json();
    let acts: Vec<_> = audit["items"]
        .as_array()
        .unwrap()
        .iter()
        .rev()
        .filter(|entry| entry["action"].as_str().unwrap().contains("replay"))
        .collect();
    let told: Vec<_> =
        acts.iter().map(|entry| (entry["action"].as_str().unwrap(), entry["actor"].as_str().unwrap())).collect();
    // Whoever resumes it: each member is replayed for who started it.
    let expected = [
        ("bulk_replay.start", "jo"),
        ("dead_letter.replay", "jo"),
        ("bulk_replay.stop", "kim"),
        ("bulk_replay.resume", "kim"),
        ("bulk_replay.stop", "kim"),
        ("bulk_replay.resume", "kim"),
        ("dead_letter.replay", "jo"),
    ];
    assert_eq!(told, expected);
    let started = &acts[0]["detail"];
    assert_eq!(
        (&started["members"], &started["reason"], &started["rate"]),
        (&json!(2), &json!("mended"), &json!("100/s"))
    );
    assert_eq!(acts[1]["detail"]["bulk_replay"].to_string(), id);
    let job = daemon.job(members(&daemon, &id)[1]["job_id"].as_i64().unwrap());
    let replay = &job["replays"][0];
    assert_eq!(
        (&replay["actor"], &replay["reason"], &replay["bulk_replay_id"].to_string()),
        (&json!("jo"), &json!("mended"), &id)
    );
    assert_eq!(job["attempts"][1]["replay_id"], replay["id"]);
    check(&daemon);
}

#[test]
fn r6_when_its_version_is_not_live_any_more_the_whole_stops_and_can_be_resumed() {
    let server = holding("a");
    let daemon = daemon_reaching(&server);
    push(&daemon, &other_misbehave(daemon.directory(), 1), "1.1.0");
    dead_orders(&daemon, &server, &["a", "b", "c"]);
    let id = start(&daemon, &["--probe"]);
    server.wait_for(4);
    activate(&daemon, "1.1.0", &[]);
    server.let_go();
    let stopped = settle(&daemon, &id);
    assert_eq!(
        (&stopped["state"], counts(&stopped, ["replayed", "refused", "pending"])),
        (&json!("stopped"), [1, 0, 2])
    );
    let reason = stopped["stop_reason"].as_str().unwrap();
    assert!(reason.contains("misbehave@1.0.0 is not live") && reason.contains("live: misbehave@1.1.0"), "{reason}");
    let refused = daemon.ask(&["replays", "resume", &id]);
    assert_eq!(refused.refusal(), "version_not_live");
    activate(&daemon, "1.0.0", &[]);
    daemon.ask(&["replays", "resume", &id]).json();
    let settled = settle(&daemon, &id);
    assert_eq!((&settled["state"], counts(&settled, ["done"])), (&json!("done"), [3]));
    assert_eq!(settled["version"], "misbehave@1.0.0");
    check(&daemon);
}

#[test]
fn r6_when_its_kind_is_not_configured_any_more_the_whole_stops_and_can_be_resumed() {
    let server = holding("a");
    let with = || reaching(&server).another_kind("other", "attempts = 1\nin_doubt = \"begin-again\"");
    let daemon = Daemon::with_misbehave(&with());
    let act = |name| crate::bulk::order(&server, name);
    for act in [act("a"), act("b")] {
        die(&daemon, "other", &act, 1);
    }
    let many = ["dlq", "replay", "--kind", "other", "--reason", "mended", "--yes", "--probe"];
    let id = daemon.ask(&many).json()["id"].to_string();
    server.wait_for(3);
    daemon.write_config(&reaching(&server));
    daemon.ask(&["reload"]).json();
    assert_eq!(daemon.ask(&["dlq", "replay", "--kind", "other", "--dry-run"]).refusal(), "unknown_kind");
    server.let_go();
    let stopped = settle(&daemon, &id);
    assert!(stopped["stop_reason"].as_str().unwrap().contains("kind other is not configured"), "{stopped}");
    assert_eq!(daemon.ask(&["replays", "resume", &id]).refusal(), "unknown_kind");
    daemon.write_config(&with());
    daemon.ask(&["reload"]).json();
    daemon.ask(&["replays", "resume", &id]).json();
    assert_eq!(counts(&settle(&daemon, &id), ["done", "pending"]), [2, 0]);
}

#[test]
fn r6_with_too_little_disk_left_no_member_goes_and_it_goes_on_once_there_is_some() {
    let server = mending_server(|_| ok());
    let daemon = daemon_reaching(&server);
    dead_orders(&daemon, &server, &["a", "b"]);
    daemon.write_config(&reaching(&server).queue("disk_reserve = \"1024GiB\""));
    daemon.ask(&["reload"]).json();
    let id = start(&daemon, &["--rate", "1/h"]);
    daemon.wait_for_log("a turn of bulk replay 1 failed; it is tried again");
    assert_eq!(counts(&show(&daemon, &id), ["replayed", "pending"]), [0, 2]);
    daemon.write_config(&reaching(&server));
    daemon.ask(&["reload"]).json();
    // It was the disk that kept the first one back, not the rate.
    server.wait_for(3);
    assert_eq!(orders_after(&server, 2), ["a"]);
}

#[test]
fn r6_what_retention_forgets_leaves_a_bulk_replay_whole() {
    let server = mending_server(|order| if order == "b" { Reply::Broken } else { ok() });
    let mut daemon = daemon_reaching(&server);
    let first = dead_orders(&daemon, &server, &["a"]);
    let done = start(&daemon, &[]);
    assert_eq!(counts(&settle(&daemon, &done), ["done"]), [1]);
    let letters = dead_orders(&daemon, &server, &["b", "c"]);
    let stopped = start(&daemon, &["--probe"]);
    assert_eq!(settle(&daemon, &stopped)["state"], "stopped");
    daemon.ask(&["dlq", "discard", &letters[1].to_string(), "--reason", "given up"]).json();
    daemon.terminate();
    retain_for_years(&daemon);
    daemon.run();
    for letter in [first[0], letters[1]] {
        assert_eq!(daemon.ask(&["dlq", "show", &letter.to_string()]).refusal(), "not_found", "nothing was forgotten");
    }
    assert_eq!(counts(&show(&daemon, &done), ["members", "replayed", "pending", "done"]), [1, 1, 0, 1]);
    daemon.ask(&["replays", "resume", &stopped]).json();
    let settled = settle(&daemon, &stopped);
    assert_eq!((&settled["state"], counts(&settled, ["dead", "refused"])), (&json!("done"), [1, 1]));
    assert_eq!(settled["refused"][0]["code"], "not_found");
    daemon.database().check();
}

#[test]
fn r6_of_many_operators_who_start_the_same_set_at_once_each_dead_letter_has_one_replay() {
    let daemon = Daemon::with_misbehave(&config());
    let letters = die(&daemon, "job", &told("rejected", "shop.closed"), 40);
    daemon.ask(&["kinds", "pause", "job"]).json();
    let selections = [&[][..], &["--class", "shop.closed"], &["--cause", "rejected"], &["--died-on", "1.0.0"]];
    let singles = ["dlq", "replay", "--reason", "by hand"];
    let (many, one): (Vec<Answer>, Vec<Answer>) = thread::scope(|scope| {
        let many: Vec<_> = selections.iter().map(|options| scope.spawn(|| ask_for(&daemon, options))).collect();
        let hand = |letter: &i64| {
            let letter = letter.to_string();
            let daemon = &daemon;
            scope.spawn(move || daemon.ask(&[&singles[..], &[&letter]].concat()))
        };
        let one: Vec<_> = letters.iter().rev().take(4).map(hand).collect();
        let joined = |threads: Vec<thread::ScopedJoinHandle<'_, Answer>>| {
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        };
        (joined(many), joined(one))
    });
    let by_hand = one.iter().filter(|answer| answer.status == 0).count();
    assert!(one.iter().all(|answer| answer.status == 0 || answer.refusal() == "already_replayed"), "{one:?}");
    let mut replayed = by_hand as u64;
    for answer in &many {
        if answer.status == 0 {
            let id = answer.json()["id"].to_string();
            daemon.wait_for_log(&format!("every member of a bulk replay has had its turn bulk_replay={id}"));
            let shown = show(&daemon, &id);
            replayed += counts(&shown, ["replayed"])[0];
            let refused = members(&daemon, &id).into_iter().filter(|member| member["state"] == "refused");
            assert!(refused.into_iter().all(|member| member["code"] == "already_replayed"), "{shown}");
        } else {
            assert_eq!(answer.refusal(), "nothing_to_replay", "{answer:?}");
        }
    }
    assert_eq!(replayed, 40, "{many:?}");
    assert_eq!(daemon.database().one::<i64>("SELECT count(DISTINCT dead_letter_id) FROM replays"), 40);
    check(&daemon);
}

#[test]
fn r6_an_answer_says_which_dead_letters_are_another_operators() {
    let server = holding("a");
    let daemon = daemon_reaching(&server);
    dead_orders(&daemon, &server, &["a", "b", "c"]);
    let others = die(&daemon, "job", &told("rejected", "shop.closed"), 2);
    let token = |options: &[&str]| preview(&daemon, options)["token"].clone();
    let (all, orders) = (token(&[]), token(&["--cause", "exhausted"]));
    let first = start(&daemon, &["--cause", "exhausted", "--probe"]);
    server.wait_for(4);

    // One was replayed, two wait for their turn; whoever asks now is told so.
    let seen = preview(&daemon, &[]);
    assert_eq!((&seen["matching"], &seen["replayable"]), (&json!(4), &json!(2)));
    assert_eq!((&seen["refused"][0]["code"], &seen["refused"][0]["count"]), (&json!("in_bulk_replay"), &json!(2)));
    let (status, problem) =
        start_from(&daemon, &json!({ "kind": "job", "cause": "exhausted" }), &json!({ "token": orders }));
    assert_eq!((status, &problem["code"]), (409, &json!("nothing_to_replay")), "{problem}");
    assert_eq!((&problem["closed"], &problem["in_others"]), (&json!(1), &json!(2)));
    assert_eq!(problem["bulk_replay_id"].to_string(), first);
    let (status, second) = start_from(&daemon, &json!({ "kind": "job" }), &json!({ "token": all }));
    assert_eq!(status, 201, "{second}");
    assert_eq!(counts(&second, ["members", "left_out_closed", "left_out_in_others"]), [2, 1, 2]);
    let second = second["id"].to_string();
    settle(&daemon, &second);
    assert_eq!(letters_in(&daemon, &second, "replayed"), others);

    // What a stopped one holds is free for another; resumed, it finds the members gone and says so.
    daemon.ask(&["replays", "stop", &first]).json();
    let third = start(&daemon, &["--cause", "exhausted"]);
    assert_eq!(counts(&settle(&daemon, &third), ["members", "done"]), [2, 2]);
    server.let_go();
    daemon.ask(&["replays", "resume", &first]).json();
    let settled = settle(&daemon, &first);
    assert_eq!((&settled["state"], counts(&settled, ["done", "refused"])), (&json!("done"), [1, 2]));
    assert_eq!(settled["refused"][0]["code"], "already_replayed");
    let listed = daemon.ask(&["replays", "ls"]).json();
    let ids: Vec<_> = listed["items"].as_array().unwrap().iter().map(|shown| shown["id"].to_string()).collect();
    assert_eq!(ids, [third, second, first]);
    check(&daemon);
}

#[test]
fn r6_who_may_only_look_can_preview_and_not_start() {
    let uid = rustix::process::geteuid().as_raw();
    let with = |role: &str| config().more(&format!("[actors]\n\"uid:{uid}\" = {{ name = \"jo\", role = \"{role}\" }}"));
    let daemon = Daemon::with_misbehave(&with("admin"));
    die(&daemon, "job", &told("rejected", "shop.closed"), 1);
    daemon.write_config(&with("view"));
    daemon.ask(&["reload"]).json();
    assert_eq!(preview(&daemon, &[])["replayable"], 1);
    assert_eq!(ask_for(&daemon, &[]).refusal(), "role_required");
    for act in ["stop", "resume"] {
        assert_eq!(daemon.ask(&["replays", act, "1"]).refusal(), "role_required");
    }
    assert_eq!(daemon.ask(&["replays", "ls"]).json()["items"], json!([]));
}

#[test]
fn r6_people_read_tables_that_say_what_to_do() {
    let server = holding("a");
    let daemon = daemon_reaching(&server);
    dead_orders(&daemon, &server, &["a", "b"]);
    let read = |arguments: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_leasehold"));
        let output = command.arg("--config").arg(daemon.config_path()).args(arguments).output().unwrap();
        String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap()
    };
    let seen = read(&["dlq", "replay", "--kind", "job", "--dry-run"]);
    assert!(seen.contains("2 open dead letters") && seen.contains("misbehave@1.0.0 ("), "{seen}");
    let started = read(&["dlq", "replay", "--kind", "job", "--reason", "mended", "--yes", "--probe"]);
    assert!(started.contains("bulk replay 1 has started: 2 dead letters onto misbehave@1.0.0"), "{started}");
    server.wait_for(3);
    let shown = read(&["replays", "show", "1"]);
    assert!(shown.contains("probing") && shown.contains("2: 1 replayed, 0 refused, 1 pending"), "{shown}");
    let listed = read(&["replays", "ls"]);
    assert!(listed.contains("probing") && listed.contains("mended"), "{listed}");
    let stopped = read(&["replays", "stop", "1"]);
    assert!(stopped.contains("1 member had no turn: leasehold replays resume 1"), "{stopped}");
    let late = read(&["replays", "wait", "1", "--timeout", "1ms"]);
    assert!(late.contains("[timed_out]"), "{late}");
    server.let_go();
    let waited = read(&["replays", "wait", "1"]);
    assert!(
        waited.contains("bulk replay 1 has stopped: stopped by root") && waited.contains("[ended_otherwise]"),
        "{waited}"
    );
    let members = read(&["replays", "members", "1", "--state", "pending"]);
    assert_eq!(members.lines().count(), 2, "{members}");
}
