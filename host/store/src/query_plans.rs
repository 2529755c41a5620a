//! The plans of the statements that run all the time: none of them may read a table from end to end.
//!
//! The statements are not listed here. Everything hot is done once while the connections tell what they run, so that a statement
//! that is added to one of these paths is looked at as well.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

use leasehold_domain::{
    Cause, Digest, Effect, FencingToken, HandlerName, HandlerVersion, Kind, Lane, StepName, Verdict, ids::JobKey,
};
use rusqlite::{
    Connection,
    trace::{TraceEvent, TraceEventCodes},
};

use crate::{
    AttemptRecordText, Beat, BeginStep, Claim, ClaimRequest, DeadLetterText, Durability, EnqueueJob, KindClaim,
    Settlement, Store, StoreOptions, StoredVersion, writer::Urgency,
};

static STATEMENTS: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// What may be scanned: the rows of a parameter, a table with one row for each kind that has ever had a job, and the
/// indexes that hold nothing but the few jobs that are leased or suspect.
const ALLOWED: [&str; 5] = [
    "SCAN beat VIRTUAL TABLE",
    "SCAN depths",
    "SCAN CONSTANT ROW",
    "SCAN jobs USING INDEX jobs_leased",
    "SCAN jobs USING INDEX jobs_suspects",
];

fn note(event: TraceEvent<'_>) {
    if let TraceEvent::Stmt(statement, _) = event {
        STATEMENTS.lock().unwrap_or_else(PoisonError::into_inner).insert(statement.sql().into_owned());
    }
}

fn trace(connection: &Connection) {
    connection.trace_v2(TraceEventCodes::SQLITE_TRACE_STMT, Some(note));
}

fn job(key: &str) -> EnqueueJob {
    EnqueueJob {
        kind: Kind::new("k").unwrap(),
        key: Some(JobKey::new(key).unwrap()),
        lane: Some(Lane::new("a").unwrap()),
        content_type: "application/json".into(),
        payload: b"{}".to_vec(),
        metadata: Vec::new(),
        visible_at_ms: 0,
        priority: 0,
    }
}

fn settlement(token: FencingToken, verdict: Verdict, now_ms: i64) -> Settlement {
    Settlement {
        token,
        now_ms,
        verdict,
        attempt: AttemptRecordText { ended_as: "done", ..AttemptRecordText::default() },
        effects: vec![Effect::Set { store: "s".into(), key: "k".into(), value: b"v".to_vec() }],
        dead_letter: Some(DeadLetterText { view: "{}".into(), masked_key: "k".into(), keep_original: true }),
        only_if_expired: false,
        priority_step_ms: 1,
        unclean_stops: 0,
    }
}

async fn claim(store: &Store, now_ms: i64) -> Claim {
    let kind = KindClaim {
        kind: Kind::new("k").unwrap(),
        handler: HandlerName::new("h").unwrap(),
        max: 4,
        attempts_max: 3,
        visibility_timeout_ms: 1_000,
        lease_max_ms: 5_000,
        lane_concurrency: Some(2),
        cooldown: true,
    };
    store.claim(ClaimRequest { now_ms, max: 4, kinds: vec![kind] }).await.unwrap()
}

async fn run_step(store: &Store, token: FencingToken) {
    let name = StepName::new("send").unwrap();
    let begin = BeginStep {
        token,
        name: name.clone(),
        fingerprint: Vec::new(),
        others_running: Vec::new(),
        take_over: true,
        now_ms: 5,
    };
    store.begin_step(begin.clone()).await.unwrap();
    store.take_back_step(token, name.clone()).await.unwrap();
    store.begin_step(begin).await.unwrap();
    store.complete_step(token, name.clone(), Vec::new(), Vec::new(), 6).await.unwrap();
    store.read_value(token.job, "s", "k").await.unwrap();
}

/// A job's life in all of its turns, and what the daemon asks meanwhile.
async fn do_everything_hot(store: &Store) {
    let jobs = (0..6).map(|number| job(&number.to_string())).collect();
    store.enqueue(jobs, "tests", 0, 1, 100).await.unwrap();
    store.enqueue(vec![job("0")], "tests", 0, 1, 100).await.unwrap();
    let leased = claim(store, 1).await.jobs;
    let [first, second] = [leased[0].token, leased[1].token];
    store.heartbeat(vec![Beat { token: first, lease_expires_at_ms: 2_000 }], 2).await.unwrap();
    run_step(store, first).await;
    store.settle(settlement(first, Verdict::Complete { output: None }, 10)).await.unwrap();
    let retry = Verdict::Retry { visible_at_ms: 20, cooldown_until_ms: Some(20) };
    store.settle(settlement(second, retry, 10)).await.unwrap();
    store.next_visible_ms().await.unwrap();
    let leased = claim(store, 30).await.jobs;
    let die = Verdict::Die { cause: Cause::Poison, cooldown_until_ms: None };
    store.settle(settlement(leased[0].token, die, 40)).await.unwrap();
    store.settle(settlement(leased[1].token, Verdict::Release { visible_at_ms: 50 }, 40)).await.unwrap();
    let leased = claim(store, 60).await.jobs;
    store.next_expiry_ms().await.unwrap();
    store.expired_leases(5_000, 10).await.unwrap();
    store.leases().await.unwrap();
    store.contents(leased[0].token).await.unwrap();
    let expired = Settlement { only_if_expired: true, ..settlement(leased[0].token, Verdict::Cancel, 5_000) };
    store.settle(expired).await.unwrap();
    store.cancel(leased[1].token.job, "tests", 5_000).await.unwrap();
    store.job(first.job).await.unwrap();
    store.job_result(first.job).await.unwrap();
    store.erase_originals(5_000, 6_000).await.unwrap();
    store.give_up_dead_letters(5_000, "old", 6_000).await.unwrap();
}

/// The lines of a statement's plan.
fn plan(connection: &Connection, sql: &str) -> Vec<String> {
    let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
    let count = statement.parameter_count();
    for parameter in 1..=count {
        statement.raw_bind_parameter(parameter, rusqlite::types::Null).unwrap();
    }
    let mut rows = statement.raw_query();
    let mut lines = Vec::new();
    while let Some(row) = rows.next().unwrap() {
        lines.push(row.get(3).unwrap());
    }
    lines
}

#[tokio::test]
async fn q15_no_statement_that_runs_all_the_time_reads_a_table_from_end_to_end() {
    let directory = tempfile::tempdir().unwrap();
    let options = StoreOptions {
        directory: directory.path().to_owned(),
        key_file: directory.path().join("key"),
        durability: Durability::Normal,
        wal_autocheckpoint_pages: 1_000,
    };
    let store = Store::open(&options).unwrap();
    let version = HandlerVersion::new("h", "1.0.0").unwrap();
    let stored = StoredVersion { version: version.clone(), digest: Digest::of(b"h"), size_bytes: 1 };
    store.put_version(stored, "tests", 0).await.unwrap();
    store.activate_version(&version, false, "tests", 0).await.unwrap();
    // One question is asked after the other, so that there is one reading connection.
    let traced = |connection: &Connection| {
        trace(connection);
        Ok(())
    };
    store.shared.writer.call(Urgency::Usual, traced).await.unwrap();
    store.ask(traced).await.unwrap();
    do_everything_hot(&store).await;

    let connection = Connection::open(options.database()).unwrap();
    let statements = STATEMENTS.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let is_query = |sql: &&String| ["SELECT", "UPDATE", "INSERT", "DELETE"].iter().any(|verb| sql.starts_with(verb));
    let queries: Vec<_> = statements.iter().filter(is_query).collect();
    assert!(queries.len() > 40, "the statements were not noted: {queries:#?}");
    let mut scans = Vec::new();
    for sql in queries {
        for line in plan(&connection, sql) {
            if line.contains("SCAN") && !ALLOWED.iter().any(|allowed| line.contains(allowed)) {
                scans.push(format!("{line}: {sql}"));
            }
        }
    }
    assert!(scans.is_empty(), "{scans:#?}");
}
