//! F2: rows of an outbox become jobs, in order, each once.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, params};
use serde_json::json;

use crate::support::{ConfigText, Daemon, Server, daemon::PATIENCE, guest};

const ROWS: usize = 40;

/// An application with an outbox, as another program would have it.
struct Application(Connection);

impl Application {
    fn new(path: &Path) -> Self {
        Self::with_journal(path, "WAL")
    }

    fn with_journal(path: &Path, mode: &str) -> Self {
        let connection = Connection::open(path).unwrap();
        connection.busy_timeout(PATIENCE).unwrap();
        connection.query_row(&format!("PRAGMA journal_mode = {mode}"), [], |_| Ok(())).unwrap();
        connection
            .execute_batch(
                "CREATE TABLE outbox (id INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT, payload TEXT, customer TEXT,
                                      relayed_at INTEGER, error TEXT)",
            )
            .unwrap();
        Self(connection)
    }

    fn insert(&self, kind: &str, payload: &str) {
        let sql = "INSERT INTO outbox (kind, payload, customer) VALUES (?1, ?2, 'c-1')";
        self.0.execute(sql, params![kind, payload]).unwrap();
    }

    /// Rows whose jobs make one request each, whose path tells the row.
    fn insert_requests(&self, server: &Server, numbers: std::ops::Range<usize>) {
        for number in numbers {
            let payload = json!({ "do": "get", "url": format!("{}/row/{number}", server.url()) });
            self.insert("job", &payload.to_string());
        }
    }

    fn count(&self, condition: &str) -> usize {
        self.0.query_row(&format!("SELECT count(*) FROM outbox WHERE {condition}"), [], |row| row.get(0)).unwrap()
    }
}

fn config(server: &Server, database: &str) -> ConfigText {
    let section =
        format!("[outbox.shop]\ndatabase = \"{database}\"\nlane = \"customer\"\nerror = \"error\"\npoll = \"20ms\"\n");
    ConfigText::default().reaching(server.url()).more(&section)
}

fn prepare(server: &Server) -> (Daemon, PathBuf) {
    let daemon = Daemon::prepare(&config(server, "app.db"));
    let path = daemon.directory().join("app.db");
    (daemon, path)
}

/// Waits until every row's request has arrived and its job has ended, and checks that each row came once.
fn check_each_once(daemon: &Daemon, server: &Server, rows: usize) {
    server.wait_for(rows);
    let jobs = daemon.database().all::<i64>("SELECT id FROM jobs UNION SELECT id FROM ended_jobs");
    for job in &jobs {
        assert_eq!(daemon.wait(*job), "done");
    }
    assert_eq!(jobs.len(), rows, "a row became more than one job");
    daemon.database().check();
}

#[test]
fn f2_rows_become_jobs_in_their_order_each_once() {
    let server = Server::accepting();
    let (mut daemon, path) = prepare(&server);
    let application = Application::new(&path);
    application.insert_requests(&server, 0..ROWS);
    daemon.run();
    application.insert_requests(&server, ROWS..2 * ROWS);
    daemon.push_live(&guest("misbehave@1.0.0"));
    check_each_once(&daemon, &server, 2 * ROWS);

    let digests = daemon.database().all::<i64>("SELECT id FROM ended_jobs ORDER BY id");
    assert!(digests.is_sorted());
    let lanes = daemon.database().all::<String>("SELECT DISTINCT lane FROM ended_jobs");
    assert_eq!(lanes, ["c-1"]);
    let by = daemon.database().all::<String>("SELECT DISTINCT enqueued_by FROM ended_jobs");
    assert_eq!(by, ["outbox:shop"]);
    assert_eq!(application.count("relayed_at IS NULL"), 0);
}

#[test]
fn f2_a_kill_between_any_two_steps_loses_and_doubles_nothing() {
    for point in ["relay.enqueued", "relay.marked", "writer.before_commit", "writer.after_commit"] {
        let server = Server::accepting();
        let (mut daemon, path) = prepare(&server);
        let application = Application::new(&path);
        daemon.run();
        daemon.push_live(&guest("misbehave@1.0.0"));
        daemon.terminate();
        application.insert_requests(&server, 0..ROWS);
        daemon.set_crash_points(&format!("{point}=kill"));
        daemon.spawn();
        daemon.wait_for_exit();
        daemon.set_crash_points("");
        daemon.run();
        check_each_once(&daemon, &server, ROWS);
        assert_eq!(application.count("relayed_at IS NULL"), 0, "{point}");
    }
}

#[test]
fn f2_a_row_that_can_not_be_a_job_is_said_once_and_the_rows_behind_it_go_on() {
    let server = Server::accepting();
    let (mut daemon, path) = prepare(&server);
    let application = Application::new(&path);
    application.insert("no.such.kind", "{}");
    application.insert("job", "{ not json");
    application.insert_requests(&server, 0..3);
    daemon.run();
    daemon.push_live(&guest("misbehave@1.0.0"));
    check_each_once(&daemon, &server, 3);
    assert_eq!(application.count("relayed_at IS NULL AND error IS NOT NULL"), 2);
    assert_eq!(application.count("error LIKE '%no.such.kind%' AND id = 1"), 1);
    assert_eq!(daemon.log().matches("can't be a job").count(), 2);
}

#[test]
fn f2_a_missing_or_locked_file_is_said_once_and_relayed_when_it_is_back() {
    let server = Server::accepting();
    let (mut daemon, path) = prepare(&server);
    daemon.run();
    daemon.push_live(&guest("misbehave@1.0.0"));
    daemon.wait_for_log("outbox_missing");
    // Without a write-ahead log, a writer shuts readers out as well.
    let application = Application::with_journal(&path, "DELETE");
    application.insert_requests(&server, 0..2);
    check_each_once(&daemon, &server, 2);

    application.0.execute_batch("BEGIN EXCLUSIVE").unwrap();
    application.insert_requests(&server, 2..4);
    daemon.wait_for_log("outbox_locked");
    application.0.execute_batch("COMMIT").unwrap();
    assert_eq!(application.count("1"), 4);
    check_each_once(&daemon, &server, 4);
    assert_eq!(daemon.log().matches("outbox_missing").count(), 1);
}

#[test]
fn f2_a_table_whose_ids_come_back_is_refused_with_what_is_allowed() {
    let server = Server::accepting();
    let (mut daemon, path) = prepare(&server);
    let sql = "CREATE TABLE outbox (id INTEGER PRIMARY KEY, kind TEXT, payload TEXT, customer TEXT, relayed_at INTEGER, error TEXT)";
    Connection::open(&path).unwrap().execute_batch(sql).unwrap();
    daemon.run();
    let line = daemon.wait_for_log("outbox_schema");
    assert!(line.contains("AUTOINCREMENT"), "{line}");
}
