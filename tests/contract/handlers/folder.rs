//! H8: components that are put into the watched folder.

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
};

use crate::support::{ConfigText, Daemon, guest};

const VERSION: &[u8] = br#""version":"1.0.0""#;

fn config() -> ConfigText {
    ConfigText::default().daemon("handlers_folder = \"folder\"").handler("activate_from_folder = true")
}

/// A daemon that watches its folder.
fn watching(config: &ConfigText) -> (Daemon, PathBuf) {
    let daemon = Daemon::start(config);
    daemon.wait_for_log("the handlers folder is watched");
    let folder = daemon.directory().join("folder");
    (daemon, folder)
}

/// The component `misbehave` under another version: other bytes of the same size.
fn with_version(version: &str) -> Vec<u8> {
    let mut bytes = fs::read(guest("misbehave@1.0.0")).unwrap();
    let places: Vec<_> = (0..bytes.len() - VERSION.len()).filter(|at| bytes[*at..].starts_with(VERSION)).collect();
    for at in places {
        bytes[at + VERSION.len() - 6..at + VERSION.len() - 1].copy_from_slice(version.as_bytes());
    }
    bytes
}

fn state(daemon: &Daemon, version: &str) -> String {
    daemon.ask(&["handlers", "show", version]).json()["state"].as_str().unwrap().to_owned()
}

#[test]
fn h8_a_component_in_the_folder_is_stored_and_goes_live_where_configured() {
    let (daemon, folder) = watching(&config());
    fs::copy(guest("misbehave@1.0.0"), folder.join("whatever.wasm")).unwrap();
    daemon.wait_for_log("a handler version went live version=misbehave@1.0.0");
    assert_eq!(state(&daemon, "misbehave@1.0.0"), "live");
    let audit = daemon.ask(&["audit", "ls"]).stdout;
    assert!(audit.contains("handlers folder"), "{audit}");

    // One of another handler is only stored.
    fs::copy(guest("bench-parse@1.0.0"), folder.join("bench.wasm")).unwrap();
    daemon.wait_for_log("stored file=");
    daemon.wait_for_log("version=bench-parse@1.0.0");
    assert_eq!(state(&daemon, "bench-parse@1.0.0"), "staged");
}

#[test]
fn h8_what_lies_in_the_folder_at_the_start_is_taken_in() {
    let mut daemon = Daemon::prepare(&config());
    let folder = daemon.directory().join("folder");
    fs::create_dir(&folder).unwrap();
    fs::copy(guest("misbehave@1.0.0"), folder.join("misbehave.wasm")).unwrap();
    daemon.run();
    daemon.wait_for_log("a handler version went live version=misbehave@1.0.0");
    daemon.ask(&["handlers", "retire", "misbehave@1.0.0"]).json();

    // A version that was retired since does not come back by still lying there.
    daemon.kill_and_run();
    daemon.wait_for_log_lines(2, "the handlers folder is watched");
    assert_eq!(state(&daemon, "misbehave@1.0.0"), "retired");
}

#[test]
fn h8_a_half_written_file_is_said_once_and_taken_in_when_it_is_whole() {
    let (daemon, folder) = watching(&config());
    let whole = fs::read(guest("misbehave@1.0.0")).unwrap();
    let path = folder.join("misbehave.wasm");
    fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    daemon.wait_for_log("component_truncated");
    fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    fs::write(&path, &whole).unwrap();
    daemon.wait_for_log("a handler version went live version=misbehave@1.0.0");
    assert_eq!(daemon.log().matches("component_truncated").count(), 1);
}

#[test]
fn h8_empty_huge_and_foreign_files_are_said_in_one_line_each() {
    let (daemon, folder) = watching(&config().sandbox("component_max = \"1MiB\""));
    let cases: [(&str, &[u8], &str); 4] = [
        ("empty.wasm", b"", "component_empty"),
        ("huge.wasm", &vec![0; (1 << 20) + 1], "component_too_large"),
        ("text.wasm", b"(component)", "component_text"),
        ("core.wasm", b"\0asm\x01\0\0\0", "component_core_module"),
    ];
    for (name, bytes, code) in cases {
        write_whole(&folder, name, bytes);
        let line = daemon.wait_for_log(code);
        assert!(line.contains(name), "{line}");
    }
    write_whole(&folder, "notes.txt", b"not a component");
    write_whole(&folder, ".hidden.wasm", b"not a component");
    fs::copy(guest("misbehave@1.0.0"), folder.join("misbehave.wasm")).unwrap();
    daemon.wait_for_log("a handler version went live version=misbehave@1.0.0");
    assert_eq!(daemon.log().matches("can't be taken in").count(), cases.len());
}

#[test]
fn h8_other_bytes_of_the_same_size_and_time_are_noticed() {
    let (daemon, folder) = watching(&config());
    let path = folder.join("misbehave.wasm");
    fs::write(&path, with_version("1.0.0")).unwrap();
    daemon.wait_for_log("a handler version went live version=misbehave@1.0.0");
    let before = fs::metadata(&path).unwrap();

    // Put in place by a rename, with the time of the file before.
    let aside = daemon.directory().join("aside");
    fs::write(&aside, with_version("1.0.1")).unwrap();
    fs::File::open(&aside).unwrap().set_modified(before.modified().unwrap()).unwrap();
    fs::rename(&aside, &path).unwrap();
    let after = fs::metadata(&path).unwrap();
    assert_eq!((before.len(), before.modified().unwrap()), (after.len(), after.modified().unwrap()));
    daemon.wait_for_log("a handler version went live version=misbehave@1.0.1");

    // A stored version never changes, also not by the folder.
    let mut other = with_version("1.0.1");
    other.extend_from_slice(b"\0\x03\x01xy");
    fs::write(&path, other).unwrap();
    daemon.wait_for_log("version_exists_with_other_bytes");
}

#[test]
fn h8_a_file_that_is_deleted_and_made_again_is_looked_at_again() {
    let (daemon, folder) = watching(&config());
    let path = folder.join("misbehave.wasm");
    fs::write(&path, b"not yet").unwrap();
    daemon.wait_for_log("can't be taken in");
    fs::remove_file(&path).unwrap();
    fs::write(&path, b"not yet").unwrap();
    daemon.wait_for_log_lines(2, "can't be taken in");
    fs::remove_file(&path).unwrap();
    fs::copy(guest("misbehave@1.0.0"), &path).unwrap();
    daemon.wait_for_log("a handler version went live version=misbehave@1.0.0");
}

#[test]
fn h8_other_bytes_of_the_same_size_and_time_are_noticed_in_the_file_itself() {
    let (daemon, folder) = watching(&config());
    let path = folder.join("misbehave.wasm");
    fs::write(&path, with_version("1.0.0")).unwrap();
    daemon.wait_for_log("a handler version went live version=misbehave@1.0.0");
    let before = fs::metadata(&path).unwrap();
    // Written over while it is open, and given the time of before ahead of its end.
    let mut file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all(&with_version("1.0.1")).unwrap();
    file.set_modified(before.modified().unwrap()).unwrap();
    drop(file);
    let after = fs::metadata(&path).unwrap();
    assert_eq!((before.len(), before.modified().unwrap()), (after.len(), after.modified().unwrap()));
    daemon.wait_for_log("a handler version went live version=misbehave@1.0.1");
}

#[test]
fn h8_a_file_that_was_moved_away_is_looked_at_again_when_it_is_back() {
    let (daemon, folder) = watching(&config());
    let (path, aside) = (folder.join("misbehave.wasm"), daemon.directory().join("aside"));
    fs::write(&path, b"not yet").unwrap();
    daemon.wait_for_log("can't be taken in");
    fs::rename(&path, &aside).unwrap();
    fs::rename(&aside, &path).unwrap();
    daemon.wait_for_log_lines(2, "can't be taken in");
}

#[test]
fn h8_a_link_is_taken_in_though_nobody_writes_it() {
    let (daemon, folder) = watching(&config());
    std::os::unix::fs::symlink(guest("misbehave@1.0.0"), folder.join("misbehave.wasm")).unwrap();
    daemon.wait_for_log("a handler version went live version=misbehave@1.0.0");
    let aside = daemon.directory().join("aside");
    fs::write(&aside, with_version("1.0.1")).unwrap();
    fs::hard_link(&aside, folder.join("another.wasm")).unwrap();
    daemon.wait_for_log("a handler version went live version=misbehave@1.0.1");
}

#[test]
fn h8_what_is_no_file_hangs_nothing() {
    let (daemon, folder) = watching(&config());
    fs::create_dir(folder.join("directory.wasm")).unwrap();
    std::os::unix::fs::symlink(folder.join("endless.wasm"), folder.join("endless.wasm")).unwrap();
    daemon.wait_for_log("endless.wasm");
    std::os::unix::fs::symlink("/dev/zero", folder.join("device.wasm")).unwrap();
    let line = daemon.wait_for_log("device.wasm");
    assert!(line.contains("component_empty"), "{line}");
    fs::copy(guest("misbehave@1.0.0"), folder.join("misbehave.wasm")).unwrap();
    daemon.wait_for_log("a handler version went live version=misbehave@1.0.0");
}

#[test]
fn h8_a_folder_that_is_removed_is_watched_again_when_it_is_back() {
    let (daemon, folder) = watching(&config());
    fs::copy(guest("misbehave@1.0.0"), folder.join("misbehave.wasm")).unwrap();
    daemon.wait_for_log("a handler version went live version=misbehave@1.0.0");
    fs::remove_dir_all(&folder).unwrap();
    daemon.wait_for_log("the handlers folder is gone");
    // Put in place as a whole, as a deployment does.
    let aside = daemon.directory().join("aside");
    fs::create_dir(&aside).unwrap();
    fs::write(aside.join("misbehave.wasm"), with_version("1.0.1")).unwrap();
    fs::rename(&aside, &folder).unwrap();
    daemon.wait_for_log("a handler version went live version=misbehave@1.0.1");
    daemon.wait_for_log_lines(2, "the handlers folder is watched");
    fs::write(folder.join("another.wasm"), with_version("1.0.2")).unwrap();
    daemon.wait_for_log("a handler version went live version=misbehave@1.0.2");
}

/// Puts a file into the folder in one step, so that it is looked at once.
fn write_whole(folder: &Path, name: &str, bytes: &[u8]) {
    let aside = folder.join(format!(".{name}.aside"));
    fs::write(&aside, bytes).unwrap();
    fs::rename(aside, folder.join(name)).unwrap();
}
