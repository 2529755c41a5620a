//! `leasehold dlq rehearse`: runs a dead letter with nothing applied, and shows what the run would do.

use std::{fs, io::Read as _, path::PathBuf};

use clap::Args;
use leasehold_api::{
    AnswerTemplate, RehearsalAnswer, RehearsalEvent, RehearsalReport, RehearsalRequest, RehearsalVerdict,
    RehearsedHeader,
};

use super::{
    Failure, Session,
    payload::{PayloadSource, corrected},
    text::{self, escape, fields, section, short_digest, span, table},
};

/// How to rehearse a dead letter.
#[derive(Debug, Args)]
pub struct RehearseArguments {
    /// The dead letter's id
    id: i64,
    /// The stored version to run on, live or not, NAME@1.2.0 or 1.2.0 [default: the handler's current one]
    #[arg(long, value_name = "NAME@VERSION")]
    version: Option<String>,
    /// A payload in place of the original: JSON, @FILE, or - for the standard input
    #[arg(long, value_name = "JSON|@FILE|-")]
    payload: Option<PayloadSource>,
    /// Send the payload as any bytes, not as JSON
    #[arg(long, requires = "payload")]
    bytes: bool,
    /// Answers to the requests that the handler sends, as JSON objects one after another or in a list; - for the
    /// standard input
    #[arg(long, value_name = "FILE")]
    answers: Option<PathBuf>,
}

/// Rehearses and shows the report.
pub async fn run(arguments: RehearseArguments, session: &Session) -> Result<(), Failure> {
    let (payload, payload_base64) = corrected(arguments.payload, arguments.bytes)?;
    let answers = arguments.answers.map(|path| read_answers(&path)).transpose()?.unwrap_or_default();
    let request = RehearsalRequest { version: arguments.version, payload, payload_base64, answers };
    let report = session.client.rehearse(arguments.id, &request).await?;
    session.output.show(&report, shown)
}

fn read_answers(path: &PathBuf) -> Result<Vec<RehearsalAnswer>, Failure> {
    let mut text = String::new();
    let read = if path.as_os_str() == "-" {
        std::io::stdin().lock().read_to_string(&mut text).map(drop)
    } else {
        fs::read_to_string(path).map(|read| text = read)
    };
    read.map_err(|error| Failure::unreadable(format!("the answers in {}", path.display()), &error))?;
    answers(&text).map_err(|error| Failure::Usage {
        code: "answers_invalid",
        message: format!(
            "the answers in {} can't be read: {error}; each is an object such as \
             {{\"method\": \"POST\", \"url\": \"https://*\", \"status\": 200}}",
            path.display()
        ),
    })
}

/// A list of answers, or answers one after another.
fn answers(text: &str) -> Result<Vec<RehearsalAnswer>, serde_json::Error> {
    if text.trim_start().starts_with('[') {
        return serde_json::from_str(text);
    }
    serde_json::Deserializer::from_str(text).into_iter().collect()
}

fn shown(report: &RehearsalReport) -> String {
    let mut parts = vec![fields(facts(report))];
    if !report.events.is_empty() {
        parts.push(section("What it did, in order (nothing was sent or applied)", &events(&report.events)));
    }
    if !report.jobs.is_empty() {
        parts.push(section("Jobs that would be enqueued with its success", &jobs(report)));
    }
    if !report.values.is_empty() {
        parts.push(section("Values that would be stored with its success", &values(report)));
    }
    if !report.notes.is_empty() {
        parts.push(section("Notes that would be made with its success", &notes(report)));
    }
    for (title, text) in [("Trap", &report.trap), ("Log", &report.log)] {
        if let Some(text) = text.as_deref().filter(|text| !text.is_empty()) {
            parts.push(section(title, &text::block(text)));
        }
    }
    if let Some(template) = &report.unanswered {
        parts.push(unanswered(template));
    }
    parts.join("\n\n")
}

fn facts(report: &RehearsalReport) -> Vec<(&'static str, String)> {
    vec![
        ("Dead letter", report.dead_letter_id.to_string()),
        ("Job", report.job_id.to_string()),
        ("Kind", report.kind.clone()),
        (
            "Version",
            format!("{} ({}), {}", report.version, short_digest(&report.digest), report.version_state.as_str()),
        ),
        ("Payload", if report.payload_corrected { "as given" } else { "the original" }.to_owned()),
        ("Ended as", report.ended_as.clone()),
        ("Error", report.error_class.clone().unwrap_or_default()),
        ("Message", report.message.clone().unwrap_or_default()),
        ("Reason", report.reason.clone().unwrap_or_default()),
        ("Result", report.result.clone().unwrap_or_default()),
        ("The job would be", report.verdict.as_ref().map(verdict).unwrap_or_default()),
        ("Steps in doubt", report.steps_in_doubt.join(" ")),
        ("Ran for", span(report.run_ms)),
        ("Memory", format!("{} KiB at most", report.memory_peak_bytes >> 10)),
        ("Answers left", if report.answers_left > 0 { report.answers_left.to_string() } else { String::new() }),
    ]
}

fn verdict(verdict: &RehearsalVerdict) -> String {
    let milliseconds = |delay_ms: Option<i64>| u64::try_from(delay_ms.unwrap_or_default()).unwrap_or_default();
    let delay = format!("{} to {}", span(milliseconds(verdict.delay_min_ms)), span(milliseconds(verdict.delay_max_ms)));
    let mut words = match (verdict.job.as_str(), verdict.cause) {
        ("retry", _) => format!("tried again after {delay}"),
        ("release", _) => format!("given back without counting, for {delay}"),
        ("dead_letter", Some(cause)) => format!("a dead letter again ({})", cause.as_str()),
        (job, _) => job.to_owned(),
    };
    if verdict.unknown_class {
        words += "; its class is not in the vocabulary";
    }
    if verdict.class_mismatch {
        words += "; the vocabulary decides otherwise than the handler said";
    }
    words
}

fn events(events: &[RehearsalEvent]) -> String {
    let rows = events.iter().enumerate().map(|(at, event)| {
        let [what, which, how, more] = event_row(event);
        [(at + 1).to_string(), what, which, how, more]
    });
    table(["", "EVENT", "OF", "FOUND OR ANSWERED", "WITH"], rows)
}

fn event_row(event: &RehearsalEvent) -> [String; 4] {
    match event {
        RehearsalEvent::StepBegun { step, found, idempotency_key, result } => [
            "step begun".to_owned(),
            step.clone(),
            found.clone(),
            result.clone().or_else(|| Some(format!("key {}", idempotency_key.as_ref()?))).unwrap_or_default(),
        ],
        RehearsalEvent::StepCompleted { step, result } => {
            ["step completed".to_owned(), step.clone(), String::new(), result.clone()]
        }
        RehearsalEvent::StepTakenBack { step } => {
            ["step taken back".to_owned(), step.clone(), String::new(), String::new()]
        }
        RehearsalEvent::Request { method, url, headers, body, idempotency_key, answered, .. } => {
            let key = idempotency_key.iter().map(|key| format!("Idempotency-Key: {key}"));
            let headers = headers.iter().map(|RehearsedHeader { name, value }| format!("{name}: {value}"));
            let more = key.chain(headers).chain(body.clone()).collect::<Vec<_>>().join("; ");
            ["request".to_owned(), format!("{method} {url}"), answered.clone(), more]
        }
    }
}

fn kept_by(step: Option<&str>, kept_before: bool) -> String {
    let when = if kept_before { " (applied before)" } else { "" };
    step.map_or_else(String::new, |step| format!("{step}{when}"))
}

fn jobs(report: &RehearsalReport) -> String {
    let rows = report.jobs.iter().map(|job| {
        [
            kept_by(job.step.as_deref(), job.kept_before),
            job.kind.clone(),
            job.lane.clone().unwrap_or_default(),
            text::yes(job.has_key),
            span(u64::try_from(job.delay_ms).unwrap_or_default()),
            job.payload.clone(),
        ]
    });
    table(["STEP", "KIND", "LANE", "KEY", "DELAY", "PAYLOAD"], rows)
}

fn values(report: &RehearsalReport) -> String {
    let rows = report.values.iter().map(|value| {
        let what = value.value_bytes.map_or_else(|| "removed".to_owned(), |bytes| format!("{bytes} bytes"));
        [kept_by(value.step.as_deref(), value.kept_before), value.store.clone(), value.key.clone(), what]
    });
    table(["STEP", "STORE", "KEY", "VALUE"], rows)
}

fn notes(report: &RehearsalReport) -> String {
    let rows = report.notes.iter().map(|note| {
        let step = kept_by(note.step.as_deref(), note.kept_before);
        [step, note.job_id.to_string(), note.class.clone(), note.text.clone()]
    });
    table(["STEP", "ON JOB", "CLASS", "NOTE"], rows)
}

fn unanswered(template: &AnswerTemplate) -> String {
    // A template holds nothing that JSON can't.
    let line = serde_json::to_string(template).unwrap_or_default();
    format!(
        "It was stopped at a request that has no answer. Put one into a file for --answers, filled in:\n    {}",
        escape(&line)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r7_answers_are_read_from_a_list_and_from_lines() {
        for text in [
            r#"[{"url": "a"}, {"url": "b", "body": {"x": 1}}]"#,
            "{\"url\": \"a\"}\n\n{\"url\": \"b\", \"failure\": \"broken\"}\n",
        ] {
            let read = answers(text).unwrap();
            assert_eq!(read.iter().map(|answer| answer.url.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        }
        assert!(answers(r#"{"url": "a", "stauts": 200}"#).unwrap_err().to_string().contains("stauts"));
    }
}
