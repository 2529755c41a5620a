//! O1: what is measured, in a form that Prometheus reads, with names by its conventions and nobody's data in the labels.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;

use crate::{
    forms::assert_free,
    letters::{config, told, wait_until_counted},
    support::{Daemon, Server},
};

/// One family of samples, as the text form groups them.
#[derive(Debug, Default)]
struct Family {
    kind: String,
    has_help: bool,
    samples: Vec<Sample>,
}

#[derive(Debug, Clone)]
struct Sample {
    name: String,
    labels: BTreeMap<String, String>,
    value: f64,
}

/// Reads the text form and fails on whatever Prometheus would refuse or warn about.
fn read(text: &str) -> BTreeMap<String, Family> {
    assert!(text.ends_with('\n'), "the last line has no end");
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let (mut series, mut last_family) = (BTreeSet::new(), String::new());
    for line in text.lines().filter(|line| !line.is_empty()) {
        if let Some(rest) = line.strip_prefix("# ") {
            let (what, rest) = rest.split_once(' ').unwrap();
            let (name, said) = rest.split_once(' ').unwrap_or_else(|| panic!("nothing is said: {line}"));
            let family = families.entry(name.to_owned()).or_default();
            assert!(family.samples.is_empty(), "{line} comes after its samples");
            match what {
                "HELP" => assert!(!std::mem::replace(&mut family.has_help, true), "twice: {line}"),
                "TYPE" => assert!(std::mem::replace(&mut family.kind, said.to_owned()).is_empty(), "twice: {line}"),
                _ => panic!("a comment that is neither HELP nor TYPE: {line}"),
            }
            continue;
        }
        let sample = read_sample(line);
        let name = family_of(&sample.name, &families);
        assert!(series.insert((sample.name.clone(), sample.labels.clone())), "a series that comes twice: {line}");
        let family = families.get_mut(&name).unwrap();
        assert!(family.samples.is_empty() || last_family == name, "{name} is not in one piece");
        family.samples.push(sample);
        last_family = name;
    }
    families
}

fn read_sample(line: &str) -> Sample {
    let (series, value) = line.rsplit_once(' ').unwrap();
    let (name, labels) = match series.split_once('{') {
        Some((name, labels)) => (name, labels.strip_suffix('}').unwrap_or_else(|| panic!("not closed: {line}"))),
        None => (series, ""),
    };
    assert!(is_name(name), "{name:?} is no name");
    let pairs = labels.split_terminator("\",").map(|pair| pair.trim_end_matches('"').split_once("=\"").unwrap());
    let labels: BTreeMap<_, _> = pairs.map(|(label, value)| (label.to_owned(), value.to_owned())).collect();
    assert!(labels.keys().all(|label| is_name(label) && !label.starts_with("__")), "{line}");
    let value = value.parse().unwrap_or_else(|_| panic!("{value:?} is no number: {line}"));
    Sample { name: name.to_owned(), labels, value }
}

fn is_name(text: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    !text.is_empty() && !text.as_bytes()[0].is_ascii_digit() && text.bytes().all(is_word)
}

/// A histogram's samples have names of their own.
fn family_of(name: &str, families: &BTreeMap<String, Family>) -> String {
    let parts = ["_bucket", "_sum", "_count"].iter().filter_map(|suffix| name.strip_suffix(suffix));
    let histogram = parts.into_iter().find(|base| families.get(*base).is_some_and(|family| family.kind == "histogram"));
    let family = histogram.unwrap_or(name);
    assert!(families.contains_key(family), "{name} has neither HELP nor TYPE");
    family.to_owned()
}

#[track_caller]
fn assert_conventional(name: &str, family: &Family) {
    assert!(name.starts_with("leasehold_"), "{name}");
    assert!(family.has_help, "{name} has no HELP");
    assert!(matches!(&*family.kind, "counter" | "gauge" | "histogram"), "{name} is of type {:?}", family.kind);
    assert_eq!(name.ends_with("_total"), family.kind == "counter", "{name} is a {}", family.kind);
    for unit in ["_ms", "_milliseconds", "_minutes", "_kib", "_percent"] {
        assert!(!name.trim_end_matches("_total").ends_with(unit), "{name} is in no base unit");
    }
    if family.kind == "histogram" {
        assert_buckets(name, family);
    }
}

/// The buckets of one series, each with its upper bound and its count, and the count of all.
#[derive(Debug, Default)]
struct Buckets {
    bounds: Vec<(f64, f64)>,
    count: f64,
}

/// The buckets of each series grow up to `+Inf`, which counts all.
fn assert_buckets(name: &str, family: &Family) {
    let mut series: BTreeMap<_, Buckets> = BTreeMap::new();
    for sample in &family.samples {
        let mut labels = sample.labels.clone();
        let bound = labels.remove("le");
        let entry = series.entry(labels).or_default();
        match bound {
            Some(bound) => entry.bounds.push((bound.parse().unwrap(), sample.value)),
            None if sample.name.ends_with("_count") => entry.count = sample.value,
            None => assert!(sample.name.ends_with("_sum"), "{}", sample.name),
        }
    }
    for (labels, Buckets { bounds, count }) in series {
        assert!(bounds.is_sorted_by(|(low, few), (high, more)| low < high && few <= more), "{name} {labels:?}");
        let (bound, all) = bounds.last().copied().unwrap_or_else(|| panic!("{name} {labels:?} has no buckets"));
        assert!(bound.is_infinite() && (all - count).abs() < 0.1, "{name} {labels:?}");
    }
}

const PRIVATE: &str = "jo-4711@example.org";

/// A daemon on which something of everything has happened, of jobs with private data in each part.
fn busy(server: &Server) -> Daemon {
    let config = config()
        .reaching(server.url())
        .kind("heartbeat = \"50ms\"")
        .kind("visibility_timeout = \"500ms\"")
        .kind("redact = { names = [\"class\"] }");
    let daemon = Daemon::with_misbehave(&config);
    let acts = [
        json!({ "do": "echo", "payload": PRIVATE }),
        json!({ "do": "fail", "as": "poison", "class": PRIVATE, "message": PRIVATE }),
        json!({ "do": "sleep", "ms": 200 }),
        json!({ "do": "step", "name": "send", "url": server.url(), "subject": PRIVATE, "then": "retry" }),
        told("poison", "shop.down"),
    ];
    for (number, act) in acts.iter().enumerate() {
        let key = format!("{PRIVATE}-{number}");
        let metadata = format!("email={PRIVATE}");
        let options = ["--key", &key, "--meta", &metadata, "--lane", PRIVATE];
        let job = daemon.enqueue("job", act, &options);
        daemon.enqueue("job", act, &options);
        if daemon.wait(job) == "dead" {
            wait_until_counted(&daemon, job);
        }
    }
    daemon.enqueue("job", &acts[0], &["--delay", "1h"]);
    daemon
}

#[test]
fn o1_everything_is_measured_in_a_form_that_prometheus_reads() {
    let server = Server::accepting();
    let daemon = busy(&server);
    let text = daemon.metrics();
    let families = read(&text);
    for (name, family) in &families {
        assert_conventional(name, family);
    }
    for (name, kind, labels) in [
        ("leasehold_job_attempts", "histogram", &["kind"][..]),
        ("leasehold_dead_letters_total", "counter", &["kind", "cause"]),
        ("leasehold_duplicates_prevented_total", "counter", &["what"]),
        ("leasehold_duplicates_applied_total", "counter", &[]),
        ("leasehold_stale_settlements_total", "counter", &[]),
        ("leasehold_attempt_run_seconds", "histogram", &["kind"]),
        ("leasehold_queue_oldest_ready_seconds", "gauge", &["kind"]),
        ("leasehold_queue_jobs", "gauge", &["kind", "state"]),
        ("leasehold_handler_version_live", "gauge", &["handler", "version"]),
        ("leasehold_heartbeat_delay_seconds", "histogram", &[]),
        ("leasehold_settle_commit_seconds", "histogram", &[]),
    ] {
        let family = families.get(name).unwrap_or_else(|| panic!("{name} is not measured:\n{text}"));
        assert_eq!(family.kind, kind, "{name}");
        let sample = family.samples.first().unwrap_or_else(|| panic!("{name} has no samples"));
        assert!(labels.iter().all(|label| sample.labels.contains_key(*label)), "{sample:?}");
    }
    assert_free(&text, &[PRIVATE], "the metrics");
}

#[test]
fn o1_what_happened_is_what_is_counted() {
    let server = Server::accepting();
    let daemon = busy(&server);
    let near = |name: &str, labels: &[(&str, &str)], expected: f64| {
        let value = daemon.metric(name, labels);
        assert!((value - expected).abs() < 0.1, "{name} {labels:?} is {value}, not {expected}");
    };
    near("leasehold_jobs_enqueued_total", &[("kind", "job")], 6.0);
    near("leasehold_duplicates_prevented_total", &[("what", "job")], 5.0);
    // The step was applied by the first of three attempts and given back to the two others.
    near("leasehold_duplicates_prevented_total", &[("what", "step")], 2.0);
    near("leasehold_duplicates_applied_total", &[], 0.0);
    near("leasehold_jobs_ended_total", &[("state", "done")], 2.0);
    near("leasehold_jobs_ended_total", &[("state", "dead")], 3.0);
    near("leasehold_dead_letters_total", &[("cause", "poison")], 1.0);
    near("leasehold_dead_letters_total", &[("cause", "exhausted")], 2.0);
    near("leasehold_job_attempts_count", &[("kind", "job")], 5.0);
    near("leasehold_job_attempts_sum", &[("kind", "job")], 9.0);
    near("leasehold_queue_jobs", &[("kind", "job"), ("state", "waiting")], 1.0);
    near("leasehold_handler_version_live", &[("version", "1.0.0")], 1.0);
    assert!(daemon.metric("leasehold_attempt_run_seconds_sum", &[("kind", "job")]) >= 0.2);
    assert!(daemon.metric("leasehold_heartbeat_delay_seconds_count", &[]) >= 1.0);
}

/// How often leases of a job ran out whose both attempts get no heartbeats, under further crash points.
fn expiries(crash_points: &str) -> f64 {
    let config = config().kind("attempts = 2").kind("heartbeat = \"100ms\"").kind("visibility_timeout = \"400ms\"");
    let mut daemon = Daemon::prepare(&config);
    daemon.set_crash_points(&format!("heartbeat.send=return;{crash_points}"));
    daemon.run();
    daemon.push_live(&crate::support::guest("misbehave@1.0.0"));
    crate::letters::letter_of(&daemon, "job", &json!({ "do": "loop" }));
    let families = read(&daemon.metrics());
    assert_conventional("leasehold_lease_expiries_total", &families["leasehold_lease_expiries_total"]);
    daemon.metric("leasehold_lease_expiries_total", &[("kind", "job")])
}

#[test]
fn o1_a_lease_that_ran_out_is_counted_once_whoever_finds_it() {
    // Both find it; the host alone, which stops the guest; the reaper alone, while the guest runs on.
    for crash_points in ["", "reaper.run=return", "lease.keep_running_when_lost=return"] {
        let expiries = expiries(crash_points);
        assert!((expiries - 2.0).abs() < 0.1, "{crash_points:?}: {expiries} of 2 were counted");
    }
}
