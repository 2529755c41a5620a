//! `leasehold enqueue --file`: a JSON Lines file of jobs, sent in batches of bounded size. A line that is wrong is named
//! by its number and never holds up the others.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::Path,
};

use bytes::Bytes;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use leasehold_api::BatchAnswer;
use serde::Serialize;
use serde_json::{json, value::RawValue};

use super::{Failure, Session, enqueue::fresh_key};

/// How many lines are sent at once.
const BATCH_LINES_MAX: usize = 500;
/// How many bytes are sent at once, unless one line alone has more.
const BATCH_BYTES_MAX: usize = 1 << 20;
/// The longest line that is read; the daemon's own limit is lower by far.
const LINE_BYTES_MAX: u64 = 64 << 20;

/// What became of the whole file.
#[derive(Debug, Default, Serialize)]
struct Summary {
    accepted: u64,
    duplicates: u64,
    refused: u64,
}

/// Sends the file's jobs in.
pub async fn run(path: &Path, default_kind: Option<&str>, session: &Session) -> Result<(), Failure> {
    let (mut lines, size_bytes) = open(path)?;
    let progress = progress_bar(size_bytes, session);
    let mut summary = Summary::default();
    loop {
        let batch = next_batch(&mut lines, default_kind, path)?;
        let Some(last_line) = batch.last_line() else { break };
        let answers = send(&batch, session).await.inspect_err(|_| summary.note_stop(&batch, session))?;
        for answer in answers {
            summary.count(&answer);
            report(&answer, batch.keys.get(number(&answer)), session, &progress)?;
        }
        progress.set_position(lines.read_bytes);
        progress.set_message(format!("line {last_line}"));
    }
    progress.finish_and_clear();
    conclude(&summary, session)
}

fn conclude(summary: &Summary, session: &Session) -> Result<(), Failure> {
    session.output.show(&json!({ "summary": summary }), |_| {
        format!("{} accepted, {} of them duplicates; {} refused", summary.accepted, summary.duplicates, summary.refused)
    })?;
    match summary.refused {
        0 => Ok(()),
        refused => Err(Failure::LinesRefused { refused, total: summary.accepted + refused }),
    }
}

impl Summary {
    /// Says how far the file has got, so that what is certainly in the queue need not be sent again.
    fn note_stop(&self, batch: &Batch, session: &Session) {
        if let (true, [first, ..]) = (self.accepted + self.refused > 0, &batch.numbers[..]) {
            let last = batch.last_line().unwrap_or(*first);
            let note = format!("lines before {first} were answered; lines {first} to {last} may be in the queue");
            session.output.note(&note);
        }
    }

    fn count(&mut self, answer: &BatchAnswer) {
        match answer {
            BatchAnswer::Accepted { duplicate, .. } => {
                self.accepted += 1;
                self.duplicates += u64::from(*duplicate);
            }
            BatchAnswer::Refused { .. } => self.refused += 1,
        }
    }
}

/// Programs get every answer, people those that were refused.
fn report(
    answer: &BatchAnswer,
    key: Option<&String>,
    session: &Session,
    progress: &ProgressBar,
) -> Result<(), Failure> {
    if session.output.is_json() {
        return session.output.document(answer);
    }
    if let BatchAnswer::Refused { line, code, detail } = answer {
        let key = key.map(|key| format!("key {key}: ")).unwrap_or_default();
        progress.suspend(|| session.output.note(&format!("line {line}: {key}{detail} [{code}]")));
    }
    Ok(())
}

/// Lines that are sent together.
#[derive(Debug, Default)]
struct Batch {
    body: Vec<u8>,
    /// The number in the file of each line that is sent.
    numbers: Vec<u64>,
    /// The keys that lines came with, by the lines' numbers.
    keys: BTreeMap<u64, String>,
    /// Lines that are not sent, since they are too long to.
    refused: Vec<BatchAnswer>,
    /// Whether some line is a job without a key, so that sending the batch twice could make two jobs of it.
    has_unkeyed: bool,
}

impl Batch {
    fn last_line(&self) -> Option<u64> {
        let refused = self.refused.iter().map(|answer| *number(answer));
        self.numbers.iter().copied().chain(refused).max()
    }

    fn is_full(&self) -> bool {
        self.numbers.len() + self.refused.len() >= BATCH_LINES_MAX || self.body.len() >= BATCH_BYTES_MAX
    }

    fn add(&mut self, line: &Line, default_kind: Option<&str>) -> Result<(), Failure> {
        if line.is_too_long {
            let detail = format!("the line is longer than {LINE_BYTES_MAX} bytes");
            self.refused.push(BatchAnswer::Refused { line: line.number, code: "line_too_long".to_owned(), detail });
            return Ok(());
        }
        let completed = complete(&line.bytes, default_kind)?;
        self.has_unkeyed |= completed.is_unkeyed;
        self.keys.extend(completed.key.map(|key| (line.number, key)));
        self.body.extend(completed.bytes);
        self.body.push(b'\n');
        self.numbers.push(line.number);
        Ok(())
    }
}

fn number(answer: &BatchAnswer) -> &u64 {
    match answer {
        BatchAnswer::Accepted { line, .. } | BatchAnswer::Refused { line, .. } => line,
    }
}

fn next_batch(lines: &mut Lines, default_kind: Option<&str>, path: &Path) -> Result<Batch, Failure> {
    let mut batch = Batch::default();
    while !batch.is_full() {
        match lines.next().map_err(|error| Failure::unreadable(path.display(), &error))? {
            Some(line) if line.bytes.iter().all(u8::is_ascii_whitespace) => {}
            Some(line) => batch.add(&line, default_kind)?,
            None => break,
        }
    }
    Ok(batch)
}

/// Sends a batch and gives its answers the numbers that their lines have in the file.
async fn send(batch: &Batch, session: &Session) -> Result<Vec<BatchAnswer>, Failure> {
    let mut answers = batch.refused.clone();
    if !batch.numbers.is_empty() {
        let body = Bytes::copy_from_slice(&batch.body);
        let answered = session.client.enqueue_lines(body, !batch.has_unkeyed).await?;
        if answered.len() != batch.numbers.len() {
            return Err(unanswered(answered.len(), batch.numbers.len()));
        }
        answers.extend(answered.into_iter().zip(&batch.numbers).map(|(answer, line)| renumbered(answer, *line)));
    }
    answers.sort_by_key(|answer| *number(answer));
    Ok(answers)
}

fn unanswered(answered: usize, sent: usize) -> Failure {
    let message = format!("the daemon answered {answered} of {sent} lines");
    Failure::Failed { code: "unexpected_answer", message }
}

fn renumbered(answer: BatchAnswer, line: u64) -> BatchAnswer {
    match answer {
        BatchAnswer::Accepted { id, duplicate, .. } => BatchAnswer::Accepted { line, id, duplicate },
        BatchAnswer::Refused { code, detail, .. } => BatchAnswer::Refused { line, code, detail },
    }
}

/// A line with what it lacked.
struct Completed {
    bytes: Vec<u8>,
    /// The key that it came with.
    key: Option<String>,
    is_unkeyed: bool,
}

/// Puts a fresh key and the default kind into a job that has none, and leaves every other byte alone. What is no JSON
/// object is sent as it is: the daemon says what is wrong with it.
fn complete(line: &[u8], default_kind: Option<&str>) -> Result<Completed, Failure> {
    let Ok(fields) = serde_json::from_slice::<BTreeMap<String, &RawValue>>(line) else {
        return Ok(Completed { bytes: line.to_vec(), key: None, is_unkeyed: false });
    };
    let mut added = Vec::new();
    if !fields.contains_key("key") {
        added.push(format!("\"key\":{}", json!(fresh_key()?)));
    }
    if let (false, Some(kind)) = (fields.contains_key("kind"), default_kind) {
        added.push(format!("\"kind\":{}", json!(kind)));
    }
    let is_unkeyed = fields.get("key").is_some_and(|key| key.get() == "null");
    let key = fields.get("key").and_then(|key| serde_json::from_str(key.get()).ok());
    Ok(Completed { key, bytes: with_fields(line, &added, fields.is_empty()), is_unkeyed })
}

/// The object with further fields at its end, so that the columns of an error are those of the line as it was written.
fn with_fields(line: &[u8], added: &[String], is_empty: bool) -> Vec<u8> {
    let line = line.trim_ascii_end();
    if added.is_empty() {
        return line.to_vec();
    }
    let separator = if is_empty { "" } else { "," };
    [&line[..line.len() - 1], separator.as_bytes(), added.join(",").as_bytes(), b"}"].concat()
}

/// The numbered lines of a file, none of them read beyond its limit.
struct Lines {
    reader: Box<dyn BufRead>,
    number: u64,
    read_bytes: u64,
}

struct Line {
    number: u64,
    bytes: Vec<u8>,
    is_too_long: bool,
}

impl Lines {
    fn next(&mut self) -> io::Result<Option<Line>> {
        let mut bytes = Vec::new();
        let read = self.reader.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut bytes)?;
        if read == 0 {
            return Ok(None);
        }
        self.number += 1;
        self.read_bytes += read as u64;
        let is_too_long = read as u64 == LINE_BYTES_MAX && !bytes.ends_with(b"\n");
        if is_too_long {
            bytes.truncate(1);
            self.read_bytes += self.reader.skip_until(b'\n')? as u64;
        }
        Ok(Some(Line { number: self.number, bytes, is_too_long }))
    }
}

/// Opens the file, or the standard input for `-`, and tells its size where it has one.
fn open(path: &Path) -> Result<(Lines, Option<u64>), Failure> {
    let unreadable = |error| Failure::unreadable(path.display(), &error);
    let (reader, size_bytes): (Box<dyn BufRead>, _) = if path.as_os_str() == "-" {
        (Box::new(BufReader::new(io::stdin())), None)
    } else {
        let file = File::open(path).map_err(unreadable)?;
        let metadata = file.metadata().map_err(unreadable)?;
        (Box::new(BufReader::new(file)), metadata.is_file().then_some(metadata.len()))
    };
    Ok((Lines { reader, number: 0, read_bytes: 0 }, size_bytes))
}

/// Progress on a terminal; nothing elsewhere or beside JSON.
fn progress_bar(size_bytes: Option<u64>, session: &Session) -> ProgressBar {
    let target = if session.output.is_json() { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    let template = match size_bytes {
        Some(_) => "{wide_bar} {bytes}/{total_bytes} {msg} {eta}",
        None => "{spinner} {bytes} {msg}",
    };
    let progress = ProgressBar::with_draw_target(size_bytes, target);
    match ProgressStyle::with_template(template) {
        Ok(style) => progress.with_style(style),
        Err(_) => progress,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completed(line: &str, default_kind: Option<&str>) -> String {
        String::from_utf8(complete(line.as_bytes(), default_kind).unwrap().bytes).unwrap()
    }

    #[test]
    fn q1_a_line_without_a_key_gets_one_before_it_is_sent() {
        let sent = completed("{\"payload\": { \"a\": 1.0 }}", Some("pay"));
        assert!(sent.starts_with("{\"payload\": { \"a\": 1.0 },\"key\":\"auto-"), "{sent}");
        assert!(sent.ends_with("\",\"kind\":\"pay\"}"), "{sent}");
        let job: leasehold_api::EnqueueRequest = serde_json::from_str(&sent).unwrap();
        assert_eq!((job.kind.as_str(), job.payload.unwrap().get()), ("pay", "{ \"a\": 1.0 }"));
    }

    #[test]
    fn f1_what_a_line_says_itself_is_left_alone() {
        let line = "{\"kind\":\"mail\",\"key\":\"k\",\"payload\":1}";
        assert_eq!(completed(line, Some("pay")), line);
        assert_eq!(completed("not json", Some("pay")), "not json");
        assert!(complete(b"{\"key\":null}", None).unwrap().is_unkeyed);
        assert!(serde_json::from_str::<serde_json::Value>(&completed("{}", Some("pay"))).is_ok());
    }

    #[test]
    fn f1_empty_lines_count_and_are_not_sent() {
        let text = "{\"kind\":\"a\"}\n\n  \r\n{\"kind\":\"b\"}";
        let mut lines = Lines { reader: Box::new(io::Cursor::new(text)), number: 0, read_bytes: 0 };
        let batch = next_batch(&mut lines, None, Path::new("jobs")).unwrap();
        assert_eq!(batch.numbers, [1, 4]);
        assert_eq!(lines.read_bytes, text.len() as u64);
    }
}
