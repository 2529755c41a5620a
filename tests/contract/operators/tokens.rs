//! O5: callers who come with a token, over TCP and over the socket.

use leasehold_domain::token::is_well_formed;
use serde_json::{Value, json};

use crate::{
    forms::files_with,
    letters::{config, id, letter_of, told},
    raw_http::{RawAnswer, over_socket, over_tcp, tcp_address, with_token},
    support::{ConfigText, Daemon},
};

/// A configuration that serves TCP at a port that the system chooses.
pub fn on_tcp() -> ConfigText {
    config().more("[api]\nlisten = \"127.0.0.1:0\"")
}

/// Makes a token; answers it.
#[track_caller]
pub fn token(daemon: &Daemon, name: &str, role: &str, options: &[&str]) -> String {
    let made = daemon.ask(&[&["tokens", "add", "--name", name, "--role", role], options].concat()).json();
    assert_eq!((&made["name"], &made["role"]), (&json!(name), &json!(role)));
    made["token"].as_str().expect("a token").to_owned()
}

#[track_caller]
fn enqueue(address: &str, token: &str) -> i64 {
    let job = json!({ "kind": "job", "payload": { "do": "echo" } });
    let answer = with_token(address, token, "POST", "/v1/jobs", &job);
    assert_eq!(answer.status, 201, "{answer:?}");
    answer.json()["id"].as_i64().unwrap()
}

fn get(address: &str, token: &str, path: &str) -> RawAnswer {
    with_token(address, token, "GET", path, &Value::Null)
}

#[test]
fn o5_a_token_is_shown_once_and_kept_nowhere() {
    let mut daemon = Daemon::start(&on_tcp());
    let address = tcp_address(&daemon);
    let token = token(&daemon, "ci", "view", &["--expires", "90d"]);
    assert!(is_well_formed(&token), "{token}");
    assert_eq!(get(&address, &token, "/v1/jobs").status, 200);
    let listed = daemon.ask(&["tokens", "ls"]);
    let shown = &listed.json()["items"][0];
    assert_eq!(
        (&shown["name"], &shown["state"], &shown["actor"]),
        (&json!("ci"), &json!("active"), &json!("token:ci"))
    );
    assert!(shown["expires_at"].is_string() && shown["last_used_at"].is_string(), "{shown}");
    let added = daemon.ask(&["audit", "ls", "--action", "token.add"]).json();
    assert_eq!((&added["items"][0]["subject"], &added["items"][0]["detail"]["role"]), (&json!("ci"), &json!("view")));
    for answer in [listed.stdout, daemon.log(), daemon.metrics(), daemon.ask(&["audit", "ls"]).stdout] {
        assert!(!answer.contains(&token), "{answer}");
    }
    daemon.terminate();
    assert_eq!(files_with(daemon.directory(), &token, "compiled"), Vec::<String>::new());
}

#[test]
fn o5_a_token_outlives_its_daemon() {
    let mut daemon = Daemon::start(&on_tcp());
    let token = token(&daemon, "ci", "view", &[]);
    daemon.kill_and_run();
    // It may listen at another port now.
    let log = daemon.log();
    let address =
        log.lines().rfind(|line| line.contains("listening on TCP")).unwrap().rsplit_once("address=").unwrap().1;
    assert_eq!(get(address, &token, "/v1/kinds").status, 200);
}

#[test]
fn o5_a_job_of_a_token_and_its_result_are_its_own() {
    let daemon = Daemon::with_misbehave(&on_tcp());
    let address = tcp_address(&daemon);
    let [own, other, viewer] = [("own", "enqueue"), ("other", "enqueue"), ("viewer", "view")]
        .map(|(name, role)| token(&daemon, name, role, &[]));
    let job = enqueue(&address, &own);
    assert_eq!(daemon.wait(job), "done");
    let path = format!("/v1/jobs/{job}");
    let shown = get(&address, &own, &path).json();
    assert_eq!(shown["enqueued_by"], "token:own");
    assert!(shown["result_base64"].is_string(), "{shown}");
    let waited = get(&address, &own, &format!("{path}/wait"));
    assert_eq!((waited.status, &waited.json()["state"]), (200, &json!("done")));
    // Who may view sees the job and not its result; who may only enqueue sees nothing of another's.
    let seen = get(&address, &viewer, &path).json();
    assert_eq!((&seen["state"], seen.get("result_base64")), (&json!("done"), None));
    for path in [path.clone(), format!("{path}/wait")] {
        let refused = get(&address, &other, &path);
        assert_eq!((refused.status, refused.code()), (403, json!("role_required")), "{path}");
    }
    assert_eq!(daemon.job(job).get("result_base64"), None);
}

#[test]
fn o5_a_revoked_token_and_an_expired_one_are_told_so_and_open_nothing() {
    let daemon = Daemon::start(&on_tcp());
    let address = tcp_address(&daemon);
    let gone = token(&daemon, "gone", "admin", &[]);
    let brief = token(&daemon, "brief", "admin", &["--expires", "1ms"]);
    assert_eq!(get(&address, &gone, "/v1/tokens").status, 200);
    assert_eq!(daemon.ask(&["tokens", "revoke", "gone"]).json()["state"], "revoked");
    for (token, code) in [(&gone, "token_revoked"), (&brief, "token_expired")] {
        for path in ["/v1/tokens", "/healthz", "/nothing"] {
            let refused = get(&address, token, path);
            assert_eq!((refused.status, refused.code()), (401, json!(code)), "{path}");
            assert!(refused.head.contains("www-authenticate: bearer"), "{refused:?}");
        }
        // Nor does the socket take them for their user's, who is an admin.
        let bearer = format!("authorization: Bearer {token}");
        assert_eq!(over_socket(&daemon, "GET", "/v1/tokens", &["host: a", &bearer], b"").code(), code);
    }
    let audit = daemon.ask(&["audit", "ls", "--action", "access.refused", "--actor", "token:gone"]).json();
    let first = audit["items"].as_array().unwrap().last().unwrap();
    assert_eq!(first["detail"], json!({ "code": "token_revoked", "count": 1, "peer": "127.0.0.1" }));
    assert_eq!(daemon.ask(&["tokens", "revoke", "gone"]).refusal(), "already_revoked");
    assert_eq!(daemon.ask(&["tokens", "revoke", "nobody"]).refusal(), "not_found");
}

#[test]
fn o5_no_token_a_malformed_one_and_an_unknown_one_are_told_the_same() {
    let daemon = Daemon::start(&on_tcp());
    let address = tcp_address(&daemon);
    let host = format!("host: {address}");
    let unknown = format!("authorization: Bearer lh_{}", "a".repeat(43));
    let sent = [
        &[&*host][..],
        &[&host, "authorization: Bearer"],
        &[&host, "authorization: Bearer short"],
        &[&host, "authorization: Basic cm9vdDpyb290"],
        &[&host, "cookie: token=lh_a"],
        &[&host, &unknown],
    ];
    let answers: Vec<_> = sent.iter().map(|headers| over_tcp(&address, "GET", "/v1/jobs", headers, b"")).collect();
    assert_eq!(answers[0].code(), "unauthenticated");
    assert!(answers.iter().all(|answer| answer.status == 401 && answer.body == answers[0].body), "{answers:?}");
}

#[test]
fn o5_a_name_is_one_tokens_until_that_is_revoked() {
    let daemon = Daemon::start(&config());
    token(&daemon, "ci", "enqueue", &[]);
    let again = daemon.ask(&["tokens", "add", "--name", "ci", "--role", "admin"]);
    assert_eq!((again.status, again.refusal()), (1, "token_exists".into()));
    assert!(again.stderr.contains("leasehold tokens revoke ci"), "{again:?}");
    let first = daemon.ask(&["tokens", "ls"]).json()["items"][0]["id"].to_string();
    assert_eq!(daemon.ask(&["tokens", "revoke", &first]).json()["name"], "ci");
    token(&daemon, "ci", "view", &[]);
    let listed = daemon.ask(&["tokens", "ls"]).json();
    let states: Vec<_> = listed["items"].as_array().unwrap().iter().map(|token| &token["state"]).collect();
    assert_eq!(states, ["active", "revoked"]);
    for name in ["7", "CI", "a b", ""] {
        assert_eq!(daemon.ask(&["tokens", "add", "--name", name, "--role", "view"]).refusal(), "invalid_token_name");
    }
}

#[test]
fn o5_the_configuration_can_say_who_a_token_is() {
    let daemon = Daemon::start(&on_tcp());
    let address = tcp_address(&daemon);
    let token = token(&daemon, "ci", "admin", &[]);
    daemon.write_config(&on_tcp().more("[actors]\n\"token:ci\" = { name = \"build\", role = \"enqueue\" }"));
    daemon.ask(&["reload"]).json();
    let job = enqueue(&address, &token);
    assert_eq!(daemon.job(job)["enqueued_by"], "build");
    assert_eq!(get(&address, &token, "/v1/jobs").code(), "role_required");
    let listed = daemon.ask(&["tokens", "ls"]).json();
    assert_eq!((&listed["items"][0]["actor"], &listed["items"][0]["role"]), (&json!("build"), &json!("enqueue")));
}

#[test]
fn o5_the_command_line_comes_with_a_token_over_tcp() {
    let daemon = Daemon::with_misbehave(&on_tcp());
    let url = format!("http://{}", tcp_address(&daemon));
    let token = token(&daemon, "jo", "operate", &[]);
    let ask = |token: &str, url: &str, arguments: &[&str]| {
        let mut command = daemon.command(arguments);
        command.env("LEASEHOLD_URL", url).env("LEASEHOLD_TOKEN", token).output().unwrap()
    };
    let paused = ask(&token, &url, &["kinds", "pause", "job"]);
    assert!(paused.status.success(), "{paused:?}");
    let audit = daemon.ask(&["audit", "ls", "--actor", "token:jo"]).json();
    assert_eq!(audit["items"][0]["action"], "kind.pause");
    let code = |output: std::process::Output| {
        let problem: Value = serde_json::from_slice(&output.stderr).unwrap();
        (output.status.code().unwrap(), problem["code"].as_str().unwrap().to_owned())
    };
    assert_eq!(code(ask("", &url, &["kinds", "ls"])), (1, "unauthenticated".into()));
    assert_eq!(code(ask(&token, "http://127.0.0.1:1", &["kinds", "ls"])), (3, "no_daemon".into()));
    assert_eq!(code(ask(&token, "https://127.0.0.1:1", &["kinds", "ls"])), (2, "address_invalid".into()));
}

#[test]
fn r3_a_replay_carries_the_actor_of_its_token() {
    let daemon = Daemon::with_misbehave(&on_tcp());
    let address = tcp_address(&daemon);
    let letter = letter_of(&daemon, "job", &told("rejected", "shop.closed"));
    let token = token(&daemon, "oncall", "operate", &[]);
    let path = format!("/v1/dead-letters/{}/replay", id(&letter));
    let body = json!({ "reason": "mended", "payload": { "do": "echo" } });
    assert_eq!(with_token(&address, &token, "POST", &path, &body).status, 200);
    let job = letter["job_id"].as_i64().unwrap();
    daemon.wait(job);
    assert_eq!(daemon.job(job)["replays"][0]["actor"], "token:oncall");
    let audit = daemon.ask(&["audit", "ls", "--action", "dead_letter.replay"]).json();
    assert_eq!(audit["items"][0]["actor"], "token:oncall");
}
