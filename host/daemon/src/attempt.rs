//! The life of an attempt: resolve the version, run the guest, decide, settle. It holds its lease until the settlement
//! is durable or the lease is lost, and it never gives a verdict up.

use std::{sync::Arc, time::Duration};

use leasehold_domain::{Effect, FencingToken, JobKey, KindPolicy, Outcome, Problem, StopReason, verdict::JobFacts};
use leasehold_sandbox::{AttemptRequest, JobView, LogLine, Prepared, ReplayView, RunReport};
use leasehold_store::{Claimed, Contents};

use crate::{
    attempt_host::StoreHost,
    clock::wall_ms,
    daemon::{Daemon, InForce},
    metrics, settlement,
};

/// How an attempt ended, before anything is decided.
pub(crate) struct Ended {
    pub(crate) outcome: Outcome,
    pub(crate) effects: Vec<Effect>,
    pub(crate) log: Vec<LogLine>,
    pub(crate) trap: Option<String>,
    pub(crate) run_ms: u64,
}

impl Ended {
    /// An attempt whose guest did not run.
    pub(crate) fn without_run(outcome: Outcome) -> Self {
        Self { outcome, effects: Vec::new(), log: Vec::new(), trap: None, run_ms: 0 }
    }
}

impl From<RunReport> for Ended {
    fn from(report: RunReport) -> Self {
        Self {
            outcome: report.outcome,
            effects: report.effects,
            log: report.log,
            trap: report.trap,
            run_ms: report.run_ms,
        }
    }
}

/// Runs one leased job to its settlement. The attempt keeps the configuration that it began with.
pub(crate) async fn run(daemon: Arc<Daemon>, in_force: Arc<InForce>, claimed: Claimed) {
    let token = claimed.token;
    let Some(policy) = in_force.config.kinds.get(&claimed.kind) else { return daemon.running.remove(token) };
    metrics::attempt_started(claimed.kind.as_str(), daemon.now_ms() - claimed.visible_at_ms);
    fail::fail_point!(&format!("attempt.begin.{}", claimed.kind));
    let ended = match resolve(&daemon, &in_force, &claimed).await {
        Ok((prepared, contents)) => run_guest(&daemon, &in_force, policy, &claimed, &prepared, contents).await,
        Err(outcome) => Ended::without_run(outcome),
    };
    daemon.running.guest_ended(token);
    metrics::attempt_ended(claimed.kind.as_str(), settlement::ended_as(&ended.outcome), ended.run_ms);
    let facts = JobFacts {
        job: token.job,
        attempt: token.attempt,
        attempts_used: claimed.attempts_used,
        releases_running: claimed.releases_running,
        cancel_requested: daemon.running.is_cancelled(token),
        unclean_stops: claimed.unclean_stops,
    };
    settlement::settle(&daemon, &in_force, policy, &facts, claimed.contents.as_ref().ok(), ended, false).await;
    daemon.running.remove(token);
    daemon.claimable.notify_one();
    if claimed.replay.is_some() {
        daemon.replay_may_have_ended();
    }
}

/// The component to run and the job's contents, or how the attempt ends without a run.
async fn resolve<'a>(
    daemon: &Daemon,
    in_force: &InForce,
    claimed: &'a Claimed,
) -> Result<(Prepared, &'a Arc<Contents>), Outcome> {
    let run_on = &claimed.run_on;
    if run_on.bound && !run_on.live {
        let message = format!("the replay is bound to {}, which was not live when the job was leased", run_on.version);
        return Err(Outcome::ReplayTargetNotLive { message });
    }
    let prepared = daemon.prepared(in_force, &run_on.version.name, run_on.digest).await.map_err(|error| {
        tracing::error!(version = %run_on.version, code = error.code(), %error, "a leased job's version can't run");
        Outcome::HandlerUnavailable { message: error.to_string() }
    })?;
    let contents = claimed.contents.as_ref().map_err(|error| {
        tracing::error!(token = %claimed.token, code = error.code(), %error, "a job's payload does not open");
        Outcome::Broke { problem: Problem::new("payload.invalid", error.to_string()) }
    })?;
    Ok((prepared, contents))
}

async fn run_guest(
    daemon: &Arc<Daemon>,
    in_force: &Arc<InForce>,
    policy: &Arc<KindPolicy>,
    claimed: &Claimed,
    prepared: &Prepared,
    contents: &Arc<Contents>,
) -> Ended {
    let job = match job_view(claimed, policy, contents) {
        Ok(job) => job,
        Err(problem) => return Ended::without_run(Outcome::Broke { problem }),
    };
    let left_ms = claimed.leased_at_ms + policy.deadline_ms - daemon.now_ms();
    let deadline = std::time::Instant::now() + Duration::from_millis(u64::try_from(left_ms).unwrap_or(0));
    let limits = in_force.config.handlers.get(&policy.handler).map(|handler| &handler.limits);
    let host = Arc::new(StoreHost {
        daemon: Arc::clone(daemon),
        in_force: Arc::clone(in_force),
        token: claimed.token,
        policy: Arc::clone(policy),
        contents: Arc::clone(contents),
        output_max_bytes: limits.map_or(0, |limits| limits.output_max_bytes),
    });
    let request = AttemptRequest { job, deadline, in_doubt: policy.in_doubt, answers: None };
    let guest = daemon.sandbox.start(prepared, request, host);
    daemon.running.guest_started(claimed.token, guest.stopper());
    guest.report().await.into()
}

fn job_view(claimed: &Claimed, policy: &KindPolicy, contents: &Contents) -> Result<JobView, Problem> {
    let key = JobKey::new(contents.key.clone()).map_err(|error| Problem::new("payload.invalid", error.to_string()))?;
    Ok(JobView {
        id: claimed.token.job,
        kind: claimed.kind.clone(),
        key,
        lane: claimed.lane.clone(),
        attempt: claimed.token.attempt,
        attempts_used: claimed.attempts_used,
        attempts_max: policy.attempts_max,
        enqueued_at_ms: claimed.enqueued_at_ms,
        deadline_ms: wall_ms() + policy.deadline_ms,
        content_type: claimed.content_type.clone(),
        payload: contents.payload.clone(),
        metadata: contents.metadata.clone(),
        replay: claimed.replay.as_ref().map(|replay| ReplayView {
            number: replay.number,
            actor: replay.actor.clone(),
            at_ms: replay.at_ms,
        }),
    })
}

/// Stops the guest of an attempt whose lease is lost.
pub(crate) fn lose_lease(daemon: &Daemon, token: FencingToken) {
    fail::fail_point!("lease.keep_running_when_lost", |_| ());
    if daemon.running.stop(token, StopReason::LeaseLost) {
        tracing::warn!(%token, "an attempt's lease is lost; its guest is stopped");
    }
}
