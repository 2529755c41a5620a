//! The report of a rehearsal: what happened and what would become of the job, redacted before any of it is shown. What
//! can't be masked, or not in time, is not shown at all.

use std::sync::Arc;

use leasehold_api::{
    AnswerTemplate, RehearsalEvent, RehearsalReport, RehearsalVerdict, RehearsedHeader, RehearsedJob, RehearsedNote,
    RehearsedValue,
};
use leasehold_domain::{
    Effect, Kind, NewJob, Outcome, TimestampMs, Verdict,
    backoff::Jitter,
    policy::PayloadFormat,
    redaction::{MASK_BEGINS, Masker, REDACTED, Rules},
    verdict::{Decision, JobFacts, decide},
};
use leasehold_sandbox::{OutboundRequest, RunReport};

use super::{
    Rehearsal, RehearsalError,
    host::{Event, Found, Recorded},
    next_attempt,
};
use crate::{config::Config, redact::with_maskers, settlement};

/// Headers that carry credentials by their nature, whatever the policy names.
const SENSITIVE_HEADERS: [&str; 5] = ["authorization", "proxy-authorization", "cookie", "x-api-key", "api-key"];
const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// What stands for a body or a result beyond those that are shown.
const NOT_SHOWN: &str = "\"[not shown: the rehearsal holds too much]\"";

/// The report, redacted by all that is known of the job: by the payload that ran, and by the original.
pub(super) async fn make(
    rehearsal: Rehearsal,
    recorded: Recorded,
    ended: RunReport,
    now_ms: TimestampMs,
) -> Result<RehearsalReport, RehearsalError> {
    let contents: Vec<_> = [&rehearsal.contents].into_iter().chain(&rehearsal.original).cloned().collect();
    let (in_force, policy) = (Arc::clone(&rehearsal.in_force), rehearsal.policy.clone());
    let decided = Decided::of(&rehearsal, &ended.outcome, now_ms);
    let masked = with_maskers(&in_force, &policy, contents, move |maskers| {
        let config = &rehearsal.in_force.config;
        let view = View { maskers, rules: config.redaction_rules(&rehearsal.policy.kind), config };
        view.report(&rehearsal, &recorded, &ended, &decided)
    });
    masked.await.ok_or_else(|| {
        tracing::error!("a rehearsal's report could not be masked, or not in time; it is not shown");
        RehearsalError::NotRedacted
    })
}

/// What would become of the job, at the shortest and at the longest delay.
struct Decided {
    now_ms: TimestampMs,
    soonest: Decision,
    latest: Decision,
}

impl Decided {
    fn of(rehearsal: &Rehearsal, outcome: &Outcome, now_ms: TimestampMs) -> Self {
        let facts = JobFacts {
            job: rehearsal.found.job,
            attempt: next_attempt(&rehearsal.found),
            attempts_used: 1,
            releases_running: 0,
            cancel_requested: false,
            unclean_stops: 0,
        };
        let Config { vocabulary, queue, .. } = &*rehearsal.in_force.config;
        let at =
            |draw| decide(&facts, outcome, &rehearsal.policy, vocabulary, queue.release, now_ms, Jitter::new(draw));
        Self { now_ms, soonest: at(0.0), latest: at(1.0) }
    }

    fn verdict(&self) -> RehearsalVerdict {
        let Decision { verdict, unknown_class, mismatch, .. } = &self.soonest;
        let (job, cause) = match verdict {
            Verdict::Complete { .. } => ("done", None),
            Verdict::Suppress { .. } => ("suppressed", None),
            Verdict::Retry { .. } => ("retry", None),
            Verdict::Release { .. } => ("release", None),
            Verdict::Die { cause, .. } => ("dead_letter", Some(*cause)),
            Verdict::Cancel => ("cancelled", None),
        };
        RehearsalVerdict {
            job: job.to_owned(),
            cause,
            delay_min_ms: self.delay_ms(&self.soonest),
            delay_max_ms: self.delay_ms(&self.latest),
            unknown_class: *unknown_class,
            class_mismatch: *mismatch,
        }
    }

    fn delay_ms(&self, decision: &Decision) -> Option<i64> {
        match decision.verdict {
            Verdict::Retry { visible_at_ms, .. } | Verdict::Release { visible_at_ms } => {
                Some(visible_at_ms - self.now_ms)
            }
            _ => None,
        }
    }
}

/// What would become real with the job's success.
#[derive(Default)]
struct Kept {
    jobs: Vec<RehearsedJob>,
    values: Vec<RehearsedValue>,
    notes: Vec<RehearsedNote>,
}

/// Everything that a report is masked with.
struct View<'a> {
    maskers: &'a [Masker],
    rules: &'a Rules,
    config: &'a Config,
}

impl View<'_> {
    fn report(
        &self,
        rehearsal: &Rehearsal,
        recorded: &Recorded,
        ended: &RunReport,
        decided: &Decided,
    ) -> RehearsalReport {
        let is_unanswered = recorded.is_unanswered;
        let (ended_as, problem) = if is_unanswered {
            ("unanswered", None)
        } else {
            (settlement::ended_as(&ended.outcome), decided.soonest.problem.as_ref())
        };
        let (result, reason) = match &ended.outcome {
            Outcome::Done { output } => (output.as_deref(), None),
            Outcome::Suppressed { reason } => (None, Some(reason)),
            _ => (None, None),
        };
        let Kept { jobs, values, notes } = self.effects(rehearsal, &recorded.events, &ended.effects);
        RehearsalReport {
            dead_letter_id: rehearsal.id.0,
            job_id: rehearsal.found.job.0,
            kind: rehearsal.policy.kind.as_str().to_owned(),
            version: rehearsal.version.version.to_string(),
            digest: rehearsal.version.digest.to_string(),
            version_state: rehearsal.version.state,
            payload_corrected: rehearsal.is_corrected,
            ended_as: ended_as.to_owned(),
            error_class: problem.map(|problem| problem.class.as_str().to_owned()),
            message: problem.map(|problem| self.text(&problem.message)),
            reason: reason.map(|reason| self.text(reason)),
            result: result.map(|result| self.document(self.rules, result)),
            verdict: (!is_unanswered).then(|| decided.verdict()),
            unanswered: is_unanswered.then(|| self.template(recorded.events.last())).flatten(),
            answers_left: recorded.answers_left() as u64,
            steps_in_doubt: if is_unanswered { Vec::new() } else { in_doubt(&recorded.events) },
            events: self.events(&recorded.events),
            jobs,
            values,
            notes,
            log: (!ended.log.is_empty()).then(|| self.text(&settlement::log_text(&ended.log))),
            trap: ended.trap.as_deref().map(|trap| self.text(trap)),
            run_ms: ended.run_ms,
            memory_peak_bytes: ended.memory_peak_bytes as u64,
        }
    }

    fn text(&self, text: &str) -> String {
        self.maskers.iter().fold(text.to_owned(), |text, masker| masker.text(&text))
    }

    fn document(&self, rules: &Rules, document: &[u8]) -> String {
        self.payload(rules, document, PayloadFormat::Json)
    }

    /// A document as one masker left it is JSON, for the next one to mask further.
    fn payload(&self, rules: &Rules, payload: &[u8], format: PayloadFormat) -> String {
        let (mut view, mut format) = (payload.to_vec(), format);
        for masker in self.maskers {
            view = masker.document(rules, &view, format).into_bytes();
            format = PayloadFormat::Json;
        }
        String::from_utf8_lossy(&view).into_owned()
    }

    fn shown(&self, document: Option<&Vec<u8>>) -> String {
        document.map_or_else(|| NOT_SHOWN.to_owned(), |document| self.document(self.rules, document))
    }

    fn named(&self, name: &str, value: &str) -> String {
        self.maskers.iter().fold(value.to_owned(), |value, masker| masker.named(self.rules, name, &value))
    }

    /// A URL's parameters are masked by their names, and the whole by its values.
    fn url(&self, url: &str) -> String {
        let Some((before, query)) = url.split_once('?') else { return self.text(url) };
        let parameters = query.split('&').map(|parameter| match parameter.split_once('=') {
            Some((name, value)) => format!("{name}={}", self.named(name, value)),
            None => parameter.to_owned(),
        });
        self.text(&format!("{before}?{}", parameters.collect::<Vec<_>>().join("&")))
    }

    fn events(&self, events: &[Event]) -> Vec<RehearsalEvent> {
        let step_keys: Vec<_> = events.iter().filter_map(step_key).collect();
        events.iter().map(|event| self.event(event, &step_keys)).collect()
    }

    fn event(&self, event: &Event, step_keys: &[&str]) -> RehearsalEvent {
        match event {
            Event::Begun { step, found, idempotency_key } => RehearsalEvent::StepBegun {
                step: step.to_string(),
                found: found_as(found).to_owned(),
                idempotency_key: matches!(found, Found::Fresh | Found::InDoubt).then(|| idempotency_key.clone()),
                result: match found {
                    Found::Applied(result) => Some(self.shown(result.as_ref())),
                    _ => None,
                },
            },
            Event::Completed { step, result, .. } => {
                RehearsalEvent::StepCompleted { step: step.to_string(), result: self.shown(result.as_ref()) }
            }
            Event::TakenBack { step } => RehearsalEvent::StepTakenBack { step: step.to_string() },
            Event::Request { request, answered } => self.request(request, answered, step_keys),
        }
    }

    fn request(&self, request: &OutboundRequest, answered: &str, step_keys: &[&str]) -> RehearsalEvent {
        let own_key = |(name, value): &(String, String)| {
            (name.eq_ignore_ascii_case(IDEMPOTENCY_KEY) && step_keys.contains(&value.as_str())).then(|| value.clone())
        };
        let headers = request.headers.iter().filter(|header| own_key(header).is_none());
        let value = |name: &str, value: &str| {
            if is_sensitive(name) { REDACTED.to_owned() } else { self.named(name, value) }
        };
        RehearsalEvent::Request {
            method: request.method.clone(),
            url: self.url(&request.url),
            headers: headers
                .map(|(name, given)| RehearsedHeader { name: name.clone(), value: value(name, given) })
                .collect(),
            body: (request.body_bytes > 0).then(|| self.shown(request.body.as_ref())),
            body_bytes: request.body_bytes,
            idempotency_key: request.headers.iter().find_map(own_key),
            answered: answered.to_owned(),
        }
    }

    /// What was masked in the URL stands for anything, so that the template matches as it is.
    fn template(&self, event: Option<&Event>) -> Option<AnswerTemplate> {
        let Some(Event::Request { request, .. }) = event else { return None };
        Some(AnswerTemplate {
            method: request.method.clone(),
            url: anything_for_masks(&self.url(&request.url)),
            status: 200,
            headers: std::collections::BTreeMap::new(),
            body_text: String::new(),
        })
    }

    /// What becomes real with the job's success: what earlier attempts' steps have kept, then this run's.
    fn effects(&self, rehearsal: &Rehearsal, events: &[Event], outside_steps: &[Effect]) -> Kept {
        let before = rehearsal.found.kept.iter().map(|(step, effect)| (Some(step.as_str()), true, effect));
        let of_steps = events.iter().flat_map(|event| match event {
            Event::Completed { step, effects, .. } => {
                effects.iter().map(|effect| (Some(step.as_str()), false, effect)).collect()
            }
            _ => Vec::new(),
        });
        let outside = outside_steps.iter().map(|effect| (None, false, effect));
        let mut kept = Kept::default();
        for (step, kept_before, effect) in before.chain(of_steps).chain(outside) {
            let step = step.map(str::to_owned);
            let value = |store: &str, key: &str, value_bytes| {
                let (store, key) = (store.to_owned(), self.text(key));
                RehearsedValue { step: step.clone(), kept_before, store, key, value_bytes }
            };
            match effect {
                Effect::Enqueue(job) => kept.jobs.push(self.job(job, step, kept_before)),
                Effect::Set { store, key, value: set } => kept.values.push(value(store, key, Some(set.len() as u64))),
                Effect::Delete { store, key } => kept.values.push(value(store, key, None)),
                Effect::Annotate(note) => kept.notes.push(RehearsedNote {
                    step,
                    kept_before,
                    job_id: note.job.0,
                    class: note.class.as_str().to_owned(),
                    text: self.text(&note.text),
                }),
            }
        }
        kept
    }

    fn job(&self, job: &NewJob, step: Option<String>, kept_before: bool) -> RehearsedJob {
        RehearsedJob {
            step,
            kept_before,
            kind: job.kind.as_str().to_owned(),
            lane: job.lane.as_ref().map(|lane| self.text(lane.as_str())),
            has_key: job.key.is_some(),
            delay_ms: job.delay_ms,
            payload: self.payload(self.config.redaction_rules(&job.kind), &job.payload, self.format(&job.kind)),
        }
    }

    fn format(&self, kind: &Kind) -> PayloadFormat {
        self.config.kinds.get(kind).map_or(PayloadFormat::Bytes, |policy| policy.payload)
    }
}

fn is_sensitive(header: &str) -> bool {
    SENSITIVE_HEADERS.iter().any(|name| header.eq_ignore_ascii_case(name))
}

fn step_key(event: &Event) -> Option<&str> {
    match event {
        Event::Begun { idempotency_key, .. } => Some(idempotency_key),
        _ => None,
    }
}

const fn found_as(found: &Found) -> &'static str {
    match found {
        Found::Fresh => "fresh",
        Found::InDoubt => "in_doubt",
        Found::Applied(_) => "applied",
        Found::Conflict => "conflict",
    }
}

/// The steps that were begun and neither completed nor taken back.
fn in_doubt(events: &[Event]) -> Vec<String> {
    let is_ended = |name: &str| {
        events.iter().any(|event| match event {
            Event::Completed { step, .. } | Event::TakenBack { step } => step.as_str() == name,
            _ => false,
        })
    };
    let begun = events.iter().filter_map(|event| match event {
        Event::Begun { step, found: Found::Fresh | Found::InDoubt, .. } => Some(step.to_string()),
        _ => None,
    });
    begun.filter(|name| !is_ended(name)).collect()
}

/// A text in which each mask stands for anything.
fn anything_for_masks(masked: &str) -> String {
    let (mut pattern, mut rest) = (String::new(), masked);
    while let Some(begin) = rest.find(MASK_BEGINS) {
        pattern += &rest[..begin];
        pattern.push('*');
        rest = rest[begin..].find(']').map_or("", |end| &rest[begin + end + 1..]);
    }
    pattern + rest
}

#[cfg(test)]
mod tests {
    use leasehold_domain::StepName;

    use super::*;

    fn step(name: &str) -> StepName {
        StepName::new(name).unwrap()
    }

    #[test]
    fn r7_what_is_masked_in_a_template_stands_for_anything() {
        let masked = "https://a.example/[redacted:email ~16 #k3fza2xq]/x?token=[redacted:secret]&n=1&k=[redacted]";
        assert_eq!(anything_for_masks(masked), "https://a.example/*/x?token=*&n=1&k=*");
        assert_eq!(anything_for_masks("https://a.example/[1]"), "https://a.example/[1]");
    }

    #[test]
    fn r7_headers_that_carry_credentials_are_masked_whatever_the_policy_names() {
        assert!(["Authorization", "cookie", "X-Api-Key"].into_iter().all(is_sensitive));
        assert!(!is_sensitive("content-type"));
    }

    #[test]
    fn r7_a_step_that_was_begun_and_not_ended_is_in_doubt() {
        let begun = |name, found| Event::Begun { step: step(name), found, idempotency_key: String::new() };
        let events = [
            begun("completed", Found::InDoubt),
            Event::Completed { step: step("completed"), result: None, effects: Vec::new() },
            begun("taken-back", Found::Fresh),
            Event::TakenBack { step: step("taken-back") },
            begun("applied", Found::Applied(None)),
            begun("left", Found::Fresh),
        ];
        assert_eq!(in_doubt(&events), ["left"]);
    }
}
