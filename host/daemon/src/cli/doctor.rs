//! `leasehold doctor`: looks at everything that a daemon depends on and says, a line each, what is well and what is not. It
//! changes nothing, and works whether or not a daemon runs.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use leasehold_api::{Client, ClientError};
use leasehold_store::examine;
use serde::Serialize;
use serde_json::json;

use super::{Failure, GlobalOptions, text};
use crate::{config::Config, open_files::open_files};

/// How something stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum State {
    Ok,
    Warn,
    Fail,
}

/// One thing that was looked at.
#[derive(Debug, Clone, Serialize)]
struct Check {
    state: State,
    name: &'static str,
    /// What was found and, where it is not well, what to do.
    detail: String,
}

fn check(state: State, name: &'static str, detail: impl Into<String>) -> Check {
    Check { state, name, detail: detail.into() }
}

/// Runs the command.
pub async fn run(options: &GlobalOptions) -> Result<(), Failure> {
    options.refuse_url("doctor examines what is on this machine")?;
    let checks = match Config::load(&options.config) {
        Ok(config) => examined(&config, options).await,
        Err(errors) => errors.to_string().lines().map(|line| check(State::Fail, "configuration", line)).collect(),
    };
    options.output().show(&json!({ "checks": checks }), |_| shown(&checks))?;
    match checks.iter().filter(|check| check.state == State::Fail).count() {
        0 => Ok(()),
        failed => Err(Failure::Failed {
            code: "checks_failed",
            message: format!("{failed} of {} checks failed", checks.len()),
        }),
    }
}

fn shown(checks: &[Check]) -> String {
    let line = |check: &Check| {
        let state = match check.state {
            State::Ok => "ok  ",
            State::Warn => "warn",
            State::Fail => "fail",
        };
        format!("{state}  {}: {}", check.name, text::escape(&check.detail))
    };
    checks.iter().map(line).collect::<Vec<_>>().join("\n")
}

async fn examined(config: &Config, options: &GlobalOptions) -> Vec<Check> {
    let valid = format!("{} is valid", config.path.display());
    let mut checks = vec![check(State::Ok, "configuration", valid), data_directory(&config.daemon.data_dir)];
    checks.push(key_file(config));
    let open = open_files(config);
    if open.is_empty() {
        checks.push(check(State::Ok, "secrets", "no file of secrets is open to others"));
    }
    checks.extend(open.iter().map(|open| check(State::Warn, "secrets", open.to_string())));
    checks.extend(disk(config));
    match examine::owner(&config.daemon.data_dir) {
        Ok(Some(process)) => {
            checks.push(check(State::Ok, "lock", format!("process {process} owns the database")));
            checks.push(check(State::Ok, "database", "not checked while a daemon owns it; stop it for a full check"));
            checks.extend(running(config, options).await);
        }
        Ok(None) => {
            checks.push(check(State::Ok, "lock", "no daemon owns the database"));
            checks.push(database(&config.daemon.data_dir.join("leasehold.db")));
            checks.push(check(State::Warn, "daemon", "none runs; `leasehold serve` starts one"));
        }
        Err(error) => checks.push(check(State::Fail, "lock", format!("the lock can't be looked at: {error}"))),
    }
    checks
}

fn data_directory(directory: &Path) -> Check {
    let name = "data directory";
    let path = directory.display();
    match fs::metadata(directory) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            check(State::Warn, name, format!("{path} is not there; the first start makes it"))
        }
        Err(error) => check(State::Fail, name, format!("{path}: {error}")),
        Ok(found) if !found.is_dir() => check(State::Fail, name, format!("{path} is no directory")),
        Ok(found) => match found.permissions().mode() & 0o077 {
            0 => check(State::Ok, name, format!("{path} is its owner's alone")),
            _ => check(
                State::Warn,
                name,
                format!("{path} is open to others: `chmod 700 {path}`, unless they use a socket in it"),
            ),
        },
    }
}

fn key_file(config: &Config) -> Check {
    let name = "key file";
    let path = config.daemon.key_file.display();
    let database = config.daemon.data_dir.join("leasehold.db");
    if !database.exists() {
        return match fs::metadata(&config.daemon.key_file) {
            Ok(_) => check(State::Ok, name, format!("{path} is there, and a new database takes it up")),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                check(State::Ok, name, format!("{path} is made together with the database"))
            }
            Err(error) => check(State::Fail, name, format!("{path}: {error}")),
        };
    }
    match examine::key_problem(&database, &config.daemon.key_file) {
        Ok(None) => check(State::Ok, name, format!("{path} is the database's; keep a copy of it in another place")),
        Ok(Some(problem)) => {
            check(State::Fail, name, format!("{problem}; without the database's key nothing is enqueued or run"))
        }
        Err(error) => check(State::Fail, name, format!("whether {path} is the database's can't be told: {error}")),
    }
}

/// How much disk is left, where it can be known.
fn disk(config: &Config) -> Option<Check> {
    let found = rustix::fs::statvfs(&config.daemon.data_dir).ok()?;
    let free_bytes = found.f_bavail.saturating_mul(found.f_frsize);
    let reserve_bytes = config.queue.disk_reserve_bytes;
    let mebibytes = |bytes: u64| format!("{} MiB", bytes >> 20);
    let (free, reserve) = (mebibytes(free_bytes), mebibytes(reserve_bytes));
    let detail = format!("{free} are free, the reserve is {reserve} (disk_reserve under [queue])");
    Some(if free_bytes < reserve_bytes {
        check(State::Fail, "disk", format!("{detail}; nothing is enqueued until there is more"))
    } else if free_bytes < reserve_bytes.saturating_mul(2) {
        check(State::Warn, "disk", format!("{detail}; below it nothing is enqueued"))
    } else {
        check(State::Ok, "disk", detail)
    })
}

fn database(path: &Path) -> Check {
    let (name, shown) = ("database", path.display());
    if !path.exists() {
        return check(State::Ok, name, format!("{shown} is made at the first start"));
    }
    let damaged = |what: &str| {
        let remedy = format!("restore a backup, or recover what can be with `sqlite3 {shown} .recover`");
        check(State::Fail, name, format!("{shown} is damaged: {what}; {remedy}"))
    };
    match examine::quick_check(path) {
        Ok(found) if found.is_empty() => check(State::Ok, name, format!("{shown} is whole")),
        Ok(found) => damaged(&found.join("; ")),
        Err(error) if error.code() == "database_corrupt" => damaged(&error.to_string()),
        Err(error) => check(State::Fail, name, format!("{shown}: {error}")),
    }
}

/// What the daemon itself says.
async fn running(config: &Config, options: &GlobalOptions) -> Vec<Check> {
    let socket = options.socket.as_ref().unwrap_or(&config.daemon.socket);
    let client = Client::new(socket);
    let daemon = match client.ready().await {
        Ok(()) => check(State::Ok, "daemon", format!("it answers at {} and is ready", socket.display())),
        Err(ClientError::Refused(problem)) => check(State::Fail, "daemon", problem.to_string()),
        Err(error) => check(State::Fail, "daemon", error.to_string()),
    };
    let kinds = match client.kinds().await {
        Ok(kinds) => kinds.items,
        Err(error) => return vec![daemon, check(State::Warn, "handlers", format!("could not be asked for: {error}"))],
    };
    let lines = kinds.into_iter().map(|kind| match (&kind.live_version, kind.waiting_for_handler) {
        (Some(version), false) => check(State::Ok, "handlers", format!("{} runs on {version}", kind.kind)),
        (_, true) => check(State::Fail, "handlers", format!("{} has jobs and nothing to run them on", kind.kind)),
        (None, false) => check(State::Warn, "handlers", format!("{} has no live version", kind.kind)),
    });
    [daemon].into_iter().chain(lines).collect()
}
