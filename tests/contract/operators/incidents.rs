//! O2: operators open, edit and close incidents, and what an incident says of a fix binds replays.

use serde_json::{Value, json};

use crate::{
    letters::{activate, config, id, letter_of, other_misbehave, push, refused_replay, replay, told},
    support::{Answer, Daemon},
};

fn open(daemon: &Daemon, options: &[&str]) -> Answer {
    daemon.ask(&[&["incidents", "open", "--kind", "job", "--note", "the shop refuses"], options].concat())
}

fn dies(daemon: &Daemon) -> Value {
    letter_of(daemon, "job", &told("rejected", "shop.closed"))
}

/// A daemon on which 1.1.0 is stored beside 1.0.0, which is current; both are live.
fn with_two_live_versions() -> Daemon {
    let daemon = Daemon::with_misbehave(&config());
    push(&daemon, &other_misbehave(daemon.directory(), 1), "1.1.0");
    activate(&daemon, "1.1.0", &[]);
    activate(&daemon, "1.0.0", &["--keep-live"]);
    daemon
}

#[test]
fn o2_an_incident_is_opened_edited_and_closed_and_each_act_is_audited() {
    let daemon = Daemon::with_misbehave(&config());
    let opened = open(&daemon, &["--class", "shop.closed"]).json();
    assert_eq!(
        (&opened["state"], &opened["kind"], &opened["error_class"], &opened["note"], opened.get("fixed_in")),
        (&json!("open"), &json!("job"), &json!("shop.closed"), &json!("the shop refuses"), None)
    );
    let incident = id(&opened);
    let edited = daemon.ask(&["incidents", "edit", &incident, "--fixed-in", "2.0.0"]).json();
    assert_eq!(edited["fixed_in"], "misbehave@2.0.0");
    let listed = daemon.ask(&["incidents", "ls", "--state", "open"]).json();
    assert_eq!(listed["items"][0]["id"].to_string(), incident);
    let closed = daemon.ask(&["incidents", "close", &incident, "--note", "they are open again"]).json();
    assert_eq!(
        (&closed["state"], &closed["closing_note"], &closed["fixed_in"]),
        (&json!("closed"), &json!("they are open again"), &json!("misbehave@2.0.0"))
    );
    assert_eq!(closed["closed_by"], closed["opened_by"]);
    let again = daemon.ask(&["incidents", "close", &incident, "--note", "again"]);
    assert_eq!(again.refusal(), "already_closed");
    assert_eq!(daemon.ask(&["incidents", "ls", "--state", "open"]).json()["items"], json!([]));
    let unfixed = daemon.ask(&["incidents", "edit", &incident, "--no-fixed-in"]).json();
    assert_eq!(unfixed.get("fixed_in"), None);
    assert_eq!(daemon.ask(&["incidents", "show", "99"]).refusal(), "not_found");
    let audit = daemon.ask(&["audit", "ls"]).json();
    let entries: Vec<_> = audit["items"].as_array().unwrap().iter().rev().skip(2).collect();
    let actions: Vec<_> = entries.iter().map(|entry| entry["action"].as_str().unwrap()).collect();
    assert_eq!(actions, ["incident.open", "incident.edit", "incident.close", "act.refused", "incident.edit"]);
    assert!(entries.iter().all(|entry| entry["subject"] == incident && entry["actor"] == opened["opened_by"]));
    assert_eq!(entries[0]["detail"]["note"], "the shop refuses");
}

#[test]
fn o2_one_incident_is_open_for_a_kind_and_class() {
    let daemon = Daemon::with_misbehave(&config());
    let first = id(&open(&daemon, &["--class", "shop.closed"]).json());
    let refused = open(&daemon, &["--class", "shop.closed"]);
    assert_eq!(refused.refusal(), "incident_open_already");
    let problem: Value = serde_json::from_str(&refused.stderr).unwrap();
    assert_eq!(problem["id"].to_string(), first);
    // The whole kind and another class are other incidents.
    open(&daemon, &[]).json();
    open(&daemon, &["--class", "shop.down"]).json();
    daemon.ask(&["incidents", "close", &first, "--note", "over"]).json();
    open(&daemon, &["--class", "shop.closed"]).json();
    assert_eq!(daemon.database().one::<i64>("SELECT count(*) FROM audit WHERE action = 'incident.open'"), 4);
}

#[test]
fn o2_what_can_be_no_incident_is_refused_and_says_why() {
    let daemon = Daemon::with_misbehave(&config());
    for (options, code, why) in [
        (&["--kind", "jobs"][..], "unknown_kind", "known kinds: job"),
        (&["--kind", "../x"], "unknown_kind", "known kinds: job"),
        (&["--kind", "job", "--class", "shop.clsed"], "unknown_class", "not in the vocabulary"),
        (&["--kind", "job", "--class", "jo@example.org"], "unknown_class", "not in the vocabulary"),
        (&["--kind", "job", "--fixed-in", "1.2"], "invalid_handler_version", "semantic version"),
        (&["--kind", "job", "--fixed-in", "other@1.2.0"], "invalid_handler_version", "served by misbehave"),
    ] {
        let answer = daemon.ask(&[&["incidents", "open", "--note", "seen"], options].concat());
        assert_eq!(answer.refusal(), code, "{options:?}");
        assert!(answer.stderr.contains(why), "{options:?}: {}", answer.stderr);
    }
    let blank = daemon.ask(&["incidents", "open", "--kind", "job", "--note", " "]);
    assert_eq!(blank.refusal(), "note_missing");
    let long = daemon.ask(&["incidents", "open", "--kind", "job", "--note", &"x".repeat(4_097)]);
    assert_eq!(long.refusal(), "note_too_long");
    assert_eq!(daemon.database().one::<i64>("SELECT count(*) FROM incidents"), 0);
}

#[test]
fn o2_a_replay_waits_for_the_version_that_an_incident_names() {
    let daemon = with_two_live_versions();
    let [first, second, third] = [1, 2, 3].map(|_| dies(&daemon));
    assert_eq!(first["handler"], "misbehave@1.0.0");
    let incident = id(&open(&daemon, &["--class", "shop.closed", "--fixed-in", "1.1.0"]).json());
    let (code, why) = refused_replay(&daemon, &first, &[]);
    assert_eq!(code, "not_fixed_in");
    assert!(why.contains(&format!("incident {incident} says that this is fixed in misbehave@1.1.0")), "{why}");
    // Closing changes nothing about what is fixed, and a corrected payload does not either.
    daemon.ask(&["incidents", "close", &incident, "--note", "fixed"]).json();
    assert_eq!(refused_replay(&daemon, &first, &["--payload", r#"{"do":"echo"}"#]).0, "not_fixed_in");
    let job = replay(&daemon, &first, &["--version", "misbehave@1.1.0"]);
    assert_eq!(job["replays"][0]["version"], "misbehave@1.1.0");
    // What died on the fixed version died of something else.
    let later = daemon.dead_letter(job["id"].as_i64().unwrap());
    assert_eq!(later["handler"], "misbehave@1.1.0");
    assert_eq!(replay(&daemon, &later, &[])["replays"][1]["version"], "misbehave@1.0.0");
    // An override goes through and is on record, with the incident.
    let job = replay(&daemon, &second, &["--override-reason", "it was the shop"]);
    assert_eq!(job["replays"][0]["version"], "misbehave@1.0.0");
    let overridden =
        "SELECT detail ->> 'incidents_overridden' FROM audit WHERE action = 'dead_letter.replay' ORDER BY id";
    let overridden = daemon.database().all::<String>(overridden);
    assert_eq!(overridden, ["[]".to_owned(), "[]".to_owned(), format!("[{incident}]")]);
    // A fix that turns out to be none, or to be an earlier one, lets them go.
    daemon.ask(&["incidents", "edit", &incident, "--fixed-in", "misbehave@1.0.0"]).json();
    assert_eq!(replay(&daemon, &third, &[])["replays"][0]["version"], "misbehave@1.0.0");
}

#[test]
fn o2_an_incident_of_another_class_or_kind_binds_nothing() {
    let daemon = Daemon::with_misbehave(&config().another_kind("other", "attempts = 1"));
    let letter = dies(&daemon);
    for options in [&["--kind", "job", "--class", "shop.down"][..], &["--kind", "other"]] {
        let open = [&["incidents", "open", "--note", "seen", "--fixed-in", "9.0.0"], options].concat();
        daemon.ask(&open).json();
    }
    assert_eq!(replay(&daemon, &letter, &[])["state"], "dead");
    let letter = dies(&daemon);
    open(&daemon, &["--fixed-in", "9.0.0"]).json();
    assert_eq!(refused_replay(&daemon, &letter, &[]).0, "not_fixed_in", "the kind's incident is for every class");
}

#[test]
fn o2_a_replay_that_was_refused_at_its_lease_leaves_the_fix_of_the_death_before_it() {
    let daemon = with_two_live_versions();
    let letter = dies(&daemon);
    open(&daemon, &["--class", "shop.closed", "--fixed-in", "1.1.0"]).json();
    daemon.ask(&["kinds", "pause", "job"]).json();
    let options = ["--version", "misbehave@1.1.0", "--reason", "mended"];
    daemon.ask(&[&["dlq", "replay", &id(&letter)], &options[..]].concat()).json();
    daemon.ask(&["handlers", "retire", "misbehave@1.1.0"]).json();
    daemon.ask(&["kinds", "resume", "job"]).json();
    let job = letter["job_id"].as_i64().unwrap();
    assert_eq!(daemon.wait(job), "dead");
    let refused = daemon.dead_letter(job);
    assert_eq!(refused["cause"], "replay_refused");
    assert_eq!(refused_replay(&daemon, &refused, &[]).0, "not_fixed_in");
}

#[test]
fn o2_a_replay_that_was_accepted_stays_accepted() {
    let daemon = Daemon::with_misbehave(&config());
    let letter = dies(&daemon);
    daemon.ask(&["kinds", "pause", "job"]).json();
    let options = ["--payload", r#"{"do":"echo"}"#, "--reason", "mended"];
    daemon.ask(&[&["dlq", "replay", &id(&letter)], &options[..]].concat()).json();
    open(&daemon, &["--fixed-in", "9.0.0"]).json();
    daemon.ask(&["kinds", "resume", "job"]).json();
    assert_eq!(daemon.wait(letter["job_id"].as_i64().unwrap()), "done");
}

#[test]
fn o2_open_dead_letters_are_grouped_by_kind_class_and_version() {
    let daemon = with_two_live_versions();
    let letters = [1, 2, 3].map(|_| dies(&daemon));
    letter_of(&daemon, "job", &told("poison", "shop.defect"));
    activate(&daemon, "1.1.0", &["--keep-live"]);
    let on_second = dies(&daemon);
    daemon.ask(&["dlq", "discard", &id(&letters[0]), "--reason", "given up"]).json();
    let incident = open(&daemon, &["--class", "shop.closed"]).json();
    let groups = daemon.ask(&["dlq", "groups"]).json();
    let shown: Vec<_> = groups["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|group| {
            let text = |name: &str| group[name].as_str().unwrap_or_default().to_owned();
            (text("error_class"), text("handler"), group["open_dead_letters"].as_u64().unwrap())
        })
        .collect();
    let group = |class: &str, version: &str, count| (class.to_owned(), format!("misbehave@{version}"), count);
    assert_eq!(
        shown,
        [group("shop.closed", "1.0.0", 2), group("shop.closed", "1.1.0", 1), group("shop.defect", "1.0.0", 1)]
    );
    let first = &groups["items"][0];
    assert_eq!((&first["first_died_at"], &first["latest_id"]), (&letters[1]["died_at"], &letters[2]["id"]));
    assert_eq!(first["last_died_at"], letters[2]["died_at"]);
    assert_eq!((&first["incident_id"], groups["items"][2].get("incident_id")), (&incident["id"], None));
    // A replay takes its dead letter out, and its death puts another in.
    replay(&daemon, &on_second, &["--version", "misbehave@1.0.0"]);
    let counted = "SELECT sum(letters) FROM open_dead_letters";
    let open = "SELECT count(*) FROM dead_letters WHERE state = 'open'";
    assert_eq!(daemon.database().one::<i64>(counted), daemon.database().one::<i64>(open));
}

#[test]
fn o5_incidents_are_seen_by_viewers_and_changed_by_operators() {
    let uid = rustix::process::geteuid().as_raw();
    let acting =
        |role: &str| config().more(&format!("[actors]\n\"uid:{uid}\" = {{ name = \"jo\", role = \"{role}\" }}"));
    let mut daemon = Daemon::with_misbehave(&acting("admin"));
    let incident = id(&open(&daemon, &[]).json());
    let acts: [&[&str]; 3] = [
        &["incidents", "open", "--kind", "job", "--class", "shop.down", "--note", "seen"],
        &["incidents", "edit", &incident, "--fixed-in", "1.0.0"],
        &["incidents", "close", &incident, "--note", "over"],
    ];
    let looks: [&[&str]; 5] = [
        &["incidents", "ls"],
        &["incidents", "show", &incident],
        &["dlq", "groups"],
        &["alerts", "ls"],
        &["alerts", "pages"],
    ];
    for (role, may_look, may_act) in [("enqueue", false, false), ("view", true, false), ("operate", true, true)] {
        daemon.terminate();
        daemon.write_config(&acting(role));
        daemon.run();
        for (arguments, may) in looks.map(|look| (look, may_look)).into_iter().chain(acts.map(|act| (act, may_act))) {
            let answer = daemon.ask(arguments);
            assert_eq!(answer.status == 0, may, "{role} {arguments:?}: {answer:?}");
            assert!(may || answer.refusal() == "role_required", "{role} {arguments:?}");
        }
    }
}

#[test]
fn o6_a_kill_in_an_act_upon_an_incident_leaves_both_the_act_and_its_audit_row_or_neither() {
    for (point, is_open) in [("incident.opened", false), ("incident.closed", true)] {
        let mut daemon = Daemon::with_misbehave(&config());
        daemon.terminate();
        daemon.set_crash_points(&format!("{point}=kill"));
        daemon.run();
        open(&daemon, &[]);
        if is_open {
            daemon.ask(&["incidents", "close", "1", "--note", "over"]);
        }
        daemon.wait_for_exit();
        daemon.set_crash_points("");
        daemon.run();
        let database = daemon.database();
        assert_eq!(database.one::<i64>("SELECT count(*) FROM incidents WHERE state = 'open'"), i64::from(is_open));
        let audited = database.all::<String>("SELECT action FROM audit WHERE action LIKE 'incident.%'");
        assert_eq!(audited, if is_open { vec!["incident.open".to_owned()] } else { Vec::new() }, "{point}");
        database.check();
    }
}
