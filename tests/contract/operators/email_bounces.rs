//! E3: a bounce that comes later, twice, or before the send's own answer leaves one list and one note on the record of the
//! job that sent the mail, whose state it never changes.

use serde_json::{Value, json};

use crate::{
    email::{accepted, config, enqueue, listed, send, start},
    forms::assert_free,
    letters::id,
    support::{Daemon, Reply, Server},
};

const RECIPIENT: &str = "al1ce.c4nary@example.com";

fn notification(kind: &str, notification: &str) -> Value {
    json!({ "recipient": RECIPIENT, "type": kind, "message_id": "m-1", "id": notification, "diagnostic": "550 no such user" })
}

/// Takes a notification in and waits for the end of its job.
fn bounce(daemon: &Daemon, payload: &Value, key: &str) -> i64 {
    let job = daemon.enqueue("email.bounce", payload, &["--key", key]);
    assert_eq!(daemon.wait(job), "done");
    job
}

/// The classes of a job's notes.
fn notes(daemon: &Daemon, job: i64) -> Vec<String> {
    let shown = daemon.job(job);
    let notes = shown["notes"].as_array().unwrap().iter();
    notes.map(|note| note["class"].as_str().unwrap().to_owned()).collect()
}

/// The job that looks for the send again, and its end.
fn wait_for_second_look(daemon: &Daemon, first: i64) {
    let jobs = daemon.ask(&["jobs", "ls", "--kind", "email.bounce"]).json();
    let second = jobs["items"].as_array().unwrap().iter().filter_map(|job| job["id"].as_i64()).max().unwrap();
    assert!(second > first, "nothing looks again: {jobs}");
    assert_eq!(daemon.wait(second), "done");
}

#[track_caller]
fn check(daemon: &Daemon, send: i64, state: &str) {
    assert_eq!(notes(daemon, send), ["email.hard_bounce"]);
    assert_eq!(daemon.job(send)["state"], state, "a note changed the job");
    assert_eq!(listed(daemon, RECIPIENT), "hard_bounce");
    assert_eq!(daemon.database().one::<i64>("SELECT count(*) FROM stored_values WHERE store = 'suppressions'"), 1);
    assert_eq!(daemon.database().one::<i64>("SELECT count(*) FROM job_notes"), 1);
    daemon.database().check();
}

fn provider() -> Server {
    Server::answering(|_, _| accepted())
}

#[test]
fn e3_a_bounce_that_comes_later_and_twice_is_noted_once_on_the_sends_record() {
    let server = provider();
    let daemon = start(&server);
    let sent = send(&daemon, RECIPIENT)["id"].as_i64().unwrap();
    let first = bounce(&daemon, &notification("hard", "n-1"), "n-1");
    check(&daemon, sent, "done");
    let note = &daemon.job(sent)["notes"][0];
    assert_eq!((&note["by_job_id"], &note["by_kind"]), (&json!(first), &json!("email.bounce")));
    assert!(note["text"].as_str().unwrap().contains("bounced for good"), "{note}");
    // Twice: as the same job, and as another one that carries the same notification.
    assert_eq!(bounce(&daemon, &notification("hard", "n-1"), "n-1"), first);
    bounce(&daemon, &notification("hard", "n-1"), "sent-again");
    check(&daemon, sent, "done");
}

#[test]
fn e3_a_bounce_that_comes_before_the_sends_answer_is_noted_once_that_is_known() {
    let server = Server::answering(|_, _| Reply::Held(Box::new(accepted())));
    let daemon = start(&server);
    let sent = enqueue(&daemon, RECIPIENT);
    server.wait_for(1);
    let first = bounce(&daemon, &notification("hard", "n-1"), "n-1");
    assert_eq!(listed(&daemon, RECIPIENT), "hard_bounce", "the list does not wait for the send");
    assert_eq!(notes(&daemon, sent), Vec::<String>::new());
    server.let_go();
    assert_eq!(daemon.wait(sent), "done");
    wait_for_second_look(&daemon, first);
    check(&daemon, sent, "done");
    // And again, now that it is late.
    bounce(&daemon, &notification("hard", "n-1"), "sent-again");
    check(&daemon, sent, "done");
}

#[test]
fn e3_a_complaint_is_listed_and_noted_beside_a_soft_bounce() {
    let server = provider();
    let daemon = start(&server);
    let sent = send(&daemon, RECIPIENT)["id"].as_i64().unwrap();
    bounce(&daemon, &notification("soft", "n-1"), "n-1");
    assert_eq!(listed(&daemon, RECIPIENT), json!(null));
    bounce(&daemon, &notification("spam_complaint", "n-2"), "n-2");
    assert_eq!(notes(&daemon, sent), ["email.soft_bounce", "email.complaint"]);
    assert_eq!(listed(&daemon, RECIPIENT), "complaint");
    let seen = format!("{}{}", daemon.job(sent), daemon.log());
    assert_free(&seen, &[RECIPIENT], "the record");
}

#[test]
fn e3_a_bounce_of_a_message_of_another_kinds_job_is_noted_nowhere() {
    let server = provider();
    let daemon = start(&server);
    // A job of another kind says of itself that it sent the message.
    let act = json!({ "do": "kv", "ops": [{ "op": "set", "store": "messages", "key": "m-1", "value": "1" }] });
    daemon.write_config(&config(&server).handler("stores = { suppressions = \"read\", messages = \"read-write\" }"));
    daemon.ask(&["reload"]).json();
    let other = daemon.enqueue("job", &act, &[]);
    assert_eq!((other, daemon.wait(other)), (1, "done".to_owned()));
    bounce(&daemon, &notification("hard", "n-1"), "n-1");
    assert!(daemon.wait_for_log("a note was left out").contains("another kind"));
    assert_eq!(notes(&daemon, other), Vec::<String>::new());
    assert_eq!(listed(&daemon, RECIPIENT), "hard_bounce");
}

#[test]
fn r7_a_rehearsed_bounce_shows_its_note_and_makes_none() {
    let server = provider();
    let mut daemon = start(&server);
    let sent = send(&daemon, RECIPIENT)["id"].as_i64().unwrap();
    daemon.terminate();
    let grants_none = config(&server).text().replace("annotate = [\"email.send\"]", "annotate = [\"job\"]");
    std::fs::write(daemon.config_path(), grants_none).unwrap();
    daemon.run();
    let job = daemon.enqueue("email.bounce", &notification("hard", "n-1"), &[]);
    assert_eq!(daemon.wait(job), "dead");
    let letter = daemon.dead_letter(job);
    assert_eq!(letter["error_class"], "records.denied");
    daemon.write_config(&config(&server));
    daemon.ask(&["reload"]).json();
    let report = daemon.ask(&["dlq", "rehearse", &id(&letter)]).json();
    assert_eq!(report["verdict"]["job"], "done", "{report}");
    assert_eq!(
        (&report["notes"][0]["job_id"], &report["notes"][0]["class"]),
        (&json!(sent), &json!("email.hard_bounce"))
    );
    assert_eq!(notes(&daemon, sent), Vec::<String>::new());
}

#[test]
fn h6_email_bounce_without_the_grant_is_refused_with_the_line_that_grants_it() {
    let server = provider();
    let daemon = start(&server);
    let without = config(&server).text().replace("annotate = [\"email.send\"]", "");
    std::fs::write(daemon.config_path(), without).unwrap();
    let refused = daemon.ask(&["reload"]);
    assert_ne!(refused.status, 0, "{refused:?}");
    assert!(
        refused.stderr.contains("annotate = [") && refused.stderr.contains("leasehold:job/records"),
        "{}",
        refused.stderr
    );
    assert!(refused.stderr.contains("[handlers.email-bounce]"), "{}", refused.stderr);
}

#[test]
fn e1_a_bounce_that_can_be_noted_nowhere_lists_its_recipient_all_the_same() {
    let server = provider();
    let daemon = start(&server);
    let sent = send(&daemon, RECIPIENT)["id"].as_i64().unwrap();
    // Longer than the key of a note may be.
    bounce(&daemon, &notification("hard", &"n".repeat(300)), "n-1");
    assert_eq!(listed(&daemon, RECIPIENT), "hard_bounce");
    assert!(notes(&daemon, sent).is_empty());
    // No message that is known, and a key that leaves no room for the number of a second look.
    let mut unknown = notification("hard", "n-2");
    unknown["message_id"] = json!("m-9");
    unknown["recipient"] = json!("b0b.c4nary@example.com");
    bounce(&daemon, &unknown, &"k".repeat(256));
    assert_eq!(listed(&daemon, "b0b.c4nary@example.com"), "hard_bounce");
}
