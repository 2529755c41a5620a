//! The sections `[kinds.NAME]`: the rules of each kind, with what has to hold between its figures. It never knows whether
//! the kind's handler is stored.

use std::collections::{BTreeMap, BTreeSet};

use leasehold_domain::{
    DurationMs, HandlerName, InDoubtPolicy, Kind, KindPolicy, backoff::Backoff, policy::PayloadFormat, redaction::Rules,
};

use super::{
    reader::{Entry, Section, one_of},
    redaction::Redaction,
    units::duration_text,
};

const SECOND_MS: DurationMs = 1_000;
const MINUTE_MS: DurationMs = 60 * SECOND_MS;
const DAY_MS: DurationMs = 24 * 60 * MINUTE_MS;

/// One kind as it was read.
pub(super) struct KindRead {
    pub(super) policy: KindPolicy,
    pub(super) rules: Rules,
}

/// Reads all kinds. The handlers' section tells which handlers there are.
pub(super) fn read(section: &Section<'_>, handlers: &Section<'_>, redaction: &Redaction) -> BTreeMap<Kind, KindRead> {
    let handlers: BTreeSet<String> = handlers.entries().into_iter().map(|entry| entry.name).collect();
    section.entries().iter().filter_map(|entry| read_kind(entry, &handlers, redaction)).collect()
}

/// Everything of the kind is read and checked before a missing name or owner makes it none.
fn read_kind(entry: &Entry<'_>, handlers: &BTreeSet<String>, redaction: &Redaction) -> Option<(Kind, KindRead)> {
    let section = entry.section();
    let kind = Kind::new(&*entry.name).map_err(|error| entry.error(error.to_string())).ok();
    let handler = section.required("handler", "the name of a handler").and_then(|name| read_handler(&name, handlers));
    let owner = section.required("owner", "who answers for the kind").and_then(|owner| read_owner(&owner));
    let rules = redaction.rules_of_kind(&section.section("redact"));
    let figures = Figures::read(&section);
    check_heartbeat(&section, &figures);
    section.refuse_unknown();
    let policy = figures.with(kind?, handler?, owner?);
    Some((policy.kind.clone(), KindRead { policy, rules }))
}

fn read_handler(entry: &Entry<'_>, handlers: &BTreeSet<String>) -> Option<HandlerName> {
    let name = entry.text()?;
    if !handlers.contains(&name) {
        let allowed = one_of(handlers.iter().map(|handler| format!("{handler:?}")));
        entry.error(format!(
            "there is no section [handlers.{name}], which may be empty but has to be there; allowed is {allowed}"
        ));
    }
    HandlerName::new(name).ok()
}

fn read_owner(entry: &Entry<'_>) -> Option<String> {
    let owner = entry.text()?;
    if owner.trim().is_empty() {
        entry.error("is empty; required is who answers for the kind");
        return None;
    }
    Some(owner)
}

/// A kind's figures and choices.
struct Figures {
    payload: PayloadFormat,
    visibility_timeout_ms: DurationMs,
    heartbeat_ms: DurationMs,
    deadline_ms: DurationMs,
    attempts_max: u32,
    backoff: Backoff,
    retry_after_max_ms: DurationMs,
    concurrency: Option<u32>,
    lane_concurrency: Option<u32>,
    cooldown: bool,
    in_doubt: InDoubtPolicy,
    keep_original: bool,
}

impl Figures {
    fn read(section: &Section<'_>) -> Self {
        let payloads = [("json", PayloadFormat::Json), ("bytes", PayloadFormat::Bytes)];
        let policies = [("begin-again", InDoubtPolicy::BeginAgain), ("dead-letter", InDoubtPolicy::DeadLetter)];
        let at_once = |name| section.entry(name).and_then(|entry| entry.number(&(1..=1_000_000)));
        Self {
            payload: section.choice("payload", PayloadFormat::Json, &payloads),
            visibility_timeout_ms: section.duration_ms("visibility_timeout", 30 * SECOND_MS, &(100..=7 * DAY_MS)),
            heartbeat_ms: section.duration_ms("heartbeat", 5 * SECOND_MS, &(10..=DAY_MS)),
            deadline_ms: section.duration_ms("deadline", 5 * MINUTE_MS, &(10..=7 * DAY_MS)),
            attempts_max: section.number("attempts", 8, &(1..=1_000)),
            backoff: read_backoff(&section.section("backoff")),
            retry_after_max_ms: section.duration_ms("retry_after_max", 60 * MINUTE_MS, &(0..=30 * DAY_MS)),
            concurrency: at_once("concurrency"),
            lane_concurrency: at_once("lane_concurrency"),
            cooldown: section.boolean("cooldown", false),
            in_doubt: section.choice("in_doubt", InDoubtPolicy::DeadLetter, &policies),
            keep_original: section.boolean("keep_original", true),
        }
    }

    fn with(self, kind: Kind, handler: HandlerName, owner: String) -> KindPolicy {
        KindPolicy {
            kind,
            handler,
            owner,
            payload: self.payload,
            visibility_timeout_ms: self.visibility_timeout_ms,
            heartbeat_ms: self.heartbeat_ms,
            deadline_ms: self.deadline_ms,
            attempts_max: self.attempts_max,
            backoff: self.backoff,
            retry_after_max_ms: self.retry_after_max_ms,
            concurrency: self.concurrency,
            lane_concurrency: self.lane_concurrency,
            cooldown: self.cooldown,
            in_doubt: self.in_doubt,
            keep_original: self.keep_original,
        }
    }
}

fn read_backoff(section: &Section<'_>) -> Backoff {
    let range_ms = 1..=30 * DAY_MS;
    let backoff = Backoff {
        min_ms: section.duration_ms("min", SECOND_MS, &range_ms),
        max_ms: section.duration_ms("max", 10 * MINUTE_MS, &range_ms),
    };
    if backoff.min_ms > backoff.max_ms {
        let (min, max) = (duration_text(backoff.min_ms), duration_text(backoff.max_ms));
        section.error("min", format!("min {min} is above max {max}; allowed is min up to max"));
    }
    section.refuse_unknown();
    backoff
}

/// Two heartbeats may fail before a lease runs out under a guest that is well.
fn check_heartbeat(section: &Section<'_>, figures: &Figures) {
    let least_ms = 3 * figures.heartbeat_ms;
    if figures.visibility_timeout_ms <= least_ms {
        section.error(
            "visibility_timeout",
            format!(
                "visibility_timeout {} is not above 3 × heartbeat {} = {}; raise the one or lower the other",
                duration_text(figures.visibility_timeout_ms),
                duration_text(figures.heartbeat_ms),
                duration_text(least_ms),
            ),
        );
    }
}
