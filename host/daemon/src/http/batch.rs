//! Jobs sent in as JSON Lines: an answer for each line, in their order. The body is read, stored and answered piece by
//! piece, so that its length does not matter; a line that is wrong is named by its number and holds up no other.

use std::sync::Arc;

use axum::{
    Extension,
    body::{Body, BodyDataStream},
    extract::State,
    response::{IntoResponse, Response},
};
use bytes::{Bytes, BytesMut};
use futures_util::{FutureExt as _, StreamExt as _, stream};
use http::header;
use leasehold_api::{BatchAnswer, Problem};
use leasehold_store::EnqueueJob;
use tokio::sync::mpsc;

use super::{
    Api, body, new_job,
    refusal::{Refusal, problem_of_store, too_large},
};
use crate::config::{Actor, Config};

/// How many pieces of answers wait for a caller that sends before it reads. Beyond that it has to read.
const ANSWERS_WAITING_MAX: usize = 64;
/// How many lines are stored at once.
const PIECE_LINES_MAX: usize = 500;
/// How many bytes of lines are stored at once. Reading and sealing them takes the thread some milliseconds.
const PIECE_MAX_BYTES: usize = 1 << 20;

/// A piece of the answer, or why the rest of it will not come.
type Piece = Result<Bytes, axum::Error>;

pub(super) async fn enqueue(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    body: Body,
) -> impl IntoResponse {
    let (answers, waiting) = mpsc::channel(ANSWERS_WAITING_MAX);
    let config = api.daemon.config();
    let line_max_bytes = body::document_max_bytes(&config);
    let lines =
        Lines { chunks: body.into_data_stream(), line: BytesMut::new(), number: 0, is_too_long: false, line_max_bytes };
    tokio::spawn(Batch { api, actor, config, answers, piece: Vec::new(), piece_bytes: 0, taken: 0 }.run(lines));
    let answered = stream::unfold(waiting, |mut waiting| async { waiting.recv().await.map(|piece| (piece, waiting)) });
    let response: Response = Body::from_stream(answered).into_response();
    ([(header::CONTENT_TYPE, "application/x-ndjson")], response)
}

/// One call's lines on their way into the queue.
struct Batch {
    api: Api,
    actor: Actor,
    config: Arc<Config>,
    answers: mpsc::Sender<Piece>,
    /// Lines that were read and are not stored yet.
    piece: Vec<(u64, Result<EnqueueJob, Problem>)>,
    piece_bytes: usize,
    /// How many lines were taken so far.
    taken: usize,
}

/// The caller has gone, or its body broke: what is left is not stored.
struct Abandoned;

impl Batch {
    async fn run(mut self, mut lines: Lines) {
        // What was stored before the caller went stays: its lines' keys make it safe to send them again.
        let _ = self.store_all(&mut lines).await;
    }

    async fn store_all(&mut self, lines: &mut Lines) -> Result<(), Abandoned> {
        while let Some(chunk) = self.next_chunk(lines).await? {
            for line in lines.split(&chunk) {
                self.add(line);
                if self.piece.len() >= PIECE_LINES_MAX || self.piece_bytes >= PIECE_MAX_BYTES {
                    self.store_piece().await?;
                }
            }
        }
        if let Some(line) = lines.last() {
            self.add(line);
        }
        self.store_piece().await
    }

    /// The next chunk of the body. When it is not here yet, what was read so far is stored first, so that a caller that
    /// sends slowly is answered meanwhile.
    async fn next_chunk(&mut self, lines: &mut Lines) -> Result<Option<Bytes>, Abandoned> {
        let here = lines.chunks.next().now_or_never();
        if here.is_none() {
            self.store_piece().await?;
        }
        let next = match here {
            Some(next) => next,
            None => lines.chunks.next().await,
        };
        match next.transpose() {
            Ok(chunk) => Ok(chunk),
            Err(error) => {
                self.store_piece().await?;
                self.send(Err(error)).await?;
                Err(Abandoned)
            }
        }
    }

    fn add(&mut self, line: Line) {
        let Line { number, text } = line;
        let batch_max = self.config.queue.batch_max;
        self.taken += 1;
        let job = text.and_then(|text| {
            if self.taken > batch_max {
                return Err(over_the_bound(batch_max));
            }
            self.piece_bytes += text.len();
            let request = body::parse(&text).map_err(|Refusal(problem)| of_a_line(problem))?;
            new_job::check(request, &self.config, self.api.daemon.now_ms())
        });
        self.piece.push((number, job));
    }

    /// Stores what was read in one call and answers each of its lines.
    async fn store_piece(&mut self) -> Result<(), Abandoned> {
        if self.piece.is_empty() {
            return Ok(());
        }
        self.piece_bytes = 0;
        let piece = std::mem::take(&mut self.piece);
        let (mut jobs, mut checked) = (Vec::new(), Vec::new());
        for (number, job) in piece {
            checked.push((number, job.map(|job| jobs.push(job))));
        }
        let mut stored = self.store(jobs).await.into_iter();
        let mut answered = BytesMut::new();
        for (line, check) in checked {
            let outcome = check.and_then(|()| stored.next().unwrap_or_else(|| Err(unanswered())));
            write(&mut answered, &answer(line, outcome));
        }
        self.send(Ok(answered.freeze())).await
    }

    /// What became of each job. When the call as such failed, that is what became of each.
    async fn store(&self, jobs: Vec<EnqueueJob>) -> Vec<Result<leasehold_api::EnqueueAnswer, Problem>> {
        let count = jobs.len();
        if count == 0 {
            return Vec::new();
        }
        match self.api.daemon.enqueue(jobs, &self.actor.name).await {
            Ok(answers) => answers.iter().map(|answer| new_job::outcome(answer, &self.config)).collect(),
            Err(error) => vec![Err(problem_of_store(&error)); count],
        }
    }

    async fn send(&self, piece: Piece) -> Result<(), Abandoned> {
        self.answers.send(piece).await.map_err(|_| Abandoned)
    }
}

/// The line has its own number, so the reader's, which is always 1, only misleads; and what a line may be is said with it.
fn of_a_line(problem: Problem) -> Problem {
    let detail = problem.detail.replace(" at line 1 column ", " at column ");
    let allowed = "allowed is one JSON object a line with kind and payload (or payload_base64), and where wanted key, lane, \
                   priority, delay_ms or run_at, content_type and metadata";
    Problem { detail: format!("{detail}; {allowed}"), ..problem }
}

fn over_the_bound(batch_max: usize) -> Problem {
    let detail = format!("a batch has at most {batch_max} lines (batch_max under [queue]); send this one in another");
    Problem::new(http::StatusCode::PAYLOAD_TOO_LARGE, "batch_too_large", detail).with("limit", batch_max)
}

fn unanswered() -> Problem {
    Problem::new(http::StatusCode::INTERNAL_SERVER_ERROR, "unanswered", "the queue gave no answer")
}

fn answer(line: u64, outcome: Result<leasehold_api::EnqueueAnswer, Problem>) -> BatchAnswer {
    match outcome {
        Ok(answer) => BatchAnswer::Accepted { line, id: answer.id, duplicate: answer.duplicate },
        Err(problem) => BatchAnswer::Refused { line, code: problem.code, detail: problem.detail },
    }
}

fn write(answered: &mut BytesMut, answer: &BatchAnswer) {
    // Numbers and text always make JSON.
    if let Ok(line) = serde_json::to_vec(answer) {
        answered.extend_from_slice(&line);
        answered.extend_from_slice(b"\n");
    }
}

/// One line of the body that is not empty.
struct Line {
    number: u64,
    /// The line, unless it is too long to be kept.
    text: Result<Bytes, Problem>,
}

/// The lines of a body, none of them kept beyond its limit.
struct Lines {
    chunks: BodyDataStream,
    /// The beginning of a line whose end is still to come.
    line: BytesMut,
    number: u64,
    is_too_long: bool,
    line_max_bytes: usize,
}

impl Lines {
    /// The lines that end within the chunk.
    fn split(&mut self, chunk: &Bytes) -> Vec<Line> {
        let mut lines = Vec::new();
        for part in chunk.split_inclusive(|byte| *byte == b'\n') {
            let text = part.strip_suffix(b"\n");
            self.extend(text.unwrap_or(part));
            if text.is_some() {
                lines.extend(self.last());
            }
        }
        lines
    }

    fn extend(&mut self, part: &[u8]) {
        if self.is_too_long || self.line.len() + part.len() > self.line_max_bytes {
            self.is_too_long = true;
            self.line.clear();
        } else {
            self.line.extend_from_slice(part);
        }
    }

    /// Ends the line that was begun; nothing for an empty one.
    fn last(&mut self) -> Option<Line> {
        self.number += 1;
        let (number, line) = (self.number, self.line.split().freeze());
        if std::mem::take(&mut self.is_too_long) {
            return Some(Line { number, text: Err(too_large("the line", self.line_max_bytes)) });
        }
        (!line.trim_ascii().is_empty()).then_some(Line { number, text: Ok(line) })
    }
}
