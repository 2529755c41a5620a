//! From an ended attempt to a durable end: decide, redact, write. A verdict that can't be written is held here and tried
//! again until it is durable or the lease is lost; the handler does not run again for it.

use std::{sync::Arc, time::Duration};

use leasehold_domain::{
    Cause, ErrorClass, JobState, KindPolicy, Outcome, StopReason, TimestampMs, Verdict,
    backoff::{Backoff, Jitter},
    verdict::{Decision, JobFacts, decide},
};
use leasehold_sandbox::LogLine;
use leasehold_store::{AttemptRecordText, Contents, DeadLetterText, Settled, Settlement};

use crate::{
    alerts::{Alert, Met},
    attempt::Ended,
    daemon::{Daemon, InForce},
    metrics,
    redact::{Redacted, Texts, redact, redact_notes},
};

/// The delay between tries to write a verdict.
pub(crate) const WRITE_BACKOFF: Backoff = Backoff { min_ms: 50, max_ms: 10_000 };
/// How an outcome is recorded.
pub(crate) const fn ended_as(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Done { .. } => "done",
        Outcome::Suppressed { .. } => "suppressed",
        Outcome::Stopped(StopReason::Cancelled) => "cancelled",
        Outcome::Stopped(StopReason::Shutdown) | Outcome::StepInProgress { .. } => "released",
        Outcome::LeaseExpired | Outcome::Stopped(StopReason::LeaseLost) => "expired",
        Outcome::DaemonStopped { .. } | Outcome::DaemonStoppedAtOnce => "daemon_stopped",
        Outcome::HandlerUnavailable { .. } | Outcome::ReplayTargetNotLive { .. } => "not_run",
        Outcome::Failed { .. }
        | Outcome::Broke { .. }
        | Outcome::DownstreamTimeout { .. }
        | Outcome::StepInDoubt { .. } => "failed",
    }
}

/// Decides about an ended attempt and settles it.
pub(crate) async fn settle(
    daemon: &Daemon,
    in_force: &Arc<InForce>,
    policy: &KindPolicy,
    facts: &JobFacts,
    contents: Option<&Arc<Contents>>,
    ended: Ended,
    only_if_expired: bool,
) {
    let ran_out = matches!(ended.outcome, Outcome::LeaseExpired | Outcome::Stopped(StopReason::LeaseLost));
    // A delay counts from the end that is recorded, however long masking takes.
    let now_ms = daemon.now_ms();
    let decision = decide(
        facts,
        &ended.outcome,
        policy,
        &in_force.config.vocabulary,
        in_force.config.queue.release,
        now_ms,
        draw_jitter(),
    );
    let released_for = released_for(&ended.outcome);
    let settlement = prepare(now_ms, in_force, policy, facts, contents, &decision, ended, only_if_expired).await;
    let Some(settled) = write(daemon, settlement).await else { return };
    match settled {
        Settled::LeaseLost => {
            // The reaper finds leases that were extended or settled meanwhile; that is no stale result.
            if !only_if_expired {
                metrics::stale();
                tracing::warn!(job = %facts.job, attempt = %facts.attempt, "a late result changed nothing: its lease was lost");
            }
        }
        Settled::Applied { ended: state, dead_letter } => {
            // Counted where it is recorded, whether the host stopped the guest or the reaper found the lease.
            if ran_out {
                metrics::lease_expired(policy.kind.as_str());
            }
            count(policy, facts, &decision, state);
            if state.is_none() && matches!(decision.verdict, Verdict::Release { .. }) {
                tracing::info!(job = %facts.job, attempt = %facts.attempt, why = released_for, "an attempt was given back; it does not count");
            }
            if let (Some(dead_letter), Verdict::Die { cause, .. }) = (dead_letter, &decision.verdict) {
                report_death(policy, facts, &decision, dead_letter, *cause);
                // It may have made a page.
                daemon.alerts.due.notify_one();
            }
            if state.is_some() {
                daemon.job_ended(facts.job);
            }
        }
    }
}

/// The settlement with all of its text redacted, before anything is written.
#[allow(clippy::too_many_arguments, reason = "everything that is known of the attempt, used once")]
async fn prepare(
    now_ms: TimestampMs,
    in_force: &Arc<InForce>,
    policy: &KindPolicy,
    facts: &JobFacts,
    contents: Option<&Arc<Contents>>,
    decision: &Decision,
    ended: Ended,
    only_if_expired: bool,
) -> Settlement {
    let recorded_as = ended_as(&ended.outcome);
    let unclean_stops = facts.unclean_stops_after(&ended.outcome);
    let mut verdict = decision.verdict.clone();
    let dies = matches!(verdict, Verdict::Die { .. });
    let Redacted { texts, view, key, .. } = redact(in_force, policy, contents, texts(decision, &ended), dies).await;
    if let (Verdict::Suppress { reason }, Some(masked)) = (&mut verdict, texts.reason) {
        *reason = masked;
    }
    Settlement {
        token: leasehold_domain::FencingToken { job: facts.job, attempt: facts.attempt },
        now_ms,
        attempt: AttemptRecordText {
            ended_as: if matches!(verdict, Verdict::Release { .. }) { "released" } else { recorded_as },
            error_class: decision.class().map(|class| class.as_str().to_owned()),
            message: texts.message,
            log: texts.log,
            trap: texts.trap,
        },
        verdict,
        effects: redact_notes(in_force, policy, contents, ended.effects).await,
        dead_letter: dies.then(|| DeadLetterText {
            view,
            masked_key: key,
            keep_original: policy.keep_original,
            page_after: in_force.config.alerts.page_after,
        }),
        only_if_expired,
        priority_step_ms: in_force.config.queue.priority_step_ms,
        unclean_stops,
    }
}

/// What an attempt leaves in words, not masked yet.
fn texts(decision: &Decision, ended: &Ended) -> Texts {
    Texts {
        message: decision.problem.as_ref().map(|problem| problem.message.clone()),
        reason: match &decision.verdict {
            Verdict::Suppress { reason } => Some(reason.clone()),
            _ => None,
        },
        log: (!ended.log.is_empty()).then(|| log_text(&ended.log)),
        trap: ended.trap.clone(),
    }
}

pub(crate) fn log_text(lines: &[LogLine]) -> String {
    let lines: Vec<_> = lines.iter().map(|line| format!("{}: {}", line.level.as_str(), line.text)).collect();
    lines.join("\n")
}

/// Writes until it is durable or the lease is lost. The guest has ended, so nothing runs twice for a failed write. Nothing
/// comes back when nothing will be written any more: the lease stays for the next start, which gives it back.
async fn write(daemon: &Daemon, settlement: Settlement) -> Option<Settled> {
    let settlement = Arc::new(settlement);
    let mut failures = 0;
    loop {
        let begun_ms = daemon.now_ms();
        match daemon.store.settle(Arc::clone(&settlement)).await {
            Ok(settled) => {
                metrics::settled(daemon.now_ms() - begun_ms);
                if failures > 0 {
                    daemon.alerts.clear(Alert::VerdictsHeld, &settlement.token.to_string());
                }
                return Some(settled);
            }
            Err(error) => {
                failures += 1;
                metrics::write_failed(error.code());
                tracing::error!(token = %settlement.token, code = error.code(), %error, failures, "a settlement could not be written; it is held and tried again");
                if error.is_final() {
                    return None;
                }
                let holder = settlement.token.to_string();
                let met = Met::new(Alert::VerdictsHeld, error.code(), format!("{holder}: {error}"));
                let met = Met { holder, ..met };
                daemon.alerts.raise(met, daemon.now_ms());
                let delay_ms = WRITE_BACKOFF.delay_ms(failures, draw_jitter());
                tokio::time::sleep(Duration::from_millis(u64::try_from(delay_ms).unwrap_or(0))).await;
            }
        }
    }
}

/// Why an attempt is given back, if it is.
const fn released_for(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::StepInProgress { .. } => "step_in_progress",
        Outcome::Stopped(_) => "shutdown",
        _ => "handler_unavailable",
    }
}

fn count(policy: &KindPolicy, facts: &JobFacts, decision: &Decision, state: Option<JobState>) {
    let kind = policy.kind.as_str();
    if decision.unknown_class {
        metrics::unknown_class(kind);
    }
    if decision.mismatch {
        metrics::class_mismatch(kind);
    }
    if let Some(state) = state {
        metrics::job_ended(kind, state.as_str(), facts.attempts_used);
    }
}

fn report_death(policy: &KindPolicy, facts: &JobFacts, decision: &Decision, dead_letter: i64, cause: Cause) {
    metrics::dead_letter(policy.kind.as_str(), cause.as_str());
    let class = decision.class().map_or("unclassified", ErrorClass::as_str);
    tracing::warn!(
        job = %facts.job, kind = %policy.kind, dead_letter, cause = cause.as_str(), class,
        "a job died; it is kept as a dead letter"
    );
}

/// A draw for a backoff. Nothing secret hangs on it, so it costs no call of the system for each attempt.
pub(crate) fn draw_jitter() -> Jitter {
    Jitter::from_bits(fastrand::u64(..))
}
