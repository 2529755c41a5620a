//! D4, D5, R2, R4: which payload each death and each replay was of, what becomes of an original that was corrected, and
//! retention of originals and of dead letters, each by a setting of its own.

use rusqlite::Connection;
use serde_json::{Value, json};

use crate::{
    letters::{config, id, letter_of, refused_replay, replay, told},
    support::{ConfigText, Daemon},
};

/// Lets every dead letter of a stopped daemon have died an hour earlier.
fn age_by_an_hour(daemon: &Daemon) {
    let connection = Connection::open(daemon.data().join("leasehold.db")).unwrap();
    assert!(connection.execute("UPDATE dead_letters SET died_at = died_at - 3600000", []).unwrap() > 0);
}

fn letter(daemon: &Daemon, letter: &Value) -> Value {
    daemon.ask(&["dlq", "show", &id(letter)]).json()
}

/// The details of what was done under a name, the newest first.
fn audited(daemon: &Daemon, action: &str) -> Vec<Value> {
    let audit = daemon.ask(&["audit", "ls"]).json();
    audit["items"].as_array().unwrap().iter().filter(|entry| entry["action"] == action).cloned().collect()
}

#[test]
fn r4_the_payloads_digest_stays_the_same_over_replays_until_it_is_corrected() {
    let daemon = Daemon::with_misbehave(&config());
    let first = letter_of(&daemon, "job", &told("rejected", "shop.closed"));
    let digest = first["payload_digest"].as_str().unwrap().to_owned();
    assert_eq!(digest.len(), 32);
    let job = first["job_id"].as_i64().unwrap();
    let mut open = first.clone();
    for number in 1..=3 {
        let shown = replay(&daemon, &open, &[]);
        assert_eq!((&shown["state"], &shown["payload_digest"]), (&json!("dead"), &json!(digest)), "replay {number}");
        open = daemon.dead_letter(job);
        assert_eq!(open["payload_digest"], digest, "replay {number}");
    }
    let shown = replay(&daemon, &open, &["--payload", r#"{"do":"fail","as":"rejected","class":"shop.defect"}"#]);
    let corrected = shown["payload_digest"].as_str().unwrap();
    assert_ne!(corrected, digest);
    let lineage: Vec<_> = shown["replays"]
        .as_array()
        .unwrap()
        .iter()
        .map(|replay| {
            (
                replay["payload_corrected"].clone(),
                replay["payload_digest_before"].clone(),
                replay["payload_digest_after"].clone(),
            )
        })
        .collect();
    let same = (json!(false), json!(digest), json!(digest));
    assert_eq!(lineage, [same.clone(), same.clone(), same, (json!(true), json!(digest), json!(corrected))]);
    let told = &audited(&daemon, "dead_letter.replay")[0]["detail"];
    assert_eq!((&told["payload_digest_before"], &told["payload_digest_after"]), (&json!(digest), &json!(corrected)));
    // The death after it is of the corrected payload, and those before still say what theirs was.
    assert_eq!(daemon.dead_letter(job)["payload_digest"], corrected);
    assert_eq!(letter(&daemon, &first)["payload_digest"], digest);
    let text = daemon.command(&["dlq", "show", &id(&open)]).output().unwrap();
    assert!(String::from_utf8(text.stdout).unwrap().contains(&digest));
}

#[test]
fn d4_a_digest_that_is_shown_tells_nothing_of_another_job() {
    let daemon = Daemon::with_misbehave(&config());
    let [first, second] = [1, 2].map(|_| letter_of(&daemon, "job", &told("rejected", "shop.closed")));
    assert_ne!(first["payload_digest"], second["payload_digest"], "a guess that is enqueued can be compared");
    let stored: Vec<u8> = daemon.database().one("SELECT payload_digest FROM dead_letters LIMIT 1");
    assert!(!first["payload_digest"].as_str().unwrap().starts_with(&format!("{:02x}{:02x}", stored[0], stored[1])));
}

#[test]
fn d4_a_corrected_replay_keeps_the_sealed_original_and_runs_the_corrected_payload() {
    let daemon = Daemon::with_misbehave(&config());
    let first = letter_of(&daemon, "job", &told("rejected", "shop.closed"));
    let sealed: Vec<u8> = daemon.database().one("SELECT payload_sealed FROM dead_letters");
    let shown = replay(
        &daemon,
        &first,
        &["--payload", r#"{"do":"fail","as":"rejected","class":"shop.closed","message":"another"}"#],
    );
    let second = daemon.dead_letter(shown["id"].as_i64().unwrap());
    assert!(second["redacted_payload"].as_str().unwrap().contains("another"));
    let kept = letter(&daemon, &first);
    assert_eq!((&kept["state"], &kept["original_kept"]), (&json!("replayed"), &json!(true)));
    assert_eq!(kept["redacted_payload"], first["redacted_payload"]);
    let still: Vec<u8> = daemon.database().one("SELECT payload_sealed FROM dead_letters ORDER BY id LIMIT 1");
    assert!(still == sealed, "the original was changed");
    // A replay that corrects nothing takes the original along.
    replay(&daemon, &second, &[]);
    assert_eq!(letter(&daemon, &second)["original_kept"], false);
}

#[test]
fn r2_sending_the_same_payload_again_corrects_nothing() {
    let daemon = Daemon::with_misbehave(&config());
    let act = told("poison", "shop.defect");
    let dead = letter_of(&daemon, "job", &act);
    let payload = act.to_string();
    assert_eq!(refused_replay(&daemon, &dead, &["--payload", &payload]).0, "defect_not_fixed");
    assert_eq!(replay(&daemon, &dead, &["--payload", r#"{"do":"echo"}"#])["state"], "done");
}

#[test]
fn d4_originals_are_erased_after_their_retention_and_the_dead_letters_stay() {
    let mut daemon = Daemon::with_misbehave(&config());
    let open = letter_of(&daemon, "job", &told("rejected", "shop.closed"));
    let corrected = letter_of(&daemon, "job", &told("rejected", "shop.closed"));
    replay(&daemon, &corrected, &["--payload", r#"{"do":"echo"}"#]);
    daemon.terminate();
    age_by_an_hour(&daemon);
    daemon.write_config(&config().queue("original_retention = \"30m\""));
    daemon.run();
    daemon.wait_for_log("originals of dead letters were erased");
    for dead in [&open, &corrected] {
        let shown = letter(&daemon, dead);
        assert_eq!((&shown["original_kept"], &shown["redacted_payload"]), (&json!(false), &dead["redacted_payload"]));
    }
    assert_eq!(letter(&daemon, &open)["state"], "open");
    let erased = audited(&daemon, "dead_letter.erase_original");
    assert_eq!((erased.len(), &erased[0]["actor"], &erased[0]["detail"]["count"]), (1, &json!("retention"), &json!(2)));
    let (code, why) = refused_replay(&daemon, &open, &[]);
    assert!(code == "original_not_kept" && why.contains("original_retention"), "{code}: {why}");
    assert_eq!(replay(&daemon, &open, &["--payload", r#"{"do":"echo"}"#])["state"], "done");
    assert_eq!(daemon.database().one::<i64>("SELECT count(*) FROM dead_letters WHERE payload_sealed IS NOT NULL"), 0);
    daemon.database().check();
}

#[test]
fn d5_dead_letters_are_given_up_only_by_a_setting_and_each_is_audited() {
    let mut daemon = Daemon::with_misbehave(&config());
    let old = [1, 2].map(|_| letter_of(&daemon, "job", &told("rejected", "shop.closed")));
    daemon.terminate();
    age_by_an_hour(&daemon);
    daemon.run();
    let young = letter_of(&daemon, "job", &told("rejected", "shop.closed"));
    daemon.terminate();
    daemon.write_config(&config().queue("dead_letter_retention = \"30m\""));
    daemon.run();
    daemon.wait_for_log("dead letters were given up");
    for dead in &old {
        let shown = letter(&daemon, dead);
        assert_eq!((&shown["state"], &shown["closed_by"]), (&json!("discarded"), &json!("retention")));
        assert_eq!(daemon.job(dead["job_id"].as_i64().unwrap())["state"], "discarded");
    }
    assert_eq!(letter(&daemon, &young)["state"], "open");
    let given_up = audited(&daemon, "dead_letter.discard");
    let told: Vec<_> =
        given_up.iter().map(|entry| (&entry["subject"], &entry["actor"], &entry["detail"]["reason"])).collect();
    let [first, second] = old.each_ref().map(|dead| json!(id(dead)));
    let reason = json!("older than dead_letter_retention, 30m");
    assert_eq!(told, [(&second, &json!("retention"), &reason), (&first, &json!("retention"), &reason)]);
    assert_eq!(refused_replay(&daemon, &old[0], &[]).0, "already_discarded");
    daemon.database().check();
}

#[test]
fn o4_a_retention_of_originals_is_never_or_a_duration() {
    let daemon = Daemon::prepare(&ConfigText::default().queue("original_retention = \"soon\""));
    let answer = daemon.ask(&["config", "check"]);
    assert_ne!(answer.status, 0);
    let allowed = r#"allowed is \"never\" or a duration from \"1m\" to \"3650d\""#;
    assert!(answer.stderr.contains(allowed), "{}", answer.stderr);
    daemon.write_config(&ConfigText::default().queue("original_retention = \"never\""));
    assert_eq!(daemon.ask(&["config", "check"]).status, 0);
}
