//! Ten thousand webhooks from a file, against a server that refuses some, while the daemon is killed three times and the
//! handler is swapped twice.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt::Write as _,
    fs,
    sync::Mutex,
};

use serde_json::Value;

use crate::support::{ConfigText, Daemon, Received, Reply, Server, plugin};

const JOBS: usize = 10_000;
const KILLS: usize = 3;

/// How the server answers an order's first request: a tenth with 500, a twentieth with 429.
fn first_answer(order: usize) -> u16 {
    match order % 20 {
        3 | 13 => 500,
        7 => 429,
        _ => 200,
    }
}

fn order_of(request: &Received) -> usize {
    serde_json::from_str::<Value>(&request.body).unwrap()["order"].as_u64().unwrap().try_into().unwrap()
}

/// Refuses an order's first request where that is its lot, and accepts all others.
fn picky_server() -> Server {
    let seen = Mutex::new(BTreeSet::new());
    Server::answering(move |request, _| {
        let order = order_of(request);
        let is_first = seen.lock().unwrap().insert(order);
        match if is_first { first_answer(order) } else { 200 } {
            429 => Reply::Status(429, vec![("retry-after", "1".into())], String::new()),
            status => Reply::status(status),
        }
    })
}

fn config(server: &Server) -> ConfigText {
    ConfigText::default().sandbox("slots = 32").more(&format!(
        "\"downstream.unavailable\" = \"retry\"\n\"downstream.timeout\" = \"retry\"\n\"downstream.connect\" = \"retry\"\n\
         \"downstream.rate_limited\" = \"rate-limited\"\n\
         [handlers.webhook-deliver]\noutbound = [\"POST {}\"]\nsettings = {{ signing_secret = \"a-secret-of-tests\" }}\n\
         [kinds.\"webhook.deliver\"]\nhandler = \"webhook-deliver\"\nowner = \"tests\"\nattempts = 10\n\
         backoff = {{ min = \"20ms\", max = \"500ms\" }}\nvisibility_timeout = \"10s\"\nheartbeat = \"1s\"\n\
         deadline = \"30s\"\nin_doubt = \"begin-again\"\n",
        server.url()
    ))
}

fn write_jobs(daemon: &Daemon, server: &Server) -> String {
    let mut lines = String::new();
    for order in 0..JOBS {
        let payload = format!(r#"{{"url":"{}/hook","body":{{"order":{order},"total":"12.50"}}}}"#, server.url());
        writeln!(
            lines,
            r#"{{"kind":"webhook.deliver","key":"order-{order}","lane":"receiver-{}","payload":{payload}}}"#,
            order % 7
        )
        .unwrap();
    }
    let path = daemon.directory().join("jobs.jsonl");
    fs::write(&path, lines).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn i2_ten_thousand_webhooks_survive_three_kills_and_two_swaps() {
    let server = picky_server();
    let mut daemon = Daemon::start(&config(&server));
    let component = plugin("webhook-deliver@1.0.0");
    daemon.push_live(&component);
    let path = write_jobs(&daemon, &server);
    let answer = daemon.ask(&["enqueue", "--file", &path]);
    assert_eq!(answer.status, 0, "{}", answer.stderr);

    for kill in 1..=KILLS {
        server.wait_for(JOBS * kill / (KILLS + 1));
        if kill > 1 {
            swap(&daemon, &component, kill);
        }
        daemon.kill_and_run();
    }
    wait_for_all(&daemon);

    let jobs = Jobs::read(&daemon);
    assert_eq!(jobs.by_order.len(), JOBS);
    for (order, requests) in group(&server.received()) {
        jobs.check(order, &requests);
    }
    let kills = daemon.database().one::<i64>("SELECT count(*) FROM attempts WHERE ended_as = 'daemon_stopped'");
    assert!(kills > 0, "no kill hit a running attempt");
    let versions = daemon.database().all::<String>("SELECT DISTINCT version FROM attempts ORDER BY version");
    assert_eq!(versions.len(), 3, "{versions:?}");
    daemon.database().check();
}

/// Puts the same handler in under another version, as a fix would be.
fn swap(daemon: &Daemon, component: &std::path::Path, number: usize) {
    let version = format!("1.0.{number}");
    let named = ["--name", "webhook-deliver", "--version", &version, "--activate"];
    let arguments = [&["handlers", "push", component.to_str().unwrap()], &named[..]].concat();
    daemon.ask(&arguments).json();
}

/// Waits for each job in turn; whoever has ended answers at once.
fn wait_for_all(daemon: &Daemon) {
    let open = daemon.database().all::<i64>("SELECT id FROM jobs ORDER BY id");
    for job in open {
        daemon.wait(job);
    }
    assert_eq!(daemon.database().one::<i64>("SELECT count(*) FROM jobs"), 0);
}

/// What the server got, by order, in the order of arrival.
fn group(received: &[Received]) -> BTreeMap<usize, Vec<Received>> {
    let mut groups = BTreeMap::<usize, Vec<Received>>::new();
    for request in received {
        groups.entry(order_of(request)).or_default().push(request.clone());
    }
    groups
}

/// What the daemon recorded of every job.
struct Jobs {
    /// The job of each order: a file's lines become jobs in their order.
    by_order: HashMap<usize, i64>,
    /// The runs of its step that were begun in doubt.
    in_doubt: HashMap<i64, usize>,
    /// When its step's result was durable.
    applied_at_ms: HashMap<i64, i64>,
}

/// The queue's clock and the server's are both in whole milliseconds, and were not read at the same moment.
const CLOCKS_APART_MS: i64 = 5;

impl Jobs {
    fn read(daemon: &Daemon) -> Self {
        let database = daemon.database();
        let done = database.all::<i64>("SELECT id FROM ended_jobs WHERE state = 'done' ORDER BY id");
        let in_doubt = database.all::<i64>("SELECT job_id FROM step_runs WHERE in_doubt = 1");
        let mut counts = HashMap::new();
        for job in in_doubt {
            *counts.entry(job).or_default() += 1;
        }
        let applied = database.all::<i64>("SELECT job_id FROM steps WHERE state = 'applied' ORDER BY job_id");
        let applied_at_ms = database.all::<i64>("SELECT applied_at FROM steps WHERE state = 'applied' ORDER BY job_id");
        Self {
            by_order: done.into_iter().enumerate().collect(),
            in_doubt: counts,
            applied_at_ms: applied.into_iter().zip(applied_at_ms).collect(),
        }
    }

    /// An order is refused at most once and accepted once; every further acceptance belongs to a run in doubt.
    fn check(&self, order: usize, requests: &[Received]) {
        let job = self.by_order[&order];
        let in_doubt = self.in_doubt.get(&job).copied().unwrap_or(0);
        let refused = usize::from(first_answer(order) != 200);
        let repeated = requests.len() - refused - 1;
        assert!(repeated <= in_doubt, "order {order}, job {job}: {repeated} repetitions, {in_doubt} runs in doubt");
        let last_at_ms = requests.iter().map(|request| request.at_ms).max().unwrap();
        assert!(
            last_at_ms <= self.applied_at_ms[&job] + CLOCKS_APART_MS,
            "order {order}, job {job}: a request arrived after the step's result was durable"
        );
        let keys: BTreeSet<_> = requests.iter().map(|request| request.header("idempotency-key")).collect();
        assert_eq!(keys.len(), 1, "order {order}: {keys:?}");
        assert!(keys.iter().all(Option::is_some), "order {order} came without a key");
    }
}
