//! Jobs as the benches send them. Nothing here measures.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

use crate::client::Client;

/// How many jobs a batch holds.
pub const LINES: usize = 1_000;

/// A batch of one kind, one job a line. `more` gives further fields of each, such as `,"key":"…"`.
#[must_use]
pub fn batch(kind: &str, payload: &str, jobs: usize, more: impl Fn(usize) -> String) -> String {
    let mut lines = String::new();
    for job in 0..jobs {
        let _ = writeln!(lines, r#"{{"kind":"{kind}","payload":{payload}{}}}"#, more(job));
    }
    lines
}

/// A client's key that is spread evenly over all keys and comes once.
#[must_use]
pub fn random_key(round: &str, job: usize) -> String {
    let digest = Sha256::digest(format!("{round} {job}"));
    digest.iter().take(16).fold(String::new(), |mut key, byte| {
        let _ = write!(key, "{byte:02x}");
        key
    })
}

/// Sends many jobs, a batch at a time, and gives the id of the last one.
pub fn send(
    client: &mut Client,
    kind: &str,
    payload: &str,
    jobs: usize,
    more: impl Fn(usize) -> String,
) -> anyhow::Result<i64> {
    let mut last = 0;
    for first in (0..jobs).step_by(LINES) {
        let lines = batch(kind, payload, LINES.min(jobs - first), |job| more(first + job));
        last = client.enqueue(lines.as_bytes())?;
    }
    Ok(last)
}

/// A number that the environment may set, such as `BENCH_JOBS`.
#[must_use]
pub fn number(name: &str, otherwise: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}
