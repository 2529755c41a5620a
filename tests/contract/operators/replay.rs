//! R3 and R4: who replayed, and what a replayed job keeps.

use serde_json::{Value, json};

use crate::{
    letters::{attempts, config, id, letter_of, refused_replay, replay, told},
    raw_http,
    support::{ConfigText, Daemon, Server, plugin},
};

/// The caller's own user id under another name, so that a recorded name can only come from the configuration.
fn named(config: ConfigText, name: &str) -> ConfigText {
    let uid = rustix::process::geteuid().as_raw();
    config.more(&format!("[actors]\n\"uid:{uid}\" = {{ name = \"{name}\", role = \"admin\" }}"))
}

#[test]
fn r3_the_actor_is_who_the_socket_says_and_is_recorded_and_told_to_the_guest() {
    let daemon = Daemon::with_misbehave(&named(config(), "jo on call"));
    let letter = letter_of(&daemon, "job", &told("rejected", "shop.closed"));
    let job = replay(&daemon, &letter, &["--payload", r#"{"do":"echo"}"#]);
    assert_eq!(job["state"], "done");

    let recorded = &job["replays"][0];
    assert_eq!((&recorded["actor"], &recorded["reason"]), (&json!("jo on call"), &json!("mended")));
    assert_eq!((&recorded["version"], &recorded["digest"]), (&letter["handler"], &letter["digest"]));
    assert_eq!((&recorded["number"], &recorded["dead_letter_id"]), (&json!(1), &letter["id"]));
    assert_eq!(recorded["result"], "done", "{job}");
    assert!(recorded["ended_at"].as_str().unwrap() >= recorded["requested_at"].as_str().unwrap());
    // The attempts say which replay they belong to, and the guest was told who and when.
    let of_replay: Vec<_> = job["attempts"].as_array().unwrap().iter().map(|attempt| &attempt["replay_id"]).collect();
    assert_eq!(of_replay, [&json!(null), &recorded["id"]]);
    let told = &daemon.result(letter["job_id"].as_i64().unwrap())["replay"];
    assert_eq!((&told["number"], &told["actor"]), (&json!(1), &json!("jo on call")));
    assert!(told["at_ms"].as_i64().unwrap() > 0);
    let closed = daemon.ask(&["dlq", "show", &id(&letter)]).json();
    assert_eq!((&closed["state"], &closed["closed_by"]), (&json!("replayed"), &json!("jo on call")));
}

#[test]
fn r3_no_field_header_or_query_can_name_another_actor() {
    let daemon = Daemon::with_misbehave(&named(config(), "jo on call"));
    let letter = letter_of(&daemon, "job", &told("rejected", "shop.closed"));
    let path = format!("/v1/dead-letters/{}/replay", id(&letter));
    for field in ["actor", "replayed_by", "by"] {
        let body = json!({ "reason": "mended", field: "root" }).to_string();
        let (status, problem) = raw_http::send(&daemon, "POST", &path, &[], &body);
        assert_eq!((status, &problem["code"]), (400, &json!("malformed")), "{problem}");
    }
    let headers = ["x-actor: root", "x-remote-user: root", "from: root", "authorization: Basic cm9vdDpyb290"];
    let body = json!({ "reason": "mended", "payload": { "do": "echo" } }).to_string();
    let (status, answer) = raw_http::send(&daemon, "POST", &format!("{path}?actor=root"), &headers, &body);
    assert_eq!(status, 200, "{answer}");
    let job = letter["job_id"].as_i64().unwrap();
    daemon.wait(job);
    assert_eq!(daemon.job(job)["replays"][0]["actor"], "jo on call");
    assert_eq!(daemon.result(job)["replay"]["actor"], "jo on call");
    assert!(!daemon.ask(&["audit", "ls"]).stdout.contains("root\""));
}

#[test]
fn r3_how_each_replay_ended_is_recorded_on_it() {
    let daemon = Daemon::with_misbehave(&config());
    let first = letter_of(&daemon, "job", &told("rejected", "shop.closed"));
    let job = replay(&daemon, &first, &[]);
    assert_eq!(job["state"], "dead");
    let second = daemon.dead_letter(job["id"].as_i64().unwrap());
    assert_ne!(first["id"], second["id"], "a death has an id of its own");
    let job = replay(&daemon, &second, &["--payload", r#"{"do":"suppress","reason":"gone"}"#]);
    let replays = job["replays"].as_array().unwrap();
    let told: Vec<_> = replays.iter().map(|replay| (&replay["number"], &replay["result"])).collect();
    assert_eq!(told, [(&json!(1), &json!("dead")), (&json!(2), &json!("suppressed"))]);
}

fn charge_config(server: &Server) -> ConfigText {
    let url = server.url();
    config().more(&format!(
        "[handlers.charge-card]\noutbound = [\"POST {url}\"]\nsettings = {{ endpoint = \"{url}\" }}\n\
         [kinds.charge]\nhandler = \"charge-card\"\nowner = \"tests\"\nattempts = 2\n\
         backoff = {{ min = \"10ms\", max = \"50ms\" }}\nredact = {{ names = [\"card\", \"email\"] }}"
    ))
}

#[test]
fn r4_the_mended_version_goes_on_where_the_defect_struck_and_charges_nobody_twice() {
    let server = Server::accepting();
    let daemon = Daemon::start(&charge_config(&server));
    daemon.push_live(&crate::support::guest("charge-card@1.0.0"));
    let order =
        json!({ "order": "A-1001", "amount_cents": 1999, "card": "4111111111111111", "email": "a@example.com" });
    let job = daemon.enqueue("charge", &order, &["--key", "order-A-1001"]);
    assert_eq!(daemon.wait(job), "dead");
    let letter = daemon.dead_letter(job);
    assert_eq!((&letter["cause"], attempts(&letter)), (&json!("poison"), 2));
    assert_eq!(letter["steps"][0]["state"], "applied");

    daemon.push_live(&crate::support::guest("charge-card@1.1.0"));
    let replayed = replay(&daemon, &letter, &[]);
    assert_eq!((&replayed["id"], &replayed["state"]), (&json!(job), &json!("done")));
    let paths: Vec<_> = server.received().into_iter().map(|request| request.path).collect();
    assert_eq!(paths, ["/charges", "/receipts"], "the charge was applied again");
    // The allowed attempts start over and their numbers go on.
    let numbers: Vec<_> = replayed["attempts"].as_array().unwrap().iter().map(|attempt| &attempt["number"]).collect();
    assert_eq!((numbers, &replayed["attempts_used"]), (vec![&json!(1), &json!(2), &json!(3)], &json!(1)));
    assert_eq!(replayed["attempts"][2]["handler"], "charge-card@1.1.0");
    // The key is the job's own still.
    let again = daemon.ask(&["enqueue", "charge", "--payload", &order.to_string(), "--key", "order-A-1001"]).json();
    assert_eq!((&again["id"], &again["duplicate"]), (&json!(job), &json!(true)));
    assert!(daemon.metric("leasehold_duplicates_prevented_total", &[("what", "step")]) >= 2.0);
    daemon.database().check();
}

#[test]
fn r4_a_replay_has_all_of_its_attempts_and_is_told_its_number() {
    let daemon = Daemon::with_misbehave(&config());
    let first = letter_of(&daemon, "job", &told("retry", "shop.down"));
    assert_eq!(attempts(&first), 3);
    let job = first["job_id"].as_i64().unwrap();
    let replayed = replay(&daemon, &first, &[]);
    assert_eq!((&replayed["state"], attempts(&replayed)), (&json!("dead"), 6));
    let second = daemon.dead_letter(job);
    assert_eq!(second["attempt"], 6);
    let done = replay(&daemon, &second, &["--payload", r#"{"do":"echo"}"#]);
    assert_eq!((&done["state"], attempts(&done)), (&json!("done"), 7));
    let told: Value = daemon.result(job);
    assert_eq!(
        (&told["attempt"], &told["attempts_used"], &told["replay"]["number"]),
        (&json!(7), &json!(1), &json!(2))
    );
    assert_eq!(told["id"], json!(job));
}

#[test]
fn r4_the_key_that_downstream_sees_is_the_same_after_a_replay() {
    let server = Server::answering(|_, number| crate::support::Reply::status(if number == 0 { 400 } else { 200 }));
    let url = server.url();
    let config = config().more(&format!(
        "\"downstream.refused\" = \"rejected\"\n[handlers.webhook-deliver]\noutbound = [\"POST {url}\"]\n\
         settings = {{ signing_secret = \"not-a-secret-here\" }}\n\
         [kinds.webhook]\nhandler = \"webhook-deliver\"\nowner = \"tests\""
    ));
    let daemon = Daemon::start(&config);
    daemon.push_live(&plugin("webhook-deliver@1.0.0"));
    let letter = letter_of(&daemon, "webhook", &json!({ "url": url, "body": {} }));
    assert_eq!(replay(&daemon, &letter, &[])["state"], "done");
    let received = server.wait_for(2);
    let keys: Vec<_> = received.iter().map(|request| request.header("idempotency-key").unwrap()).collect();
    assert_eq!(keys[0], keys[1]);
    assert_eq!(received[0].header("webhook-id"), received[1].header("webhook-id"));
}

#[test]
fn r4_a_corrected_payload_has_to_keep_to_its_kind() {
    let daemon = Daemon::with_misbehave(&config().queue("payload_max = \"64B\""));
    let letter = letter_of(&daemon, "job", &told("rejected", "shop.closed"));
    let long = json!({ "do": "log", "text": "x".repeat(64) }).to_string();
    assert_eq!(refused_replay(&daemon, &letter, &["--payload", &long]).0, "payload_too_large");
    assert_eq!(refused_replay(&daemon, &letter, &["--bytes", "--payload", "{"]).0, "malformed_payload");
    assert_eq!(daemon.dead_letter(letter["job_id"].as_i64().unwrap())["id"], letter["id"], "it is open still");
}
