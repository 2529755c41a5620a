//! H4: switching versions while jobs run, forth and back.

use std::fs;

use serde_json::{Value, json};

use crate::{
    helpers::{FIRST, SECOND, activate, push_second, state, version},
    support::{ConfigText, Daemon, Reply, Server},
};

/// The version and digest that a job's one attempt recorded.
#[track_caller]
fn ran_on(daemon: &Daemon, job: i64) -> (Value, Value) {
    let shown = daemon.job(job);
    assert_eq!(shown["attempts"].as_array().unwrap().len(), 1, "{shown}");
    (shown["attempts"][0]["handler"].clone(), shown["attempts"][0]["digest"].clone())
}

fn identity(daemon: &Daemon, of: &str) -> (Value, Value) {
    (json!(of), version(daemon, of)["digest"].clone())
}

#[test]
fn h4_attempts_that_have_begun_finish_on_their_version_and_those_after_run_on_the_new_one() {
    let server = Server::answering(|_, _| Reply::Held(Box::new(Reply::status(200))));
    let daemon = Daemon::with_misbehave(&ConfigText::default().reaching(server.url()));
    push_second(&daemon);
    let begin_two = |arrived| {
        let payload = json!({ "do": "get", "url": server.url() });
        let jobs: Vec<i64> = (0..2).map(|_| daemon.enqueue("job", &payload, &[])).collect();
        server.wait_for(arrived);
        jobs
    };
    let before = begin_two(2);
    activate(&daemon, SECOND);
    let after = begin_two(4);
    activate(&daemon, FIRST);
    let rolled_back = begin_two(6);
    server.let_go();
    for (jobs, of) in [(before, FIRST), (after, SECOND), (rolled_back, FIRST)] {
        for job in jobs {
            assert_eq!(daemon.wait(job), "done");
            assert_eq!(ran_on(&daemon, job), identity(&daemon, of));
        }
    }
    assert_ne!(identity(&daemon, FIRST).1, identity(&daemon, SECOND).1);
    // The end of the attempts that it began before it drained does not retire a version that is live again.
    assert_eq!((state(&daemon, FIRST).as_str(), state(&daemon, SECOND).as_str()), ("live", "retired"));
}

#[test]
fn h4_switching_forth_and_back_under_load_loses_and_doubles_nothing() {
    // As many jobs as there are slots run at a time and are let go together, so that each switch comes between two of
    // such rounds, whatever else the machine does.
    const SLOTS: usize = 8;
    const JOBS: usize = 15 * SLOTS;
    let server = Server::answering(|_, _| Reply::Held(Box::new(Reply::status(200))));
    let daemon = Daemon::with_misbehave(&ConfigText::default().reaching(server.url()));
    push_second(&daemon);
    let line = json!({ "payload": { "do": "step", "name": "s", "url": server.url() } }).to_string() + "\n";
    let file = daemon.directory().join("jobs.jsonl");
    fs::write(&file, line.repeat(JOBS)).unwrap();
    let answers = daemon.ask(&["enqueue", "job", "--file", file.to_str().unwrap()]).stdout;
    let answers = serde_json::Deserializer::from_str(&answers).into_iter::<Value>();
    let jobs: Vec<i64> = answers.filter_map(|answer| answer.unwrap()["id"].as_i64()).collect();
    assert_eq!(jobs.len(), JOBS);
    let switches = [SECOND, FIRST, SECOND, FIRST, SECOND];
    for round in 0..JOBS / SLOTS {
        server.wait_for(SLOTS * (round + 1));
        if let Some(to) = switches.get(round) {
            activate(&daemon, to);
        }
        server.let_go();
    }
    let mut by_version = [0, 0];
    for job in jobs {
        assert_eq!(daemon.wait(job), "done");
        let ran_on = ran_on(&daemon, job);
        let which =
            [FIRST, SECOND].into_iter().position(|of| ran_on == identity(&daemon, of)).expect("a known version");
        by_version[which] += 1;
    }
    assert!(by_version.iter().all(|count| *count > 0), "{by_version:?}");
    assert_eq!(server.received().len(), JOBS);
    assert_eq!(daemon.log().matches("ready socket").count(), 1);
    daemon.database().check();
}

/// The priorities of a daemon's threads whose names begin so, as nice values (proc(5), field 19).
fn nice_of(daemon: &Daemon, name: &str) -> Vec<i64> {
    let owner = fs::read_to_string(daemon.data().join("leasehold.lock")).unwrap();
    let tasks = fs::read_dir(format!("/proc/{}/task", owner.trim())).unwrap();
    // A thread that ends meanwhile is none.
    let stats = tasks.filter_map(|task| fs::read_to_string(task.unwrap().path().join("stat")).ok());
    let of_name = stats.filter(|stat| stat.contains(&format!("({name}")));
    of_name.map(|stat| stat.rsplit(')').next().unwrap().split_whitespace().nth(16).unwrap().parse().unwrap()).collect()
}

#[test]
fn h4_whatever_compiles_gives_way_to_guests_and_guests_to_all_else() {
    let daemon = Daemon::with_misbehave(&ConfigText::default());
    // One thread gives the work out, to others of the same name.
    let compiling = nice_of(&daemon, "leasehold-compi");
    assert!(compiling.len() > 1 && compiling.iter().all(|nice| *nice == 15), "{compiling:?}");
    let guests = nice_of(&daemon, "leasehold-guest");
    assert!(!guests.is_empty() && guests.iter().all(|nice| *nice == 10), "{guests:?}");
    let own = i64::from(rustix::process::getpriority_process(None).unwrap());
    for vital in ["leasehold-contr", "leasehold-write", "leasehold-epoch"] {
        let nice = nice_of(&daemon, vital);
        assert!(!nice.is_empty() && nice.iter().all(|nice| *nice == own), "{vital}: {nice:?}");
    }
}
