//! Dead letters: listed and shown redacted, replayed and discarded. Whether a replay may go ahead is decided in the
//! transaction that makes it.

use axum::{
    Extension, Json,
    body::Body,
    extract::{Path, State},
};
use http::{StatusCode, Uri};
use leasehold_api::{
    DeadLetterFilter, DeadLetterState, DeadLetterSummary, DeadLetterView, DiscardRequest, Page, Problem, ReplayAnswer,
    ReplayRequest, StepResolution,
};
use leasehold_domain::{DeadLetterId, HandlerVersion, StepName};
use leasehold_store::{DeadLetter, Discarded, Resolution};

use super::{
    Api, body, jobs, new_job,
    paging::{before, page, page_size},
    refusal::{Refusal, conflict, invalid, not_found},
    versions, views,
    words::reason,
};
use crate::{
    config::{Actor, Config},
    operations::ReplayWish,
};

pub(super) async fn list(State(api): State<Api>, uri: Uri) -> Result<Json<Page<DeadLetterSummary>>, Refusal> {
    let query: DeadLetterFilter = body::query(&uri)?;
    let filter = leasehold_store::DeadLetterFilter {
        kind: query.kind,
        cause: query.cause,
        error_class: query.class,
        state: Some(query.state.unwrap_or(DeadLetterState::Open).as_str().to_owned()),
        before: before(query.cursor.as_deref())?,
    };
    let listed = api.daemon.store().dead_letters(filter, page_size(query.limit)?).await?;
    Ok(Json(page(listed, views::dead_letter_summary)))
}

pub(super) async fn show(State(api): State<Api>, Path(path): Path<String>) -> Result<Json<DeadLetterView>, Refusal> {
    find(&api, DeadLetterId(jobs::id(&path)?)).await.map(views::dead_letter).map(Json)
}

pub(super) async fn find(api: &Api, id: DeadLetterId) -> Result<DeadLetter, Refusal> {
    api.daemon.store().dead_letter(id).await?.ok_or_else(|| no_letter(id))
}

pub(super) fn no_letter(id: DeadLetterId) -> Refusal {
    not_found(format!("there is no dead letter {id}"))
}

pub(super) async fn replay(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(path): Path<String>,
    body: Body,
) -> Result<Json<ReplayAnswer>, Refusal> {
    let id = DeadLetterId(jobs::id(&path)?);
    let asked: ReplayRequest = body::read_json(body, &api).await?;
    let version = versions::of_letter(&api, id, asked.version.as_deref()).await?;
    let wish = wish(asked, version, &api.daemon.config())?;
    let answer = api.daemon.replay(id, wish, &actor.name).await?.ok_or_else(|| no_letter(id))?;
    replayed(id, answer).map(Json)
}

fn wish(asked: ReplayRequest, version: Option<HandlerVersion>, config: &Config) -> Result<ReplayWish, Problem> {
    let corrects = asked.payload.is_some() || asked.payload_base64.is_some();
    let payload = || new_job::payload(asked.payload.as_deref(), asked.payload_base64.as_deref());
    Ok(ReplayWish {
        payload: corrects.then(payload).transpose()?,
        version,
        reason: reason(asked.reason, config)?,
        override_reason: asked.override_reason.map(|why| reason(why, config)).transpose()?,
        resolutions: asked.steps.into_iter().map(resolution).collect::<Result<_, _>>()?,
    })
}

/// What the operator says of a step; a result is kept byte for byte.
fn resolution((name, said): (String, StepResolution)) -> Result<(StepName, Resolution), Problem> {
    let name = StepName::new(name).map_err(|error| invalid("invalid_step", error.to_string()))?;
    match (said.applied, said.result) {
        (true, result) => {
            let result = result.map_or_else(|| b"null".to_vec(), |result| result.get().as_bytes().to_vec());
            Ok((name, Resolution::Applied(result)))
        }
        (false, None) => Ok((name, Resolution::NotApplied)),
        (false, Some(_)) => Err(invalid("invalid_step", format!("step {name} was not applied, so it has no result"))),
    }
}

fn replayed(id: DeadLetterId, answer: leasehold_store::ReplayAnswer) -> Result<ReplayAnswer, Refusal> {
    match answer {
        leasehold_store::ReplayAnswer::Replayed { replay, job, version, digest } => Ok(ReplayAnswer {
            replay_id: replay.0,
            job_id: job.0,
            version: version.to_string(),
            digest: digest.to_string(),
        }),
        leasehold_store::ReplayAnswer::NotOpen { state } => Err(not_open(id, &state)),
        refused => match refused.refusal(id) {
            Some((code, words)) if refused != leasehold_store::ReplayAnswer::NotFound => {
                Err(conflict(&code, words).into())
            }
            _ => Err(no_letter(id)),
        },
    }
}

pub(super) fn not_open(id: DeadLetterId, state: &str) -> Refusal {
    let (code, detail) = leasehold_store::not_open(id, state);
    conflict(&code, detail).with("state", state).into()
}

pub(super) async fn discard(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(path): Path<String>,
    body: Body,
) -> Result<StatusCode, Refusal> {
    let id = DeadLetterId(jobs::id(&path)?);
    let DiscardRequest { reason: why } = body::read_json(body, &api).await?;
    match api.daemon.store().discard(id, &actor.name, &reason(why, &api.daemon.config())?, api.daemon.now_ms()).await? {
        Discarded::Now => Ok(StatusCode::NO_CONTENT),
        Discarded::NotOpen { state } => Err(not_open(id, &state)),
        Discarded::NotFound => Err(no_letter(id)),
    }
}
