//! The daemon killed at random moments, over and over, while jobs come in: 20 times, or as often as `LEASEHOLD_CRASH_KILLS`
//! says. After each kill the database passes SQLite's integrity check and all that must hold in it; at the end every job
//! that was answered has ended, and the server outside has seen each order once, but for runs that were in doubt.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    process::{Child, Stdio},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde_json::{Value, json};

use crate::support::{ConfigText, Daemon, Server, guest};

const KILLS: usize = 20;
/// How many orders come in between two kills, besides one job that dies.
const ORDERS: usize = 12;
/// The longest time after the last request that a kill waits for. The moment of the kill is the fault that is tested;
/// nothing is waited for by it.
const MOMENT_MAX_US: u64 = 20_000;

/// What the run draws from: the moments of its kills.
struct Random(u64);

impl Random {
    /// `SplitMix64`, by Steele, Lea and Flood.
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{variable} is no number")))
}

fn prepare(server: &Server) -> Daemon {
    let config = ConfigText::default()
        .kind("attempts = 50")
        .reaching(server.url())
        .another_kind("dies", "attempts = 3\nbackoff = { min = \"10ms\", max = \"50ms\" }");
    let mut daemon = Daemon::prepare(&config);
    daemon.run();
    daemon.push_live(&guest("misbehave@1.0.0"));
    daemon
}

/// Writes the file of one round's jobs.
fn write_round(daemon: &Daemon, server: &Server, round: usize) -> String {
    let mut lines = String::new();
    for order in 0..ORDERS {
        let name = format!("{round}-{order}");
        let act = json!({ "do": "step", "name": "pay", "url": server.url(), "body": name });
        writeln!(lines, r#"{{"kind":"job","key":"order-{name}","payload":{act}}}"#).unwrap();
    }
    writeln!(lines, r#"{{"kind":"dies","key":"poison-{round}","payload":{{"do":"panic"}}}}"#).unwrap();
    let path = daemon.directory().join(format!("round-{round}.jsonl"));
    fs::write(&path, lines).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Sends a file while the test goes on.
fn send(daemon: &Daemon, file: &str) -> Child {
    let mut command = daemon.command(&["enqueue", "--file", file]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
}

/// The ids that were answered with success.
fn answered(child: Child) -> Vec<i64> {
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()?["id"].as_i64()).collect()
}

/// The orders whose requests have arrived, each with how often.
fn arrived(server: &Server) -> BTreeMap<String, usize> {
    let mut orders = BTreeMap::new();
    for request in server.received() {
        *orders.entry(request.body).or_default() += 1;
    }
    orders
}

/// Kills the daemon at a random moment of a round: after some of the requests that have to come, and then some time.
fn kill_at_random(daemon: &mut Daemon, server: &Server, round: usize, random: &mut Random) {
    let received = server.received();
    let of_round = format!("{round}-");
    let here = received.iter().filter(|request| request.body.starts_with(&of_round)).count();
    let to_come = u64::try_from(ORDERS.saturating_sub(here)).unwrap();
    server.wait_for(received.len() + usize::try_from(random.below(to_come + 1)).unwrap());
    std::thread::sleep(Duration::from_micros(random.below(MOMENT_MAX_US)));
    daemon.kill();
}

#[test]
fn o6_kills_at_random_moments_lose_nothing_and_apply_nothing_twice() {
    let kills = number("LEASEHOLD_CRASH_KILLS").map_or(KILLS, |kills| usize::try_from(kills).unwrap());
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
    let seed = number("LEASEHOLD_CRASH_SEED").unwrap_or_else(|| u64::try_from(now_ms).unwrap());
    println!("{kills} kills, moments drawn from LEASEHOLD_CRASH_SEED={seed}");
    let mut random = Random(seed);
    let server = Server::accepting();
    let mut daemon = prepare(&server);
    let (mut files, mut acknowledged) = (Vec::new(), BTreeSet::new());
    for round in 1..=kills {
        let file = write_round(&daemon, &server, round);
        let sending = send(&daemon, &file);
        kill_at_random(&mut daemon, &server, round, &mut random);
        acknowledged.extend(answered(sending));
        files.push(file);
        daemon.database().check();
        daemon.run();
    }
    assert!(acknowledged.len() >= kills, "hardly anything was answered: {}", acknowledged.len());
    finish(&daemon, &files);
    check(&daemon, &server, kills * ORDERS, &acknowledged);
}

/// Sends whatever was not answered again, waits for every end, and replays what was blamed for the kills.
fn finish(daemon: &Daemon, files: &[String]) {
    for file in files {
        let answer = daemon.ask(&["enqueue", "--file", file]);
        assert_eq!(answer.status, 0, "{}", answer.stderr);
    }
    for job in daemon.database().all::<i64>("SELECT id FROM jobs ORDER BY id") {
        daemon.wait(job);
    }
    // A job that was running at three kills in a row is taken for their cause, as it should be.
    let blamed =
        daemon.database().all::<i64>("SELECT job_id FROM dead_letters WHERE kind = 'job' AND cause = 'crashed'");
    println!("{} orders were blamed for kills", blamed.len());
    for job in blamed {
        let letter = daemon.dead_letter(job)["id"].to_string();
        daemon.ask(&["dlq", "replay", &letter, "--reason", "a test", "--override-reason", "the test killed it"]).json();
        assert_eq!(daemon.wait(job), "done");
    }
}

fn check(daemon: &Daemon, server: &Server, orders: usize, acknowledged: &BTreeSet<i64>) {
    let database = daemon.database();
    database.check();
    let ended: BTreeSet<i64> = database.all("SELECT id FROM ended_jobs").into_iter().collect();
    let lost: Vec<_> = acknowledged.difference(&ended).collect();
    assert!(lost.is_empty(), "jobs that were answered are gone: {lost:?}");
    let done: i64 = database.one("SELECT count(*) FROM ended_jobs WHERE kind = 'job' AND state = 'done'");
    let dead: i64 = database.one("SELECT count(*) FROM ended_jobs WHERE kind = 'dies' AND state = 'dead'");
    assert_eq!(usize::try_from(done).unwrap(), orders);
    assert_eq!(usize::try_from(done + dead).unwrap(), ended.len());
    let requests = arrived(server);
    assert_eq!(requests.len(), orders, "each order arrived");
    let repeated: usize = requests.values().map(|count| count - 1).sum();
    let in_doubt: i64 = database.one("SELECT count(*) FROM step_runs WHERE in_doubt = 1");
    println!("{repeated} requests were repeated, {in_doubt} runs were in doubt");
    assert!(repeated <= usize::try_from(in_doubt).unwrap(), "{repeated} repetitions, {in_doubt} in doubt");
    assert!(daemon.metric("leasehold_duplicates_applied_total", &[]).abs() < 0.1);
}
