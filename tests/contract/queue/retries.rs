//! Q8 and Q9: backoff and rate limits.

use serde_json::{Value, json};

use crate::{
    support::{ConfigText, Daemon},
    told::{attempts, echo, ended, enqueue_file, fail, slow_down},
};

const HOUR_MS: i64 = 3_600_000;

/// One attempt at a time, so that a job that has ended shows that those before it were settled.
fn one_at_a_time() -> ConfigText {
    ConfigText::default().sandbox("slots = 1")
}

fn job(lane: &str, payload: &Value) -> Value {
    json!({ "kind": "job", "lane": lane, "payload": payload })
}

/// Runs jobs once each, and answers how long after its attempt each one is visible again.
fn delays_ms(config: &ConfigText, payloads: impl IntoIterator<Item = Value>) -> Vec<i64> {
    let daemon = Daemon::with_misbehave(config);
    let mut jobs = enqueue_file(&daemon, payloads.into_iter().chain([echo()]).map(|payload| job("a", &payload)));
    let marker = jobs.pop().unwrap();
    assert_eq!(daemon.wait(marker), "done");
    daemon.database().check();
    daemon.database().all(
        "SELECT visible_at - ended_at FROM jobs JOIN attempts ON job_id = id AND number = attempt WHERE state = 0 ORDER BY id",
    )
}

#[test]
fn q8_a_failed_job_waits_within_the_backoffs_bounds() {
    let config = one_at_a_time().kind("backoff = { min = \"1h\", max = \"10h\" }").queue("key_retention = \"300d\"");
    let delays_ms = delays_ms(&config, (0..20).map(|_| fail()));
    assert_eq!(delays_ms.len(), 20);
    // The decision is made a moment before it is recorded.
    let (least, most) = (delays_ms.iter().min().unwrap(), delays_ms.iter().max().unwrap());
    assert!(*least > HOUR_MS - 10_000 && *most <= 2 * HOUR_MS, "{least} to {most} ms");
    assert!(most - least > 60_000, "there is no jitter: {delays_ms:?}");
}

#[test]
fn q8_a_retry_is_never_at_once_and_comes_by_itself() {
    let daemon = Daemon::with_misbehave(
        &ConfigText::default().kind("backoff = { min = \"400ms\", max = \"500ms\" }").kind("attempts = 3"),
    );
    let job = daemon.enqueue("job", &fail(), &[]);
    assert_eq!(daemon.wait(job), "dead");
    assert_eq!(attempts(&daemon, job), ended([("failed", true), ("failed", true), ("failed", true)]));
    let pauses_ms: Vec<i64> = daemon.database().all(
        "SELECT b.leased_at - a.ended_at FROM attempts a JOIN attempts b ON b.number = a.number + 1 ORDER BY a.number",
    );
    // Below the bound by the moment between the decision and its record at the most.
    assert!(pauses_ms.iter().all(|pause_ms| (300..20_000).contains(pause_ms)), "{pauses_ms:?}");
}

#[test]
fn q9_retry_after_is_honoured_bounded_and_never_shorter_than_the_backoff() {
    let config = one_at_a_time()
        .kind("retry_after_max = \"2h\"")
        .kind("backoff = { min = \"30m\", max = \"30m\" }")
        .more("\"downstream.rate_limited\" = \"rate-limited\"");
    let told = [Some(3_600_000), Some(36_000_000), Some(1), None];
    let delays_ms = delays_ms(&config, told.map(slow_down));
    let expected_ms = [HOUR_MS, 2 * HOUR_MS, HOUR_MS / 2, HOUR_MS / 2];
    assert_eq!(delays_ms.len(), expected_ms.len());
    for (delay_ms, expected_ms) in delays_ms.into_iter().zip(expected_ms) {
        assert!((expected_ms - 10_000..=expected_ms).contains(&delay_ms), "{delay_ms} of {expected_ms} ms");
    }
}

#[test]
fn q9_at_the_cap_a_rate_limit_is_exhausted_and_never_poison() {
    let daemon = Daemon::with_misbehave(&ConfigText::default().kind("attempts = 2"));
    let job = daemon.enqueue("job", &slow_down(Some(1)), &[]);
    assert_eq!(daemon.wait(job), "dead");
    assert_eq!(daemon.dead_letter(job)["cause"], "exhausted");
    assert_eq!(attempts(&daemon, job), ended([("failed", true), ("failed", true)]));
}

/// Runs a job of lane `a` into a rate limit of an hour before others of its lane and of lane `b`.
fn a_rate_limit_before_others(config: &ConfigText) {
    let daemon = Daemon::with_misbehave(&config.clone().kind("cooldown = true"));
    let limited = job("a", &slow_down(Some(3_600_000)));
    let rest = ["a", "a", "a", "b", "b"].map(|lane| job(lane, &echo()));
    let jobs = enqueue_file(&daemon, [limited].into_iter().chain(rest));
    assert_eq!(daemon.wait(jobs[5]), "done");
    assert_eq!(daemon.wait(jobs[4]), "done");
    for held in &jobs[1..4] {
        let shown = daemon.job(*held);
        assert_eq!((&shown["state"], &shown["attempts_used"]), (&json!("ready"), &json!(0)));
    }
    daemon.database().check();
}

#[test]
fn q9_a_rate_limit_holds_its_own_lane_back_and_no_other() {
    a_rate_limit_before_others(&one_at_a_time());
}

#[test]
fn q9_the_rate_limit_of_a_last_attempt_holds_its_lane_back_too() {
    a_rate_limit_before_others(&one_at_a_time().kind("attempts = 1"));
}

#[test]
fn q9_without_a_cooldown_the_lane_goes_on() {
    let daemon = Daemon::with_misbehave(&one_at_a_time());
    let jobs = enqueue_file(&daemon, [job("a", &slow_down(Some(3_600_000))), job("a", &echo())]);
    assert_eq!(daemon.wait(jobs[1]), "done");
}

#[test]
fn q9_a_lane_goes_on_by_itself_when_it_has_cooled_down() {
    let daemon = Daemon::with_misbehave(&one_at_a_time().kind("cooldown = true").kind("attempts = 2"));
    let limited = job("a", &slow_down(Some(1_000)));
    let jobs = enqueue_file(&daemon, [limited, job("a", &echo()), job("a", &echo())]);
    assert_eq!(daemon.wait(jobs[0]), "dead");
    assert_eq!((daemon.wait(jobs[1]).as_str(), daemon.wait(jobs[2]).as_str()), ("done", "done"));
    let database = daemon.database();
    let held_ms: i64 = database.one(&format!(
        "SELECT (SELECT min(leased_at) FROM attempts WHERE job_id IN ({}, {}))
              - (SELECT ended_at FROM attempts WHERE job_id = {} AND number = 1)",
        jobs[1], jobs[2], jobs[0]
    ));
    assert!((900..30_000).contains(&held_ms), "{held_ms} ms");
}
