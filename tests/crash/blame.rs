//! Q13: a job that stops the daemon each time, its neighbours, and the rest of the queue.

use serde_json::json;

use crate::support::{ConfigText, Daemon, Reply, Server, guest};

const NEIGHBOURS: usize = 7;

#[test]
fn q13_a_job_that_kills_the_daemon_dies_of_it_and_its_neighbours_do_not() {
    let server = Server::answering(|_, number| {
        let reply = Reply::status(200);
        if number < NEIGHBOURS { Reply::Held(Box::new(reply)) } else { reply }
    });
    let lines = "attempts = 5\nbackoff = { min = \"10ms\", max = \"50ms\" }\ndeadline = \"20s\"";
    let config = ConfigText::default().kind("attempts = 5").reaching(server.url()).another_kind("killer", lines);
    let mut daemon = Daemon::prepare(&config);
    daemon.set_crash_points("attempt.begin.killer=kill");
    daemon.run();
    daemon.push_live(&guest("misbehave@1.0.0"));
    let get = json!({ "do": "get", "url": format!("{}/", server.url()) });
    let neighbours: Vec<_> = (0..NEIGHBOURS).map(|_| daemon.enqueue("job", &get, &[])).collect();
    server.wait_for(NEIGHBOURS);

    // The first stop finds all of them running; so does the second, and then all are suspects.
    daemon.ask(&["enqueue", "killer", "--payload", r#"{"do":"echo"}"#]);
    daemon.wait_for_exit();
    daemon.spawn();
    daemon.wait_for_exit();
    // Suspects run one at a time: the neighbours end well, and the daemon stops under the killer alone.
    daemon.spawn();
    daemon.wait_for_exit();
    daemon.run();

    let killer: i64 = daemon.database().one("SELECT id FROM ended_jobs WHERE kind = 'killer'");
    assert_eq!(daemon.dead_letter(killer)["cause"], "crashed");
    for neighbour in neighbours {
        assert_eq!(daemon.wait(neighbour), "done");
        assert_eq!(daemon.job(neighbour)["attempts_used"], 3, "two stops and the run that went well");
    }
    let bystander = daemon.enqueue("job", &get, &[]);
    assert_eq!(daemon.wait(bystander), "done");
    daemon.database().check();
}
