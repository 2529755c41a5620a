//! What the tests tell the guest `misbehave`, and what they look for in the log.

use serde_json::{Value, json};

use crate::support::{Daemon, Reply, Server};

/// The line of a verdict that is held.
pub const UNWRITTEN: &str = "a settlement could not be written";

/// A server that holds its first answers back.
pub fn holding_the_first(count: usize) -> Server {
    Server::answering(move |_, number| {
        let reply = Reply::status(200);
        if number < count { Reply::Held(Box::new(reply)) } else { reply }
    })
}

/// Ends well at once.
pub fn echo() -> Value {
    json!({ "do": "echo" })
}

/// Asks the server, outside of any step, and ends well with its answer.
pub fn get(server: &Server) -> Value {
    json!({ "do": "get", "url": server.url() })
}

/// Sends the server one request in a step, and breaks in it once it was answered.
pub fn send_and_break(server: &Server) -> Value {
    json!({ "do": "step", "name": "send", "url": server.url(), "inside": "panic" })
}

/// How each attempt of a job ended, in order.
#[track_caller]
pub fn ends(daemon: &Daemon, job: i64) -> Vec<String> {
    let shown = daemon.job(job);
    let attempts = shown["attempts"].as_array().unwrap().iter();
    attempts.map(|attempt| attempt["ended_as"].as_str().unwrap_or("running").to_owned()).collect()
}

/// How many lines of the log tell of trouble.
pub fn lines_of_trouble(daemon: &Daemon) -> usize {
    daemon.log().lines().filter(|line| line.contains("ERROR") || line.contains(" WARN")).count()
}

/// The one line with which the daemon says why it does not start.
#[track_caller]
pub fn why_it_does_not_start(daemon: &mut Daemon) -> String {
    let seen = daemon.log().lines().count();
    daemon.spawn();
    assert_eq!(daemon.wait_for_exit().code(), Some(1), "{}", daemon.log());
    let log = daemon.log();
    let said: Vec<_> = log.lines().skip(seen).collect();
    let [line] = said[..] else { panic!("not one line: {said:#?}") };
    assert!(line.starts_with("error: "), "{line}");
    line.to_owned()
}
