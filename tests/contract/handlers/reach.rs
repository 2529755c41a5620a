//! H6: a guest reaches nothing that its handler was not granted.

use std::fs;

use serde_json::{Value, json};

use crate::{
    helpers::done,
    support::{ConfigText, Daemon, Server},
};

fn get(daemon: &Daemon, url: &str) -> Value {
    done(daemon, &json!({ "do": "get", "url": url }))
}

fn port(server: &Server) -> &str {
    server.url().rsplit(':').next().unwrap()
}

#[test]
fn h6_only_the_granted_scheme_host_port_and_method_are_reached() {
    let (granted, other) = (Server::accepting(), Server::accepting());
    let config = ConfigText::default().handler(&format!("outbound = [\"GET {}\"]", granted.url()));
    let daemon = Daemon::with_misbehave(&config);
    assert_eq!(get(&daemon, granted.url())["status"], 200);
    let port = port(&granted);
    for url in [
        other.url().to_owned(),
        format!("https://127.0.0.1:{port}"),
        format!("http://localhost:{port}"),
        format!("http://127.0.0.2:{port}"),
    ] {
        let answer = get(&daemon, &url);
        assert_eq!(answer["error"], "Denied", "{url}: {answer}");
    }
    let job = daemon.enqueue("job", &json!({ "do": "step", "name": "s", "url": granted.url() }), &[]);
    assert_eq!(daemon.wait(job), "dead");
    let log = daemon.job(job)["attempts"][0]["log"].as_str().unwrap().to_owned();
    assert!(log.contains("granted with GET alone"), "{log}");
    assert_eq!(daemon.job(job)["steps"][0]["state"], "taken_back");
    assert_eq!((granted.received().len(), other.received().len()), (1, 0));
}

#[test]
fn h6_a_private_address_is_refused_unless_it_is_granted_as_such() {
    let server = Server::accepting();
    let port = port(&server);
    let any_host = format!("url = \"http://*:{port}\", methods = [\"GET\"]");
    let daemon = Daemon::with_misbehave(&ConfigText::default().handler(&format!("outbound = [{{ {any_host} }}]")));
    let written = [
        "127.0.0.1",
        "127.0.0.1.",
        "127.1",
        "2130706433",
        "0x7f000001",
        "0x7f.0.0.1",
        "0177.0.0.1",
        "017700000001",
        "0.0.0.0",
        "[::]",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::127.0.0.1]",
        "[64:ff9b::127.0.0.1]",
        "[2002:7f00:1::]",
        "169.254.169.254",
        "10.0.0.1",
        "[fd00::1]",
        // Names that resolve to this machine.
        "localhost",
        "LOCALHOST.",
    ];
    for host in written {
        let answer = get(&daemon, &format!("http://{host}:{port}"));
        assert_eq!(answer["error"], "Denied", "{host}: {answer}");
    }
    assert!(server.received().is_empty());
    daemon.write_config(&ConfigText::default().handler(&format!("outbound = [{{ {any_host}, private = true }}]")));
    daemon.ask(&["reload"]).json();
    assert_eq!(get(&daemon, server.url())["status"], 200);
}

#[test]
fn h6_settings_secrets_and_stores_of_others_are_not_there() {
    let config = ConfigText::default()
        .handler("stores = { s = \"read-write\", readable = \"read\" }")
        .handler("secrets = { mine = { file = \"secret\" } }")
        .more("[handlers.other]\nsettings = { theirs = \"t\" }\nstores = { private = \"read-write\" }")
        .more("secrets = { hidden = { file = \"secret\" } }");
    let mut daemon = Daemon::prepare(&config);
    fs::write(daemon.directory().join("secret"), "word").unwrap();
    daemon.run();
    daemon.push_live(&crate::support::guest("misbehave@1.0.0"));
    let setting = |name: &str| done(&daemon, &json!({ "do": "settings", "name": name }));
    assert_eq!((setting("greeting"), setting("mine")), (json!("hello"), json!("word")));
    for name in ["theirs", "hidden", "secret", "HOME", "PATH", "LEASEHOLD_CRASH_POINTS"] {
        assert_eq!(setting(name), Value::Null, "{name}");
    }
    let op = |op: &str, store: &str| match op {
        "set" => json!({ "op": op, "store": store, "key": "k", "value": "v" }),
        _ => json!({ "op": op, "store": store, "key": "k" }),
    };
    let ops = [op("set", "s"), op("get", "s"), op("get", "readable"), op("set", "readable"), op("delete", "readable")];
    let ops: Vec<Value> = ops.into_iter().chain(["get", "set"].map(|name| op(name, "private"))).collect();
    let answers = done(&daemon, &json!({ "do": "kv", "ops": ops }));
    let denied = json!({ "error": "AccessDenied" });
    assert_eq!(answers, json!(["set", "v", null, denied, denied, denied, denied]));
}

#[test]
fn h6_an_unsafe_request_outside_a_step_is_refused_unless_the_grant_allows_it() {
    let server = Server::accepting();
    let daemon = Daemon::with_misbehave(&ConfigText::default().reaching(server.url()));
    let payload = json!({ "do": "post", "url": server.url() });
    let job = daemon.enqueue("job", &payload, &[]);
    assert_eq!(daemon.wait(job), "done");
    assert_eq!(daemon.result(job)["error"], "Denied");
    let log = daemon.job(job)["attempts"][0]["log"].as_str().unwrap().to_owned();
    assert!(log.contains("outside a step") && log.contains("outside_step = true"), "{log}");
    assert!(server.received().is_empty());
    let grant = format!("outbound = [{{ url = \"{}\", methods = [\"POST\"], outside_step = true }}]", server.url());
    daemon.write_config(&ConfigText::default().handler(&grant));
    daemon.ask(&["reload"]).json();
    assert_eq!(done(&daemon, &payload)["status"], 200);
    // Nothing ties such a request to a step, so the host gives it no key.
    assert_eq!(server.received()[0].header("idempotency-key"), None);
}
