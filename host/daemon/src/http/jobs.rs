//! Jobs: one goes in; they are listed, shown, cancelled and waited for.

use std::time::Duration;

use axum::{
    Extension, Json,
    body::Body,
    extract::{Path, State},
    response::{IntoResponse, Response},
};
use http::{StatusCode, Uri};
use leasehold_api::{EnqueueRequest, JobFilter, JobStateAnswer, JobSummary, JobView, Page, WaitQuery};
use leasehold_domain::{JobId, JobState, Kind};
use leasehold_store::{Cancelled, JobRecord};
use tokio::sync::broadcast::error::RecvError;

use super::{
    Api, body, caller, new_job,
    paging::{before, page, page_size},
    refusal::{Refusal, conflict, malformed, not_found},
    views,
};
use crate::config::Actor;

/// How long a call waits that does not say.
const WAIT_DEFAULT_MS: u64 = 30_000;
/// How long a call waits at most.
const WAIT_MAX_MS: u64 = 300_000;

/// How long a call waits, as asked for within its bound.
pub(super) fn wait_ms(asked_ms: Option<u64>) -> u64 {
    asked_ms.unwrap_or(WAIT_DEFAULT_MS).min(WAIT_MAX_MS)
}

/// The id in a path.
pub(super) fn id(text: &str) -> Result<i64, Refusal> {
    text.parse().map_err(|_| malformed(format!("{text:?} is no id; an id is a whole number")))
}

pub(super) async fn enqueue(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    body: Body,
) -> Result<Response, Refusal> {
    let request: EnqueueRequest = body::read_json(body, &api).await?;
    let config = api.daemon.config();
    let job = new_job::check(request, &config, api.daemon.now_ms())?;
    let answers = api.daemon.enqueue(vec![job], &actor.name).await?;
    let answer = answers.first().ok_or_else(|| conflict("unanswered", "the queue gave no answer"))?;
    let answer = new_job::outcome(answer, &config)?;
    let status = if answer.duplicate { StatusCode::OK } else { StatusCode::CREATED };
    Ok((status, Json(answer)).into_response())
}

pub(super) async fn list(State(api): State<Api>, uri: Uri) -> Result<Json<Page<JobSummary>>, Refusal> {
    let query: JobFilter = body::query(&uri)?;
    if let Some(key) = &query.key {
        return with_key(&api, &query, key).await.map(Json);
    }
    let filter = leasehold_store::JobFilter {
        kind: query.kind,
        state: query.state,
        lane: query.lane,
        before: before(query.cursor.as_deref())?,
    };
    let listed = api.daemon.store().jobs(filter, page_size(query.limit)?).await?;
    Ok(Json(page(listed, views::job_summary)))
}

/// The page of the one job that has the key, if it is also what else was asked for.
async fn with_key(api: &Api, query: &JobFilter, key: &str) -> Result<Page<JobSummary>, Refusal> {
    let needs_kind = || malformed("a key is unique within its kind only: name the kind as well");
    let kind =
        Kind::new(query.kind.as_deref().ok_or_else(needs_kind)?).map_err(|error| malformed(error.to_string()))?;
    let store = api.daemon.store();
    let Some(id) = store.job_with_key(&kind, key).await? else { return Ok(Page { items: vec![], next_cursor: None }) };
    let found = store.job(id).await?.map(|job| views::job_summary(job.summary));
    let is_asked_for = |job: &JobSummary| {
        query.state.is_none_or(|state| state == job.state) && (query.lane.is_none() || query.lane == job.lane)
    };
    Ok(Page { items: found.into_iter().filter(is_asked_for).collect(), next_cursor: None })
}

pub(super) async fn show(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(path): Path<String>,
) -> Result<Json<JobView>, Refusal> {
    let job = find(&api, &actor, &path).await?;
    // A result may be anything, so only whoever enqueued the job is given it.
    let is_own_and_done = job.summary.enqueued_by == actor.name && job.summary.state == JobState::Done;
    let store = api.daemon.store();
    // Without the sealing key the rest of the job is shown all the same.
    let result =
        if is_own_and_done && store.key_problem().is_none() { store.job_result(job.summary.id).await? } else { None };
    let policy = Kind::new(&*job.summary.kind).ok().and_then(|kind| api.daemon.config().kinds.get(&kind).cloned());
    Ok(Json(views::job(job, policy.map(|policy| policy.attempts_max), result.as_deref())))
}

/// The job of that id, for those who may see it.
async fn find(api: &Api, actor: &Actor, path: &str) -> Result<JobRecord, Refusal> {
    let id = JobId(id(path)?);
    let job = api.daemon.store().job(id).await?.ok_or_else(|| no_job(id))?;
    caller::may_see(actor, &job.summary.enqueued_by)?;
    Ok(job)
}

fn no_job(id: JobId) -> Refusal {
    not_found(format!("there is no job {id}; a job that ended long ago is no longer kept"))
}

pub(super) async fn cancel(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(path): Path<String>,
) -> Result<Json<JobStateAnswer>, Refusal> {
    let id = JobId(id(&path)?);
    match api.daemon.cancel(id, &actor.name).await? {
        Cancelled::Now => Ok(Json(state_answer(id, JobState::Cancelled))),
        Cancelled::WhenStopped(_) => Ok(Json(state_answer(id, JobState::Leased))),
        Cancelled::AlreadyEnded(state) => {
            let detail =
                format!("job {id} has ended as {}; only a job that has not ended can be cancelled", state.as_str());
            Err(conflict("already_ended", detail).with("state", state.as_str()).into())
        }
        Cancelled::NotFound => Err(no_job(id)),
    }
}

fn state_answer(id: JobId, state: JobState) -> JobStateAnswer {
    JobStateAnswer { id: id.0, state, ended: state.is_end() }
}

/// Answers when the job has ended, the time is over or the daemon stops, whichever comes first.
pub(super) async fn wait(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(path): Path<String>,
    uri: Uri,
) -> Result<Json<JobStateAnswer>, Refusal> {
    let WaitQuery { timeout_ms } = body::query(&uri)?;
    let until = tokio::time::Instant::now() + Duration::from_millis(wait_ms(timeout_ms));
    let id = JobId(id(&path)?);
    // Listening begins before the job is looked at, so that an end in between is not missed.
    let mut ends = api.daemon.ended_jobs();
    let mut stopping = api.stopping.clone();
    let mut goes_on = true;
    loop {
        let job = find(&api, &actor, &path).await?;
        if job.summary.state.is_end() || !goes_on {
            return Ok(Json(state_answer(id, job.summary.state)));
        }
        goes_on = tokio::select! {
            () = ended(id, &mut ends) => true,
            () = tokio::time::sleep_until(until) => false,
            _ = stopping.wait_for(|stopping| *stopping) => false,
        };
    }
}

/// Resolves when the job may have ended: also when so many others have that its own end may have been missed.
async fn ended(id: JobId, ends: &mut tokio::sync::broadcast::Receiver<JobId>) {
    loop {
        match ends.recv().await {
            Ok(ended) if ended != id => {}
            Ok(_) | Err(RecvError::Lagged(_) | RecvError::Closed) => return,
        }
    }
}
