//! O6: files of handlers that vanish or are damaged.

use std::{fs, path::PathBuf};

use leasehold_domain::Digest;
use serde_json::{Value, json};

use crate::{
    support::{ConfigText, Daemon, guest},
    told::echo,
};

const OTHER: &str = "[handlers.bench-parse]\n[kinds.parse]\nhandler = \"bench-parse\"\nowner = \"tests\"\n";

/// The one kind of that name, as operators see it.
#[track_caller]
fn kind(daemon: &Daemon, name: &str) -> Value {
    let kinds = daemon.ask(&["kinds", "ls"]).json();
    let kinds = kinds["items"].as_array().unwrap_or_else(|| panic!("{kinds}"));
    kinds.iter().find(|kind| kind["kind"] == name).unwrap().clone()
}

#[test]
fn o6_a_live_handler_whose_file_vanished_runs_on_and_waits_after_a_restart_until_it_is_pushed_again() {
    let mut daemon = Daemon::with_misbehave(&ConfigText::default().more(OTHER));
    daemon.push_live(&guest("bench-parse@1.0.0"));
    let digest = daemon.ask(&["handlers", "show", "misbehave@1.0.0"]).json()["digest"].as_str().unwrap().to_owned();
    fs::remove_file(daemon.data().join("handlers").join(format!("{digest}.wasm"))).unwrap();
    // From memory.
    let job = daemon.enqueue("job", &echo(), &[]);
    assert_eq!(daemon.wait(job), "done");
    daemon.kill_and_run();
    daemon.wait_for_log("a live handler version can't run; its jobs wait");
    let job = daemon.enqueue("job", &echo(), &[]);
    let other = daemon.enqueue("parse", &json!({ "to": "somebody" }), &[]);
    assert_eq!(daemon.wait(other), "done");
    assert_eq!((&daemon.job(job)["state"], &daemon.job(job)["attempt"]), (&json!("ready"), &json!(0)));
    assert_eq!(kind(&daemon, "job")["waiting_for_handler"], true);
    daemon.ask(&["handlers", "push", guest("misbehave@1.0.0").to_str().unwrap()]).json();
    assert_eq!(daemon.wait(job), "done");
    assert_eq!(kind(&daemon, "job")["waiting_for_handler"], false);
}

/// The compiled file of the one component of a daemon whose compiled files are its own.
fn compiled(daemon: &Daemon) -> PathBuf {
    let files = fs::read_dir(daemon.data().join("compiled")).unwrap().map(|entry| entry.unwrap().path());
    let files: Vec<_> = files.collect();
    let [file] = &files[..] else { panic!("not one compiled file: {files:?}") };
    file.clone()
}

#[test]
fn o6_a_compiled_file_that_is_stale_cut_flipped_or_foreign_is_compiled_again() {
    let mut daemon = Daemon::prepare(&ConfigText::default().more(OTHER));
    fs::remove_file(daemon.data().join("compiled")).unwrap();
    daemon.run();
    daemon.push_live(&guest("bench-parse@1.0.0"));
    let file = compiled(&daemon);
    let sound = fs::read(&file).unwrap();
    let mut flipped = sound.clone();
    flipped[sound.len() / 2] ^= 1;
    // What another engine wrote, with a digest that holds.
    let foreign_body = b"machine code of another engine".repeat(100);
    let foreign = [&Digest::of(&foreign_body).as_bytes()[..], &foreign_body].concat();
    for harmed in [flipped, sound[..sound.len() / 2].to_vec(), Vec::new(), foreign] {
        daemon.kill();
        fs::write(&file, harmed).unwrap();
        daemon.run();
        let job = daemon.enqueue("parse", &json!({ "to": "somebody" }), &[]);
        assert_eq!(daemon.wait(job), "done");
        assert!(fs::read(compiled(&daemon)).unwrap() == sound, "it was not compiled again");
    }
    daemon.kill();
    // That of another engine's version has another name, and goes.
    let name = file.file_name().unwrap().to_str().unwrap();
    let stale = file.with_file_name(format!("{}-000000000000.cwasm", name.split('-').next().unwrap()));
    fs::rename(&file, &stale).unwrap();
    daemon.run();
    assert!(fs::read(compiled(&daemon)).unwrap() == sound && !stale.exists());
}
