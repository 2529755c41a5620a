//! A lean client of the API on the daemon's socket, so that little of what is measured is the client's own.

use std::{
    io::{BufRead, BufReader, Read, Write},
    os::unix::net::UnixStream,
    path::Path,
};

use anyhow::{Context, ensure};
use base64::prelude::{BASE64_STANDARD, Engine as _};

/// One connection, kept open.
pub struct Client(BufReader<UnixStream>);

impl Client {
    /// Connects to a daemon's socket.
    pub fn connect(socket: &Path) -> anyhow::Result<Self> {
        Ok(Self(BufReader::new(UnixStream::connect(socket)?)))
    }

    /// Sends a request and gives its answer's body.
    pub fn ask(&mut self, method: &str, path: &str, body: &[u8]) -> anyhow::Result<Vec<u8>> {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/x-ndjson\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        let stream = self.0.get_mut();
        stream.write_all(head.as_bytes())?;
        stream.write_all(body)?;
        self.answer()
    }

    fn answer(&mut self) -> anyhow::Result<Vec<u8>> {
        let status = self.line()?;
        let (mut length, mut is_chunked) = (0, false);
        loop {
            let line = self.line()?.to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse()?;
            }
            is_chunked |= line.starts_with("transfer-encoding:") && line.contains("chunked");
        }
        let body = if is_chunked { self.chunks()? } else { self.exactly(length)? };
        ensure!(status.contains(" 20"), "{status}: {}", String::from_utf8_lossy(&body));
        Ok(body)
    }

    fn chunks(&mut self) -> anyhow::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let length = usize::from_str_radix(&self.line()?, 16).context("the length of a chunk")?;
            body.extend(self.exactly(length)?);
            self.line()?;
            if length == 0 {
                return Ok(body);
            }
        }
    }

    fn exactly(&mut self, length: usize) -> anyhow::Result<Vec<u8>> {
        let mut body = vec![0; length];
        self.0.read_exact(&mut body)?;
        Ok(body)
    }

    fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        ensure!(self.0.read_line(&mut line)? > 0, "the daemon closed the connection");
        Ok(line.trim_end().to_owned())
    }

    /// Sends jobs in and gives the id of the last one.
    pub fn enqueue(&mut self, lines: &[u8]) -> anyhow::Result<i64> {
        let answers = self.ask("POST", "/v1/jobs:batch", lines)?;
        let last = answers.split(|byte| *byte == b'\n').rfind(|line| !line.is_empty()).unwrap_or(b"{}");
        let last: serde_json::Value = serde_json::from_slice(last)?;
        last["id"].as_i64().with_context(|| format!("a job was refused: {last}"))
    }

    /// The sum of a metric over all of its labels that hold what is given.
    pub fn metric(&mut self, name: &str, with: &str) -> anyhow::Result<f64> {
        let text = self.ask("GET", "/metrics", b"")?;
        let text = String::from_utf8_lossy(&text);
        let lines = text.lines().filter(|line| line.starts_with(name) && line.contains(with));
        Ok(lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum())
    }

    /// A job's result, which has to be JSON, once it has ended.
    pub fn result(&mut self, id: i64) -> anyhow::Result<serde_json::Value> {
        self.wait(id)?;
        let answer: serde_json::Value = serde_json::from_slice(&self.ask("GET", &format!("/v1/jobs/{id}"), b"")?)?;
        let result = BASE64_STANDARD.decode(answer["result_base64"].as_str().unwrap_or_default())?;
        Ok(serde_json::from_slice(&result)?)
    }

    /// Waits until a job has ended.
    pub fn wait(&mut self, id: i64) -> anyhow::Result<()> {
        loop {
            let answer = self.ask("GET", &format!("/v1/jobs/{id}/wait?timeout_ms=60000"), b"")?;
            let answer: serde_json::Value = serde_json::from_slice(&answer)?;
            match answer["state"].as_str() {
                Some("waiting" | "ready" | "leased") => {}
                Some("done") => return Ok(()),
                state => anyhow::bail!("job {id} ended as {state:?}"),
            }
        }
    }
}
