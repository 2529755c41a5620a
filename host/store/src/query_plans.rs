//! The plans of the statements that run all the time: none of them may read a table from end to end.
//!
//! The statements are not listed here. Everything hot is done once while the connections tell what they run, so that a statement
//! that is added to one of these paths is looked at as well.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

use leasehold_domain::{
    Cause, Digest, Effect, ErrorClass, FencingToken, HandlerName, Kind, Lane, Note, StepName, Verdict, ids::JobKey,
};
use rusqlite::{
    Connection, StatementStatus,
    trace::{TraceEvent, TraceEventCodes},
};

use crate::{
    AttemptRecordText, Beat, BeginStep, BulkSettings, Claim, ClaimRequest, DeadLetterText, EnqueueJob, KindClaim,
    Previewed, Selection, Settlement, StartBulkReplay, Started, Store, Turn, TurnTaken, fixtures, writer::Urgency,
};

static STATEMENTS: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
/// Those of the writer, for which everything waits.
static WRITTEN: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// What may be scanned: the rows of a parameter, tables with one row for each kind that has ever had a job or for each
/// group of open dead letters (`g`), and the indexes that hold nothing but the few jobs that are leased or suspect.
const ALLOWED: [&str; 8] = [
    "SCAN beat VIRTUAL TABLE",
    "SCAN g",
    "SCAN depths",
    "SCAN CONSTANT ROW",
    "SCAN jobs USING INDEX jobs_leased",
    "SCAN jobs USING COVERING INDEX jobs_leased",
    "SCAN jobs USING INDEX jobs_suspects",
    "SCAN open_dead_letters",
];

/// How what every job goes through is written.
const OF_EACH_JOB: [&str; 6] = [
    "INSERT INTO jobs",
    "UPDATE jobs",
    "DELETE FROM jobs",
    "INSERT INTO attempts",
    "UPDATE attempts",
    "INSERT INTO ended_jobs",
];

fn note(event: TraceEvent<'_>) {
    if let TraceEvent::Stmt(statement, _) = event {
        STATEMENTS.lock().unwrap_or_else(PoisonError::into_inner).insert(statement.sql().into_owned());
    }
}

fn note_written(event: TraceEvent<'_>) {
    if let TraceEvent::Stmt(statement, _) = event {
        WRITTEN.lock().unwrap_or_else(PoisonError::into_inner).insert(statement.sql().into_owned());
    }
}

fn job(key: &str) -> EnqueueJob {
    EnqueueJob { key: Some(JobKey::new(key).unwrap()), lane: Some(Lane::new("a").unwrap()), ..fixtures::job() }
}

fn settlement(token: FencingToken, verdict: Verdict, now_ms: i64) -> Settlement {
    Settlement {
        token,
        now_ms,
        verdict,
        attempt: AttemptRecordText { ended_as: "done", ..AttemptRecordText::default() },
        effects: vec![
            Effect::Set { store: "s".into(), key: "k".into(), value: b"v".to_vec() },
            Effect::Annotate(Note {
                kind: Kind::new("k").unwrap(),
                job: token.job,
                key: "n".into(),
                class: ErrorClass::new("c"),
                text: "t".into(),
            }),
        ],
        dead_letter: Some(DeadLetterText {
            view: "{}".into(),
            masked_key: "k".into(),
            keep_original: true,
            page_after: 1,
        }),
        only_if_expired: false,
        priority_step_ms: 1,
        unclean_stops: 0,
    }
}

async fn claim(store: &Store, now_ms: i64) -> Claim {
    claim_of(store, now_ms, false).await
}

async fn claim_of(store: &Store, now_ms: i64, bound_only: bool) -> Claim {
    let kind = KindClaim { lane_concurrency: Some(2), cooldown: true, bound_only, ..fixtures::room() };
    store
        .claim(ClaimRequest {
            now_ms,
            max: 4,
            memory: leasehold_domain::MemoryRoom::UNLIMITED,
            kinds: vec![kind],
            waits_its_turn: false,
        })
        .await
        .unwrap()
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
    store.depths().await.unwrap();
    claim_of(store, 20, true).await;
    store.next_wall_ms().await.unwrap();
    store.reach_wall_time(0, 20).await.unwrap();
    let leased = claim(store, 30).await.jobs;
    let die = Verdict::Die { cause: Cause::Poison, cooldown_until_ms: None };
    store.settle(settlement(leased[0].token, die, 40)).await.unwrap();
    store.settle(settlement(leased[1].token, Verdict::Release { visible_at_ms: 50 }, 40)).await.unwrap();
    let leased = claim(store, 60).await.jobs;
    store.next_expiry_ms(0).await.unwrap();
    store.expired_leases(5_000, 10).await.unwrap();
    store.leases().await.unwrap();
    store.contents(leased[0].token).await.unwrap();
    let expired = Settlement { only_if_expired: true, ..settlement(leased[0].token, Verdict::Cancel, 5_000) };
    store.settle(expired).await.unwrap();
    store.cancel(leased[1].token.job, "tests", 5_000).await.unwrap();
    store.job(first.job).await.unwrap();
    store.job_result(first.job).await.unwrap();
    replay_in_bulk(store).await;
}

/// What a bulk replay does for each of its members, and the end of one, which it counts.
async fn replay_in_bulk(store: &Store) {
    let handler = HandlerName::new("h").unwrap();
    let settings = BulkSettings {
        selection: Selection {
            kind: Kind::new("k").unwrap(),
            error_class: None,
            cause: None,
            died_on: None,
            since_ms: None,
            until_ms: None,
        },
        version: None,
        override_reason: Some("fixed".into()),
        handler: handler.clone(),
        damaged: Vec::new(),
        begin_again: false,
        now_ms: 6_000,
    };
    let Previewed::Seen(preview) = store.preview_bulk_replay(settings.clone()).await.unwrap() else {
        panic!("too many")
    };
    let start = StartBulkReplay {
        settings,
        token: preview.token.unwrap().0,
        actor: "tests".into(),
        reason: "fixed".into(),
        rate: None,
        probe: true,
    };
    let Started::Now(bulk_replay) = store.start_bulk_replay(start).await.unwrap() else { panic!("not started") };
    let dead_letter = store.running_bulk_replays(10).await.unwrap()[0].pending[0];
    let turn = Turn {
        bulk_replay,
        dead_letter,
        handler,
        damaged: Vec::new(),
        begin_again: false,
        now_ms: 6_000,
        priority_step_ms: 1,
    };
    assert!(matches!(store.take_turn(turn).await.unwrap(), TurnTaken::Replayed(_)));
    // Its lane lets a few of them run at a time.
    for now_ms in 6_001..6_010 {
        for job in claim(store, now_ms).await.jobs {
            store.settle(settlement(job.token, Verdict::Complete { output: None }, now_ms)).await.unwrap();
        }
    }
    store.pass_probe(bulk_replay).await.unwrap();
    assert!(store.finish_bulk_replay(bulk_replay, 6_010).await.unwrap());
    assert_eq!(store.bulk_replay(bulk_replay).await.unwrap().unwrap().ended["done"], 1);
    store.unsent_pages(10).await.unwrap();
    store.dead_letter_groups().await.unwrap();
    store.job_with_key(&Kind::new("k").unwrap(), "0").await.unwrap();
    store.open_letters().await.unwrap();
    store.token(Digest::of(b"a token")).await.unwrap();
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

/// Whether a statement that runs again with another value is prepared again for it: its plan depends on the value, which is
/// compared with what the condition of a partial index compares with.
fn is_prepared_for_each_value(connection: &Connection, sql: &str) -> bool {
    connection.execute_batch("BEGIN").unwrap();
    let mut statement = connection.prepare(sql).unwrap();
    for value in 1..=2 {
        for parameter in 1..=statement.parameter_count() {
            statement.raw_bind_parameter(parameter, value).unwrap();
        }
        // It need not succeed: a value may be no JSON.
        let _ = statement.raw_query().next();
    }
    let again = statement.get_status(StatementStatus::RePrepare);
    drop(statement);
    connection.execute_batch("ROLLBACK").unwrap();
    again > 0
}

/// Whether a statement keeps something in a table of its own while it runs: what it returns of rows that it changes, the rows
/// of a subquery, or the values of a check of the form `IN (…)`.
fn builds_a_table(connection: &Connection, sql: &str) -> bool {
    let mut statement = connection.prepare(&format!("EXPLAIN {sql}")).unwrap();
    let mut steps = statement.raw_query();
    while let Some(step) = steps.next().unwrap() {
        if step.get::<_, String>(1).unwrap().starts_with("OpenEphemeral") {
            return true;
        }
    }
    false
}

/// A foreign key without an index is looked for in the whole table, and the plan of the statement does not say so.
#[test]
fn i5_forgetting_a_replay_looks_at_no_other_job() {
    let connection = Connection::open_in_memory().unwrap();
    for migration in crate::open::MIGRATIONS {
        connection.execute_batch(migration).unwrap();
    }
    connection.execute_batch("PRAGMA foreign_keys = ON").unwrap();
    let mut statement = connection.prepare("EXPLAIN DELETE FROM replays WHERE job_id = ?1").unwrap();
    let steps = statement.query_map([1], |row| row.get::<_, String>(1)).unwrap();
    let steps: Vec<_> = steps.map(Result::unwrap).collect();
    assert!(steps.len() > 10 && !steps.contains(&"Rewind".to_owned()), "{steps:?}");
}

#[tokio::test]
async fn q15_no_statement_that_runs_all_the_time_reads_a_table_from_end_to_end() {
    let (store, options, _directory) = fixtures::open();
    fixtures::go_live(&store).await;
    // One question is asked after the other, so that there is one reading connection.
    let trace = |connection: &Connection, note: fn(TraceEvent<'_>)| {
        connection.trace_v2(TraceEventCodes::SQLITE_TRACE_STMT, Some(note));
        Ok(())
    };
    store.shared.writer.call(Urgency::Usual, move |writer| trace(writer, note_written)).await.unwrap();
    store.ask(move |reader| trace(reader, note)).await.unwrap();
    do_everything_hot(&store).await;

    let connection = Connection::open(options.database()).unwrap();
    let written = WRITTEN.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let statements = &STATEMENTS.lock().unwrap_or_else(PoisonError::into_inner).clone() | &written;
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
    // What runs once for each bulk replay may be prepared for it.
    let often = written.iter().filter(is_query).filter(|sql| !sql.starts_with("SELECT count(*), count("));
    let again: Vec<_> = often.filter(|sql| is_prepared_for_each_value(&connection, sql)).collect();
    assert!(again.is_empty(), "prepared anew whenever they run: {again:#?}");
    let of_each_job = written.iter().filter(|sql| OF_EACH_JOB.iter().any(|verb| sql.starts_with(verb)));
    // One statement for all leases, and one for a batch of jobs.
    let one_by_one = of_each_job.filter(|sql| !sql.contains("FROM json_each") && !sql.contains("run_at_wall - ?1"));
    let tables: Vec<_> = one_by_one.filter(|sql| builds_a_table(&connection, sql)).collect();
    assert!(tables.is_empty(), "build a table whenever they run: {tables:#?}");
}
