//! R1, R2, R5 and R8: which version a replay may run on, when it is asked for and when it is leased.

use std::fs;

use serde_json::json;

use crate::{
    letters::{activate, attempts, config, id, letter_of, other_misbehave, push, refused_replay, replay, told},
    support::{Daemon, Server, guest},
};

/// A daemon on which 1.0.0 and 1.1.0 are stored, with other bytes, and 1.0.0 is live.
fn with_two_versions() -> Daemon {
    let daemon = Daemon::with_misbehave(&config());
    push(&daemon, &other_misbehave(daemon.directory(), 1), "1.1.0");
    daemon
}

#[test]
fn r1_a_replay_is_bound_to_the_current_version_or_to_the_live_one_that_was_named() {
    let daemon = with_two_versions();
    let [first, second] = [1, 2].map(|_| letter_of(&daemon, "job", &told("rejected", "shop.closed")));
    activate(&daemon, "1.1.0", &["--keep-live"]);
    for (letter, options, version) in
        [(first, &[][..], "misbehave@1.1.0"), (second, &["--version", "misbehave@1.0.0"], "misbehave@1.0.0")]
    {
        assert_eq!(letter["handler"], "misbehave@1.0.0");
        let job = replay(&daemon, &letter, options);
        assert_eq!(job["replays"][0]["version"], version);
        assert_eq!(job["attempts"][1]["handler"], version);
        assert_eq!(job["attempts"][1]["digest"], job["replays"][0]["digest"]);
    }
}

#[test]
fn r1_a_version_that_is_not_live_is_refused_with_what_is() {
    let daemon = with_two_versions();
    let letter = letter_of(&daemon, "job", &told("rejected", "shop.closed"));
    for (version, state) in [("misbehave@1.1.0", "staged"), ("misbehave@9.9.9", "not stored")] {
        let (code, why) = refused_replay(&daemon, &letter, &["--version", version]);
        assert_eq!(code, "version_not_live");
        assert!(why.contains(version) && why.contains(state) && why.contains("live: misbehave@1.0.0"), "{why}");
    }
    activate(&daemon, "1.1.0", &[]);
    let (code, why) = refused_replay(&daemon, &letter, &["--version", "misbehave@1.0.0"]);
    assert_eq!(code, "version_not_live");
    assert!(why.contains("retired") && why.contains("live: misbehave@1.1.0"), "{why}");
    daemon.ask(&["handlers", "retire", "misbehave@1.1.0"]).json();
    let (code, why) = refused_replay(&daemon, &letter, &[]);
    assert_eq!(code, "version_not_live");
    assert!(why.contains("live: none"), "{why}");
    assert_eq!(daemon.job(letter["job_id"].as_i64().unwrap())["replays"], json!([]));
    assert_eq!(daemon.dead_letter(letter["job_id"].as_i64().unwrap())["id"], letter["id"], "it is open still");
}

#[test]
fn r1_a_version_whose_component_is_damaged_is_refused() {
    let daemon = with_two_versions();
    let letter = letter_of(&daemon, "job", &told("rejected", "shop.closed"));
    let component = daemon.data().join("handlers").join(format!("{}.wasm", letter["digest"].as_str().unwrap()));
    let bytes = fs::read(&component).unwrap();
    for damage in [None, Some(&bytes[..bytes.len() / 2])] {
        match damage {
            None => fs::remove_file(&component).unwrap(),
            Some(half) => fs::write(&component, half).unwrap(),
        }
        let (code, why) = refused_replay(&daemon, &letter, &[]);
        assert_eq!(code, "version_not_live");
        assert!(why.contains("missing or damaged"), "{why}");
    }
    fs::write(&component, bytes).unwrap();
    assert_eq!(replay(&daemon, &letter, &["--payload", r#"{"do":"echo"}"#])["state"], "done");
}

#[test]
fn r2_poison_is_not_replayed_onto_bytes_that_it_died_on() {
    let daemon = with_two_versions();
    let letter = letter_of(&daemon, "job", &told("poison", "shop.defect"));
    let (code, why) = refused_replay(&daemon, &letter, &[]);
    assert_eq!(code, "defect_not_fixed");
    assert!(why.contains("misbehave@1.0.0"), "{why}");
    // Another version of the same bytes mends nothing.
    push(&daemon, &guest("misbehave@1.0.0"), "1.0.1");
    activate(&daemon, "1.0.1", &["--keep-live"]);
    assert_eq!(refused_replay(&daemon, &letter, &[]).0, "defect_not_fixed");
    // Other bytes may; the job dies on them, too, and is not replayed onto either of the two.
    activate(&daemon, "1.1.0", &["--keep-live"]);
    let job = replay(&daemon, &letter, &[]);
    assert_eq!((&job["state"], attempts(&job)), (&json!("dead"), 2));
    let second = daemon.dead_letter(job["id"].as_i64().unwrap());
    for version in ["misbehave@1.0.0", "misbehave@1.1.0"] {
        assert_eq!(refused_replay(&daemon, &second, &["--version", version]).0, "defect_not_fixed");
    }
}

#[test]
fn r2_an_override_with_a_reason_or_a_corrected_payload_goes_through() {
    let daemon = with_two_versions();
    let [first, second] = [1, 2].map(|_| letter_of(&daemon, "job", &told("poison", "shop.defect")));
    assert_eq!(refused_replay(&daemon, &first, &["--override-reason", " "]).0, "reason_missing");
    let job = replay(&daemon, &first, &["--override-reason", "the shop's table was wrong"]);
    assert_eq!((&job["state"], attempts(&job)), (&json!("dead"), 2));
    assert_eq!(job["replays"][0]["override_reason"], "the shop's table was wrong");
    let job = replay(&daemon, &second, &["--payload", r#"{"do":"echo","payload":7}"#]);
    assert_eq!((&job["state"], &job["replays"][0]["payload_corrected"]), (&json!("done"), &json!(true)));
    assert_eq!(daemon.result(job["id"].as_i64().unwrap())["payload"], 7);
}

#[test]
fn r2_a_cause_that_blames_no_handler_needs_no_fix() {
    let daemon = with_two_versions();
    for (said, class) in [("rejected", "shop.closed"), ("retry", "shop.down")] {
        let letter = letter_of(&daemon, "job", &told(said, class));
        assert_eq!(replay(&daemon, &letter, &[])["state"], "dead");
    }
}

#[test]
fn r5_a_bound_version_that_is_no_longer_live_at_the_lease_is_refused_and_not_run() {
    let daemon = with_two_versions();
    let letter = letter_of(&daemon, "job", &told("rejected", "shop.closed"));
    let job = letter["job_id"].as_i64().unwrap();
    activate(&daemon, "1.1.0", &["--keep-live"]);
    daemon.ask(&["kinds", "pause", "job"]).json();
    let options = ["--version", "misbehave@1.0.0", "--payload", r#"{"do":"echo"}"#, "--reason", "mended"];
    daemon.ask(&[&["dlq", "replay", &id(&letter)], &options[..]].concat()).json();
    daemon.ask(&["handlers", "retire", "misbehave@1.0.0"]).json();
    daemon.ask(&["kinds", "resume", "job"]).json();

    assert_eq!(daemon.wait(job), "dead");
    let refused = daemon.dead_letter(job);
    assert_eq!(
        (&refused["cause"], &refused["error_class"]),
        (&json!("replay_refused"), &json!("replay.version_not_live"))
    );
    assert!(refused["message"].as_str().unwrap().contains("misbehave@1.0.0"), "{refused}");
    // The lease is recorded, and that no guest ran under it: a run would have ended as done.
    assert_eq!(refused["attempts"][1]["ended_as"], "not_run");
    assert_eq!(daemon.job(job)["replays"][0]["result"], "dead");
    // The payload that was corrected is kept, and the current version can be given it without a fix of its own.
    let mended = replay(&daemon, &refused, &[]);
    assert_eq!(mended["state"], "done");
    assert_eq!(mended["attempts"][2]["handler"], "misbehave@1.1.0");
    daemon.database().check();
}

#[test]
fn r8_a_step_in_doubt_is_resolved_before_its_job_is_replayed_unless_the_kind_begins_again() {
    let server = Server::accepting();
    let doubtful = config().reaching(server.url()).kind("in_doubt = \"dead-letter\"");
    let mut daemon = Daemon::with_misbehave(&doubtful);
    let act = json!({ "do": "step", "name": "charge", "url": server.url(), "inside": "unknown" });
    let letter = letter_of(&daemon, "job", &act);
    let (code, why) = refused_replay(&daemon, &letter, &["--override-reason", "it did not arrive"]);
    assert_eq!(code, "step_unresolved");
    assert!(why.contains("charge"), "{why}");
    assert_eq!(server.received().len(), 1);
    daemon.write_config(&doubtful.kind("in_doubt = \"begin-again\""));
    daemon.terminate();
    daemon.run();
    assert_eq!(replay(&daemon, &letter, &[])["state"], "dead");
    assert_eq!(server.received().len(), 4, "the step was not begun again");
}
