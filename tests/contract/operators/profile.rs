//! The shipped profile, as a newcomer uses it: on a fresh directory, without any secret.

use std::fs;

use serde_json::json;

use crate::support::{ConfigText, Daemon, plugin};

const PROFILE: &str = include_str!("../../../config.toml");

#[test]
fn h3_every_handler_goes_live_on_the_shipped_profile_without_its_secrets() {
    let mut daemon = Daemon::prepare(&ConfigText::default());
    fs::write(daemon.config_path(), PROFILE).unwrap();
    daemon.run();
    for name in ["email-send@1.0.0", "email-bounce@1.0.0", "webhook-deliver@1.0.0"] {
        assert_eq!(daemon.push_live(&plugin(name))["activated"]["state"], "live", "{name}");
    }
    let payload = json!({ "url": "https://example.com/hooks", "body": { "order": 4711 } });
    let job = daemon.enqueue("webhook.deliver", &payload, &["--key", "order-4711"]);
    assert_eq!(daemon.wait(job), "dead");
    let letter = daemon.dead_letter(job);
    assert_eq!((&letter["cause"], &letter["error_class"]), (&json!("rejected"), &json!("settings.missing")));

    // The secret is put in while the daemon runs, and taken out again.
    let secret = daemon.directory().join("secrets/webhook-signing-secret");
    fs::create_dir(secret.parent().unwrap()).unwrap();
    fs::write(&secret, "a-signing-secret").unwrap();
    daemon.ask(&["reload"]).json();
    fs::remove_file(&secret).unwrap();
    daemon.ask(&["reload"]).json();
    daemon.kill_and_run();
    assert_eq!(daemon.ask(&["handlers", "show", "webhook-deliver@1.0.0"]).json()["intact"], true);
}
