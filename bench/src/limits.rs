//! The two limits that bound what is possible: the queue's statements in a bare loop on one connection, and a bare
//! instantiate-and-call of the handler's component. Neither has threads, leases, encryption, an API or any check.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use rusqlite::{Connection, params};
use wasmtime::{
    Config, Enabled, Engine, InstanceAllocationStrategy, PoolingAllocationConfig, Store,
    component::{Component, Linker},
};

use crate::{daemon::component, payload, process::thread_cpu_time, spread::Spread};

mod bindings {
    #![allow(missing_docs, clippy::all, clippy::pedantic, reason = "generated code")]
    wasmtime::component::bindgen!({
        path: "../guest-sdk/wit",
        inline: r#"
            package leasehold:bench;
            world bare {
                use leasehold:job/types@0.1.0.{job, success, failure};
                export handle: func(job: job) -> result<success, failure>;
            }
        "#,
        world: "leasehold:bench/bare",
        exports: { default: async },
    });
}

/// How many jobs one transaction of the bare loop takes through one stage.
pub const BATCH: usize = 256;

/// The CPU time that the queue's statements cost for a job: enqueued, leased and settled, each in transactions of
/// [`BATCH`], on a database with the queue's own schema.
pub fn bare_sql(directory: &Path, durability: &str, jobs: usize) -> anyhow::Result<Duration> {
    let connection = Connection::open(directory.join("bare.db"))?;
    connection.execute_batch(&format!(
        "PRAGMA journal_mode = wal; PRAGMA synchronous = {durability}; PRAGMA wal_autocheckpoint = 8000;
         PRAGMA foreign_keys = ON;"
    ))?;
    connection.set_prepared_statement_cache_capacity(64);
    schema().and_then(|schema| Ok(connection.execute_batch(&schema)?))?;
    connection.execute(
        "INSERT INTO handler_versions (id, name, version, digest, size_bytes, state, current, stored_at, stored_by)
         VALUES (1, 'bench-parse', '1.0.0', zeroblob(32), 0, 'live', 1, 0, '')",
        [],
    )?;
    let payload = payload();
    let begun = thread_cpu_time();
    for batch in 0..jobs.div_ceil(BATCH) {
        let first = i64::try_from(batch * BATCH)? + 1;
        in_transaction(&connection, first, |id| insert(&connection, id, payload.as_bytes()))?;
        connection.execute_batch("BEGIN IMMEDIATE")?;
        let heads = heads(&connection)?;
        heads.iter().try_for_each(|id| lease(&connection, *id))?;
        count(&connection)?;
        connection.execute_batch("COMMIT")?;
        in_transaction(&connection, first, |id| settle(&connection, id))?;
    }
    Ok(thread_cpu_time().saturating_sub(begun) / u32::try_from(jobs)?)
}

/// How long it takes to commit one row, durably, in milliseconds.
pub fn commits(database: &Path, rounds: usize) -> anyhow::Result<Spread> {
    let connection = Connection::open(database)?;
    connection
        .execute_batch("PRAGMA journal_mode = wal; PRAGMA synchronous = full; CREATE TABLE rows (payload BLOB)")?;
    let mut times = Vec::new();
    for _ in 0..rounds {
        let begun = Instant::now();
        connection.prepare_cached("INSERT INTO rows (payload) VALUES (zeroblob(200))")?.execute([])?;
        times.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    Ok(Spread::of(times))
}

fn in_transaction(
    connection: &Connection,
    first: i64,
    each: impl Fn(i64) -> rusqlite::Result<()>,
) -> rusqlite::Result<()> {
    connection.execute_batch("BEGIN IMMEDIATE")?;
    (first..first + i64::try_from(BATCH).unwrap_or(0)).try_for_each(each)?;
    count(connection)?;
    connection.execute_batch("COMMIT")
}

/// The queue's own schema, up to date.
fn schema() -> anyhow::Result<String> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../host/store/migrations");
    let mut files: Vec<_> =
        fs::read_dir(directory)?.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?;
    files.sort();
    let texts: Vec<_> = files.iter().map(fs::read_to_string).collect::<Result<_, _>>()?;
    Ok(texts.join("\n"))
}

/// What a transaction moved is counted once.
fn count(connection: &Connection) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "INSERT INTO depths (kind, depth, waiting, ready, leased) VALUES ('bench', 1, 0, 1, 1)
             ON CONFLICT DO UPDATE SET ready = ready + 1, leased = leased + 1",
        )?
        .execute([])?;
    Ok(())
}

fn insert(connection: &Connection, id: i64, payload: &[u8]) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "INSERT INTO jobs (id, kind, lane, state, place, visible_at, priority, enqueued_at, enqueued_by,
                               content_type, payload_bytes, payload_digest, key_digest, payload_sealed, extras_sealed)
             VALUES (?1, 'bench', NULL, 1, ?1, ?1, 0, ?1, 'bench', 'application/json', ?2, zeroblob(32), NULL, ?3, zeroblob(96))",
        )?
        .execute(params![id, i64::try_from(payload.len()).unwrap_or(0), payload])?;
    Ok(())
}

fn heads(connection: &Connection) -> rusqlite::Result<Vec<i64>> {
    let mut statement =
        connection.prepare_cached("SELECT id FROM jobs WHERE state = 1 AND kind = 'bench' ORDER BY place, id")?;
    statement.query_map([], |row| row.get(0))?.take(BATCH).collect()
}

fn lease(connection: &Connection, id: i64) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "UPDATE jobs SET state = 2, attempt = attempt + 1, attempts_used = attempts_used + 1,
                             lease_expires_at = ?2, deadline_at = ?2, version_id = 1
             WHERE id = ?1 AND state = 1",
        )?
        .execute([id, id + 30_000])?;
    let attempt: i64 = connection
        .prepare_cached(
            "SELECT attempt, kind, lane, attempts_used, releases_running, enqueued_at, visible_at, content_type,
                    payload_sealed, extras_sealed, replay_id, unclean_stops
             FROM jobs WHERE id = ?1 AND state = 2",
        )?
        .query_row([id], |row| {
            let _: (Vec<u8>, Vec<u8>) = (row.get(8)?, row.get(9)?);
            row.get(0)
        })?;
    connection
        .prepare_cached(
            "INSERT INTO attempts (job_id, number, leased_at, version, digest, replay_id)
             VALUES (?1, ?2, ?1, 'bench-parse@1.0.0', zeroblob(32), NULL)",
        )?
        .execute([id, attempt])?;
    Ok(())
}

fn settle(connection: &Connection, id: i64) -> rusqlite::Result<()> {
    let _: String = connection
        .prepare_cached("SELECT kind FROM jobs WHERE id = ?1 AND attempt = 1 AND state = 2")?
        .query_row([id], |row| row.get(0))?;
    connection
        .prepare_cached("UPDATE attempts SET ended_at = ?1, ended_as = 'done' WHERE job_id = ?1 AND number = 1")?
        .execute([id])?;
    connection
        .prepare_cached(
            "INSERT INTO ended_jobs (id, kind, lane, state, priority, attempt, attempts_used, enqueued_at, enqueued_by,
                                     ended_at, reason, content_type, payload_bytes, payload_digest, key_digest,
                                     extras_sealed, result_sealed)
             SELECT id, kind, lane, 'done', priority, attempt, attempts_used, enqueued_at, enqueued_by,
                    id, NULL, content_type, payload_bytes, payload_digest, key_digest, extras_sealed, NULL
             FROM jobs WHERE id = ?1",
        )?
        .execute([id])?;
    connection.prepare_cached("DELETE FROM jobs WHERE id = ?1")?.execute([id])?;
    Ok(())
}

/// The CPU time of a fresh instance of the component and one call of it.
pub fn bare_call(calls: usize) -> anyhow::Result<Duration> {
    let engine = engine()?;
    let component = Component::from_file(&engine, component("bench-parse@1.0.0"))?;
    let mut linker = Linker::new(&engine);
    linker.define_unknown_imports_as_traps(&component)?;
    let pre = bindings::BarePre::new(linker.instantiate_pre(&component)?)?;
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let payload = payload();
    runtime.block_on(async {
        let begun = thread_cpu_time();
        for id in 0..calls {
            let mut store = Store::new(&engine, ());
            store.set_epoch_deadline(u64::MAX / 2);
            let handler = pre.instantiate_async(&mut store).await?;
            let result = handler.call_handle(&mut store, &job(id as u64, &payload)).await?;
            anyhow::ensure!(result.is_ok(), "the handler failed: {result:?}");
        }
        Ok(thread_cpu_time().saturating_sub(begun) / u32::try_from(calls)?)
    })
}

/// The pool as it was found to be fastest for one guest at a time.
fn engine() -> anyhow::Result<Engine> {
    let mut pool = PoolingAllocationConfig::new();
    pool.linear_memory_keep_resident(1 << 20).table_keep_resident(4096).pagemap_scan(Enabled::Auto);
    let mut config = Config::new();
    config
        .wasm_component_model(true)
        .memory_init_cow(true)
        .epoch_interruption(true)
        .allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
    Ok(Engine::new(&config)?)
}

fn job(id: u64, payload: &str) -> bindings::leasehold::job::types::Job {
    bindings::leasehold::job::types::Job {
        id,
        kind: "bench".into(),
        key: format!("job-{id:032}"),
        lane: None,
        attempt: 1,
        attempts_used: 1,
        attempts_max: 8,
        enqueued_at: 0,
        deadline: 0,
        content_type: "application/json".into(),
        payload: payload.as_bytes().to_vec(),
        metadata: Vec::new(),
        replay: None,
    }
}
