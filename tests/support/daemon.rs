//! The real daemon as a process: started, asked through its command line, signalled, killed and started again.

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::{DirBuilderExt, symlink},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Condvar, Mutex},
    time::{Duration, Instant},
};

use serde_json::Value;
use tempfile::TempDir;

use super::{ConfigText, Database, guest};

/// How long a test waits for anything before it fails.
pub const PATIENCE: Duration = Duration::from_mins(1);

/// A daemon in a directory of its own. It is killed when it is dropped.
pub struct Daemon {
    directory: TempDir,
    environment: Vec<(String, String)>,
    process: Option<Child>,
    log: Arc<Log>,
}

/// The daemon's log over all of its starts.
#[derive(Default)]
struct Log {
    lines: Mutex<(Vec<String>, bool)>,
    changed: Condvar,
}

/// What a command answered.
#[derive(Debug)]
pub struct Answer {
    pub status: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Answer {
    /// The answer of a command that went well.
    #[track_caller]
    pub fn json(&self) -> Value {
        assert_eq!(self.status, 0, "{}{}", self.stdout, self.stderr);
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {}", self.stdout))
    }

    /// The stable code of a command that was refused.
    #[track_caller]
    pub fn refusal(&self) -> String {
        assert_ne!(self.status, 0, "{}", self.stdout);
        let problem: Value =
            serde_json::from_str(self.stderr.trim()).unwrap_or_else(|error| panic!("{error}: {}", self.stderr));
        problem["code"].as_str().unwrap_or_else(|| panic!("no code: {problem}")).to_owned()
    }
}

impl Daemon {
    /// A directory with a configuration, and no daemon yet.
    pub fn prepare(config: &ConfigText) -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("config.toml"), config.text()).unwrap();
        share_compiled(&directory.path().join("leasehold-data"));
        Self { directory, environment: Vec::new(), process: None, log: Arc::default() }
    }

    /// A daemon that runs.
    pub fn start(config: &ConfigText) -> Self {
        let mut daemon = Self::prepare(config);
        daemon.run();
        daemon
    }

    /// A daemon that runs with `misbehave` live.
    pub fn with_misbehave(config: &ConfigText) -> Self {
        let daemon = Self::start(config);
        daemon.push_live(&guest("misbehave@1.0.0"));
        daemon
    }

    /// Sets an environment variable of later starts.
    pub fn set_environment(&mut self, name: &str, value: &str) {
        self.environment.retain(|(other, _)| other != name);
        self.environment.push((name.into(), value.into()));
    }

    /// Arms crash points for later starts; none when the text is empty.
    pub fn set_crash_points(&mut self, specification: &str) {
        self.set_environment("LEASEHOLD_CRASH_POINTS", specification);
    }

    /// Starts the process and waits until it is ready.
    #[track_caller]
    pub fn run(&mut self) {
        let seen = self.log.len();
        self.spawn();
        self.wait_for_log_after(seen, "ready socket");
    }

    /// Starts the process and waits until it is ready or has ended; answers whether it is ready.
    pub fn run_or_end(&mut self) -> bool {
        let seen = self.log.len();
        self.spawn();
        self.log.wait_for(seen, "ready socket").is_ok()
    }

    /// Starts the process and does not wait.
    pub fn spawn(&mut self) {
        assert!(self.process.is_none(), "the daemon runs already");
        let mut process = Command::new(env!("CARGO_BIN_EXE_leasehold"))
            .arg("serve")
            .arg("--config")
            .arg(self.config_path())
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stderr = BufReader::new(process.stderr.take().unwrap());
        let log = Arc::clone(&self.log);
        log.lines.lock().unwrap().1 = false;
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                log.push(line);
            }
            log.close();
        });
        self.process = Some(process);
    }

    /// Kills the process as a power cut would.
    pub fn kill(&mut self) {
        let mut process = self.process.take().expect("the daemon runs");
        process.kill().unwrap();
        process.wait().unwrap();
        self.log.wait_for_end();
    }

    /// Waits until the process has ended by itself.
    #[track_caller]
    pub fn wait_for_exit(&mut self) -> ExitStatus {
        let process = self.process.as_mut().expect("the daemon runs");
        // Its log ends with it, and a wait for that is bounded.
        assert!(self.log.wait_for_end(), "the daemon does not end");
        let status = process.wait().unwrap();
        self.process = None;
        status
    }

    /// The process that runs.
    pub fn process(&self) -> rustix::process::Pid {
        let id = i32::try_from(self.process.as_ref().expect("the daemon runs").id()).unwrap();
        rustix::process::Pid::from_raw(id).unwrap()
    }

    /// Sends a signal.
    pub fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(self.process(), signal).unwrap();
    }

    /// Whether the daemon takes and runs jobs, or why not.
    pub fn readiness(&self) -> Result<(), String> {
        let client = leasehold_api::Client::new(self.data().join("leasehold.sock"));
        super::server::block_on(async move { client.ready().await.map_err(|error| error.to_string()) })
    }

    /// Stops the process for a while, as a debugger or a suspended machine does. The time that passes is the fault that is
    /// tested; nothing is waited for by it.
    pub fn freeze(&self, how_long: Duration) {
        self.signal(rustix::process::Signal::STOP);
        std::thread::sleep(how_long);
        self.signal(rustix::process::Signal::CONT);
    }

    /// Stops the process with SIGTERM and waits for its end.
    pub fn terminate(&mut self) -> ExitStatus {
        self.signal(rustix::process::Signal::TERM);
        self.wait_for_exit()
    }

    /// Kills the process and starts it again.
    #[track_caller]
    pub fn kill_and_run(&mut self) {
        self.kill();
        self.run();
    }

    /// The directory that holds everything of this daemon.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The configuration's file.
    pub fn config_path(&self) -> PathBuf {
        self.directory.path().join("config.toml")
    }

    /// Writes another configuration, which takes effect at a reload or a start.
    pub fn write_config(&self, config: &ConfigText) {
        fs::write(self.config_path(), config.text()).unwrap();
    }

    /// The directory of the database.
    pub fn data(&self) -> PathBuf {
        self.directory.path().join("leasehold-data")
    }

    /// The database, for looking.
    pub fn database(&self) -> Database {
        Database::open(&self.data().join("leasehold.db"))
    }

    /// A command of the binary for this daemon, with `--json`.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
        command.args(["--json", "--config"]).arg(self.config_path()).args(arguments);
        command
    }

    /// Runs a command to its end.
    pub fn ask(&self, arguments: &[&str]) -> Answer {
        let output = self.command(arguments).stdin(Stdio::null()).output().unwrap();
        Answer {
            status: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Stores a component under its own name and makes it current.
    #[track_caller]
    pub fn push_live(&self, component: &Path) -> Value {
        self.ask(&["handlers", "push", component.to_str().unwrap(), "--activate"]).json()
    }

    /// Enqueues a job of a kind; answers its id.
    #[track_caller]
    pub fn enqueue(&self, kind: &str, payload: &Value, options: &[&str]) -> i64 {
        let payload = payload.to_string();
        let arguments = [&["enqueue", kind, "--payload", &payload], options].concat();
        self.ask(&arguments).json()["id"].as_i64().expect("an id")
    }

    /// Waits until a job has ended; answers its state.
    #[track_caller]
    pub fn wait(&self, job: i64) -> String {
        let seconds = format!("{}s", PATIENCE.as_secs());
        let answer = self.ask(&["jobs", "wait", &job.to_string(), "--timeout", &seconds]);
        assert!(matches!(answer.status, 0 | 5), "{}{}", answer.stdout, answer.stderr);
        self.job(job)["state"].as_str().unwrap().to_owned()
    }

    /// A job with its attempts and steps.
    #[track_caller]
    pub fn job(&self, job: i64) -> Value {
        self.ask(&["jobs", "show", &job.to_string()]).json()
    }

    /// The result of a job that is done, as JSON.
    #[track_caller]
    pub fn result(&self, job: i64) -> Value {
        use base64::Engine as _;
        let shown = self.job(job);
        let result = shown["result_base64"].as_str().unwrap_or_else(|| panic!("no result: {shown}"));
        serde_json::from_slice(&base64::prelude::BASE64_STANDARD.decode(result).unwrap()).unwrap()
    }

    /// The open dead letter of a job.
    #[track_caller]
    pub fn dead_letter(&self, job: i64) -> Value {
        let shown = self.job(job);
        let letters = shown["dead_letters"].as_array().unwrap();
        let open = letters.iter().find(|letter| letter["state"] == "open");
        let id = open.unwrap_or_else(|| panic!("no open dead letter: {shown}"))["id"].to_string();
        self.ask(&["dlq", "show", &id]).json()
    }

    /// The value of a metric, summed over the labels that are not named; 0 when it is not there.
    pub fn metric(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let text = self.metrics();
        let wanted: Vec<_> = labels.iter().map(|(label, value)| format!("{label}=\"{value}\"")).collect();
        let values = text.lines().filter(|line| {
            line.strip_prefix(name).is_some_and(|rest| rest.starts_with([' ', '{']))
                && wanted.iter().all(|label| line.contains(label))
        });
        values.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    }

    /// All metrics in their text form.
    pub fn metrics(&self) -> String {
        super::server::block_on(async {
            leasehold_api::Client::new(self.data().join("leasehold.sock")).metrics().await.unwrap()
        })
    }

    /// Waits until the log has a line with this text, from the test's beginning on.
    #[track_caller]
    pub fn wait_for_log(&self, text: &str) -> String {
        self.wait_for_log_after(0, text)
    }

    #[track_caller]
    fn wait_for_log_after(&self, seen: usize, text: &str) -> String {
        self.log.wait_for(seen, text).unwrap_or_else(|log| panic!("the log never said {text:?}:\n{log}"))
    }

    /// Waits until the log has this many lines with a text.
    #[track_caller]
    pub fn wait_for_log_lines(&self, count: usize, text: &str) {
        self.log.wait_until(|lines| lines.iter().filter(|line| line.contains(text)).count() >= count, text);
    }

    /// The whole log.
    pub fn log(&self) -> String {
        self.log.lines.lock().unwrap().0.join("\n")
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
        if std::thread::panicking() {
            eprintln!("--- the daemon's log\n{}", self.log());
        }
    }
}

impl Log {
    fn len(&self) -> usize {
        self.lines.lock().unwrap().0.len()
    }

    fn push(&self, line: String) {
        self.lines.lock().unwrap().0.push(line);
        self.changed.notify_all();
    }

    fn close(&self) {
        self.lines.lock().unwrap().1 = true;
        self.changed.notify_all();
    }

    /// Waits until the process has closed its log; false when it does not.
    fn wait_for_end(&self) -> bool {
        let lines = self.lines.lock().unwrap();
        let (lines, _) = self.changed.wait_timeout_while(lines, PATIENCE, |(_, ended)| !*ended).unwrap();
        lines.1
    }

    fn wait_for(&self, seen: usize, text: &str) -> Result<String, String> {
        let until = Instant::now() + PATIENCE;
        let mut lines = self.lines.lock().unwrap();
        loop {
            if let Some(line) = lines.0.iter().skip(seen).find(|line| line.contains(text)) {
                return Ok(line.clone());
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || lines.1 {
                return Err(lines.0.join("\n"));
            }
            lines = self.changed.wait_timeout(lines, left).unwrap().0;
        }
    }

    #[track_caller]
    fn wait_until(&self, is_enough: impl Fn(&[String]) -> bool, what: &str) {
        let lines = self.lines.lock().unwrap();
        let (lines, timeout) =
            self.changed.wait_timeout_while(lines, PATIENCE, |(lines, _)| !is_enough(lines)).unwrap();
        let (said, timed_out) = (lines.0.join("\n"), timeout.timed_out());
        // Let go before a panic, so that what prints the log afterwards does not find a poisoned lock.
        drop(lines);
        assert!(!timed_out, "the log never said {what:?} often enough:\n{said}");
    }
}

/// Daemons of one build share what they compiled, so that a test costs no compilation.
fn share_compiled(data: &Path) {
    let shared = Path::new(env!("CARGO_TARGET_TMPDIR")).join("compiled");
    for directory in [data, &shared] {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory).unwrap();
    }
    symlink(shared, data.join("compiled")).unwrap();
}
