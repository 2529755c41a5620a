//! What is measured, in the words of Prometheus. Labels are kinds, causes, classes and versions: never data of a job.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use tokio::time::MissedTickBehavior;

/// How often measurements are folded into what is shown.
const FOLD_INTERVAL: Duration = Duration::from_secs(1);

/// Installs the recorder of this process, once; a second daemon in one process, as in tests, shares it.
pub fn install() -> Result<PrometheusHandle, BuildError> {
    static INSTALLED: Mutex<Option<PrometheusHandle>> = Mutex::new(None);
    let mut installed = INSTALLED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(handle) = &*installed {
        return Ok(handle.clone());
    }
    let recorder = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".into()), &SECONDS)?
        .set_buckets_for_metric(Matcher::Full(JOB_ATTEMPTS.into()), &ATTEMPTS)?
        .build_recorder();
    let handle = recorder.handle();
    metrics::set_global_recorder(recorder)?;
    describe();
    Ok(installed.insert(handle).clone())
}

const SECONDS: [f64; 14] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0, 600.0];
const ATTEMPTS: [f64; 8] = [1.0, 2.0, 3.0, 4.0, 5.0, 8.0, 12.0, 20.0];

const ENQUEUED: &str = "leasehold_jobs_enqueued_total";
const ENDED: &str = "leasehold_jobs_ended_total";
const ATTEMPTS_ENDED: &str = "leasehold_attempts_total";
const JOB_ATTEMPTS: &str = "leasehold_job_attempts";
const RUN_SECONDS: &str = "leasehold_attempt_run_seconds";
const QUEUE_SECONDS: &str = "leasehold_job_wait_seconds";
const LEASE_EXPIRIES: &str = "leasehold_lease_expiries_total";
const STALE: &str = "leasehold_stale_settlements_total";
const DEAD_LETTERS: &str = "leasehold_dead_letters_total";
const DUPLICATES_PREVENTED: &str = "leasehold_duplicates_prevented_total";
const DUPLICATES_APPLIED: &str = "leasehold_duplicates_applied_total";
const UNKNOWN_CLASSES: &str = "leasehold_unclassified_errors_total";
const CLASS_MISMATCHES: &str = "leasehold_error_class_mismatches_total";
const OTHER_FINGERPRINTS: &str = "leasehold_step_other_fingerprints_total";
const REDACTION_MISSES: &str = "leasehold_redaction_misses_total";
const BULK_REPLAYS: &str = "leasehold_bulk_replays_started_total";
const BULK_REPLAY_TURNS: &str = "leasehold_bulk_replay_members_total";
const REFUSALS: &str = "leasehold_api_refusals_total";
const WRITE_FAILURES: &str = "leasehold_store_write_failures_total";
const HEARTBEAT_DELAY: &str = "leasehold_heartbeat_delay_seconds";
const SETTLE_SECONDS: &str = "leasehold_settle_commit_seconds";
const DEPTH: &str = "leasehold_queue_jobs";
const AGE: &str = "leasehold_queue_oldest_ready_seconds";
const RUNNING: &str = "leasehold_attempts_running";
const ALERT: &str = "leasehold_alert_active";
const PAGES: &str = "leasehold_pages_sent_total";
const PAGE_FAILURES: &str = "leasehold_page_failures_total";
const DAMAGED: &str = "leasehold_database_damaged";
const MEMORY: &str = "leasehold_attempts_memory_reserved_bytes";
const MEMORY_MAX: &str = "leasehold_attempts_memory_max_bytes";
const VERSION: &str = "leasehold_handler_version_live";

fn describe() {
    describe_counter!(ENQUEUED, "Jobs that were taken in, by kind.");
    describe_counter!(ENDED, "Jobs that ended, by kind and state.");
    describe_counter!(ATTEMPTS_ENDED, "Attempts that ended, by kind and how.");
    describe_histogram!(JOB_ATTEMPTS, "Counted attempts of jobs that ended, by kind.");
    describe_histogram!(RUN_SECONDS, Unit::Seconds, "How long guests ran, by kind.");
    describe_histogram!(QUEUE_SECONDS, Unit::Seconds, "How long jobs were visible before their lease, by kind.");
    describe_counter!(LEASE_EXPIRIES, "Leases that ran out, by kind.");
    describe_counter!(
        STALE,
        "Settlements and step completions under a token that was no longer live, which changed nothing."
    );
    describe_counter!(DEAD_LETTERS, "Dead letters, by kind and cause.");
    describe_counter!(DUPLICATES_PREVENTED, "Effects and jobs that were asked for again and not run again, by what.");
    describe_counter!(
        DUPLICATES_APPLIED,
        "Completions of a step whose effect another attempt also ran; 0 under the contract."
    );
    describe_counter!(UNKNOWN_CLASSES, "Failures whose class is not in the vocabulary, by kind.");
    describe_counter!(
        CLASS_MISMATCHES,
        "Failures whose class the vocabulary treats otherwise than the guest asked, by kind."
    );
    describe_counter!(OTHER_FINGERPRINTS, "Applied steps that were begun again with another fingerprint, by kind.");
    describe_counter!(
        REDACTION_MISSES,
        "Payload fields that no policy lists and in which a detector found something, by kind and what it looks like."
    );
    describe_counter!(BULK_REPLAYS, "Bulk replays that were started, by kind.");
    describe_counter!(BULK_REPLAY_TURNS, "Members of bulk replays that had their turn, by kind and what came of it.");
    describe_counter!(REFUSALS, "Calls that were refused for who sent them or from where, by code.");
    describe_counter!(WRITE_FAILURES, "Settlements that could not be written and were tried again, by code.");
    describe_histogram!(HEARTBEAT_DELAY, Unit::Seconds, "How long after its time a heartbeat was durable.");
    describe_histogram!(SETTLE_SECONDS, Unit::Seconds, "How long a settlement took to be durable.");
    describe_gauge!(DEPTH, "Jobs that have not ended, by kind and state.");
    describe_gauge!(AGE, Unit::Seconds, "How long the first ready job has been visible, by kind.");
    describe_gauge!(RUNNING, "Attempts that run now.");
    describe_gauge!(ALERT, "1 for each alert that is active, by alert; `leasehold alerts ls` says what to do.");
    describe_counter!(PAGES, "Pages that were sent, by what: webhook, command, or log when neither is configured.");
    describe_counter!(PAGE_FAILURES, "Tries to send a page that failed.");
    describe_gauge!(DAMAGED, "1 once the database has shown damage; nothing is written to it then.");
    describe_gauge!(MEMORY, Unit::Bytes, "The memory that the running attempts may use together.");
    describe_gauge!(MEMORY_MAX, Unit::Bytes, "The memory that all attempts may have together.");
    describe_gauge!(VERSION, "1 for each handler version that is live.");
    // Counters that should stay at 0 are shown from the start, so that their absence is no good news.
    counter!(STALE).absolute(0);
    counter!(DUPLICATES_APPLIED).absolute(0);
    counter!(PAGE_FAILURES).absolute(0);
    for what in ["job", "step"] {
        counter!(DUPLICATES_PREVENTED, "what" => what).absolute(0);
    }
}

/// Has the recorder fold what it has collected, until the daemon's end. Unasked it keeps every single measurement: at
/// thousands of jobs a second, megabytes each second.
pub(crate) async fn fold(handle: PrometheusHandle) {
    let mut interval = tokio::time::interval(FOLD_INTERVAL);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        handle.run_upkeep();
    }
}

pub(crate) fn job_enqueued(kind: &str) {
    counter!(ENQUEUED, "kind" => kind.to_owned()).increment(1);
}

pub(crate) fn call_refused(code: &str) {
    counter!(REFUSALS, "code" => code.to_owned()).increment(1);
}

pub(crate) fn duplicate_prevented(what: &'static str) {
    counter!(DUPLICATES_PREVENTED, "what" => what).increment(1);
}

pub(crate) fn duplicate_applied() {
    counter!(DUPLICATES_APPLIED).increment(1);
}

pub(crate) fn stale() {
    counter!(STALE).increment(1);
}

pub(crate) fn lease_expired(kind: &str) {
    counter!(LEASE_EXPIRIES, "kind" => kind.to_owned()).increment(1);
}

pub(crate) fn other_fingerprint(kind: &str) {
    counter!(OTHER_FINGERPRINTS, "kind" => kind.to_owned()).increment(1);
}

pub(crate) fn unknown_class(kind: &str) {
    counter!(UNKNOWN_CLASSES, "kind" => kind.to_owned()).increment(1);
}

pub(crate) fn class_mismatch(kind: &str) {
    counter!(CLASS_MISMATCHES, "kind" => kind.to_owned()).increment(1);
}

pub(crate) fn redaction_miss(kind: &str, class: &'static str) {
    counter!(REDACTION_MISSES, "kind" => kind.to_owned(), "class" => class).increment(1);
}

pub(crate) fn bulk_replay_started(kind: &str) {
    counter!(BULK_REPLAYS, "kind" => kind.to_owned()).increment(1);
}

pub(crate) fn bulk_replay_turn(kind: &str, result: &'static str) {
    counter!(BULK_REPLAY_TURNS, "kind" => kind.to_owned(), "result" => result).increment(1);
}

pub(crate) fn write_failed(code: &'static str) {
    counter!(WRITE_FAILURES, "code" => code).increment(1);
}

pub(crate) fn attempt_started(kind: &str, waited_ms: i64) {
    histogram!(QUEUE_SECONDS, "kind" => kind.to_owned()).record(seconds(waited_ms));
}

pub(crate) fn attempt_ended(kind: &str, ended_as: &'static str, run_ms: u64) {
    counter!(ATTEMPTS_ENDED, "kind" => kind.to_owned(), "ended_as" => ended_as).increment(1);
    histogram!(RUN_SECONDS, "kind" => kind.to_owned()).record(seconds(i64::try_from(run_ms).unwrap_or(i64::MAX)));
}

pub(crate) fn job_ended(kind: &str, state: &'static str, attempts_used: u32) {
    counter!(ENDED, "kind" => kind.to_owned(), "state" => state).increment(1);
    histogram!(JOB_ATTEMPTS, "kind" => kind.to_owned()).record(f64::from(attempts_used));
}

pub(crate) fn dead_letter(kind: &str, cause: &'static str) {
    counter!(DEAD_LETTERS, "kind" => kind.to_owned(), "cause" => cause).increment(1);
}

pub(crate) fn alert(name: &'static str, active: bool) {
    gauge!(ALERT, "alert" => name).set(if active { 1.0 } else { 0.0 });
}

pub(crate) fn page_sent(by: &'static str) {
    counter!(PAGES, "by" => by).increment(1);
}

pub(crate) fn page_failed() {
    counter!(PAGE_FAILURES).increment(1);
}

pub(crate) fn heartbeat(delay_ms: i64) {
    histogram!(HEARTBEAT_DELAY).record(seconds(delay_ms));
}

pub(crate) fn settled(took_ms: i64) {
    histogram!(SETTLE_SECONDS).record(seconds(took_ms));
}

#[allow(clippy::cast_precision_loss, reason = "counts and spans far below 2^52")]
pub(crate) fn queue(kind: &str, state: &'static str, jobs: u64, oldest_ms: i64) {
    gauge!(DEPTH, "kind" => kind.to_owned(), "state" => state).set(jobs as f64);
    if state == "ready" {
        gauge!(AGE, "kind" => kind.to_owned()).set(seconds(oldest_ms));
    }
}

#[allow(clippy::cast_precision_loss, reason = "a count far below 2^52")]
pub(crate) fn running(attempts: usize) {
    gauge!(RUNNING).set(attempts as f64);
}

pub(crate) fn damaged(is_damaged: bool) {
    gauge!(DAMAGED).set(f64::from(u8::from(is_damaged)));
}

#[allow(clippy::cast_precision_loss, reason = "sizes far below 2^52")]
pub(crate) fn memory(reserved_bytes: u64, max_bytes: u64) {
    gauge!(MEMORY).set(reserved_bytes as f64);
    gauge!(MEMORY_MAX).set(max_bytes as f64);
}

pub(crate) fn version(name: &str, version: &str, live: bool) {
    gauge!(VERSION, "handler" => name.to_owned(), "version" => version.to_owned()).set(if live { 1.0 } else { 0.0 });
}

#[allow(clippy::cast_precision_loss, reason = "spans far below 2^52 ms")]
fn seconds(span_ms: i64) -> f64 {
    span_ms.max(0) as f64 / 1_000.0
}
