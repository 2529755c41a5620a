//! Q7 from end to end: a guest whose lease is lost begins no further step, whether it is stopped in time or not. The
//! handler has two steps, a charge and a receipt, and the server counts what arrives.

use serde_json::{Value, json};

use crate::{
    support::{ConfigText, Daemon, Reply, Server, guest},
    told::{attempts, count},
};

/// A server that holds the first charge back.
fn server() -> Server {
    Server::answering(|_, number| match number {
        0 => Reply::Held(Box::new(Reply::status(201))),
        _ => Reply::status(201),
    })
}

/// A daemon whose first heartbeat never comes back, so that no other is sent for the first lease and it is lost. Later
/// leases are kept alive.
fn that_loses_the_first_lease(server: &Server, crash_points: &str) -> Daemon {
    let url = server.url();
    let config = ConfigText::default().queue("release_max = 1000").queue("release_delay = \"100ms\"").more(&format!(
        "[handlers.charge-card]\noutbound = [\"POST {url}\"]\nsettings = {{ endpoint = \"{url}\" }}\n\
         [kinds.charge]\nhandler = \"charge-card\"\nowner = \"tests\"\nattempts = 10\nin_doubt = \"begin-again\"\n\
         visibility_timeout = \"2s\"\nheartbeat = \"200ms\"\ndeadline = \"2m\"\n\
         backoff = {{ min = \"10ms\", max = \"50ms\" }}"
    ));
    let mut daemon = Daemon::prepare(&config);
    daemon.set_crash_points(&format!("heartbeat.send=1*return->off;{crash_points}"));
    daemon.run();
    daemon.push_live(&guest("charge-card@1.1.0"));
    daemon
}

fn order() -> Value {
    json!({ "order": "A-1", "amount_cents": 1999, "card": "visa-1", "email": "a@example.com" })
}

/// How many requests of a step arrived.
fn arrived(server: &Server, path: &str) -> usize {
    server.received().iter().filter(|request| request.path == path).count()
}

/// The attempts that began a step, as the queue recorded it.
fn begun_by(daemon: &Daemon, step: &str) -> Vec<i64> {
    daemon.database().all(&format!("SELECT attempt FROM step_runs WHERE name = '{step}' ORDER BY attempt"))
}

#[test]
fn q7_a_guest_whose_lease_is_lost_is_stopped_and_begins_no_further_step() {
    let server = server();
    let mut daemon = that_loses_the_first_lease(&server, "");
    let job = daemon.enqueue("charge", &order(), &[]);
    server.wait_for(1);
    daemon.wait_for_log("an attempt's lease is lost; its guest is stopped");
    // A later attempt does both steps; the first charge, whose answer nobody had, is in doubt. An attempt that comes while
    // the first guest is still being stopped is given back.
    assert_eq!(daemon.wait(job), "done");
    let attempts = attempts(&daemon, job);
    let [first, between @ .., last] = &attempts[..] else { panic!("{attempts:?}") };
    assert_eq!((first, last), (&("expired".to_owned(), true), &("done".to_owned(), true)));
    // One comes every 100 ms, and a guest in a host call is stopped at once.
    assert!(
        between.len() <= 10 && between.iter().all(|attempt| *attempt == ("released".to_owned(), false)),
        "{attempts:?}"
    );
    server.let_go();
    // Whatever the first guest would still do, it would do before the daemon has stopped.
    assert!(daemon.terminate().success());
    assert_eq!((arrived(&server, "/charges"), arrived(&server, "/receipts")), (2, 1));
    let (charges, receipts) = (begun_by(&daemon, "charge"), begun_by(&daemon, "receipt"));
    assert!(charges.len() == 2 && charges[0] == 1 && receipts == charges[1..], "{charges:?} {receipts:?}");
    daemon.database().check();
}

#[test]
fn q7_a_guest_that_could_not_be_stopped_begins_no_further_step_either() {
    let server = server();
    let daemon = that_loses_the_first_lease(&server, "lease.keep_running_when_lost=return");
    let job = daemon.enqueue("charge", &order(), &[]);
    server.wait_for(1);
    daemon.wait_for_log("a lease ran out");
    daemon.wait_for_log("an attempt was given back");
    server.let_go();
    // The first guest's charge is its own and stands; its receipt is refused, and so is its end.
    daemon.wait_for_log("a late result changed nothing");
    assert_eq!(daemon.wait(job), "done");
    assert_eq!((arrived(&server, "/charges"), arrived(&server, "/receipts")), (1, 1));
    assert_eq!(begun_by(&daemon, "charge"), [1]);
    let receipt_by = begun_by(&daemon, "receipt");
    assert!(receipt_by.len() == 1 && receipt_by[0] > 1, "{receipt_by:?}");
    assert_eq!(attempts(&daemon, job)[0], ("expired".to_owned(), true));
    assert_eq!(count(&daemon, "leasehold_duplicates_applied_total", &[]), 0);
    daemon.database().check();
}
