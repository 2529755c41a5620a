//! Rehearsals of dead letters. The answer waits for the run's end; a caller that goes away stops it.

use axum::{
    Extension, Json,
    body::Body,
    extract::{Path, State},
};
use http::StatusCode;
use leasehold_api::{Problem, RehearsalReport, RehearsalRequest};
use leasehold_domain::{DeadLetterId, HandlerVersion};

use super::{
    Api, body,
    dead_letters::no_letter,
    jobs, new_job,
    refusal::{Refusal, conflict, invalid, problem_of_handler, problem_of_store},
    versions,
};
use crate::{RehearsalError, RehearsalWish, config::Actor};

/// Room for the answers that stand in for the network.
const ANSWERS_MAX_BYTES: usize = 4 << 20;

pub(super) async fn rehearse(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(path): Path<String>,
    body: Body,
) -> Result<Json<RehearsalReport>, Refusal> {
    let id = DeadLetterId(jobs::id(&path)?);
    let limit_bytes = body::document_max_bytes(&api.daemon.config()) + ANSWERS_MAX_BYTES;
    let asked: RehearsalRequest = body::parse(&body::read(body, limit_bytes).await?)?;
    let version = versions::of_letter(&api, id, asked.version.as_deref()).await?;
    let wish = wish(asked, version)?;
    let mut stopping = api.stopping.clone();
    tokio::select! {
        report = api.daemon.rehearse(id, wish, &actor.name) => {
            report.map_err(|error| refused(id, &error))?.map(Json).ok_or_else(|| no_letter(id))
        }
        _ = stopping.wait_for(|stopping| *stopping) => {
            let detail = "the daemon is stopping, and the rehearsal with it; rehearse again once it is back";
            Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "stopping", detail).into())
        }
    }
}

fn wish(asked: RehearsalRequest, version: Option<HandlerVersion>) -> Result<RehearsalWish, Problem> {
    let corrects = asked.payload.is_some() || asked.payload_base64.is_some();
    let payload = || new_job::payload(asked.payload.as_deref(), asked.payload_base64.as_deref());
    Ok(RehearsalWish { payload: corrects.then(payload).transpose()?, version, answers: asked.answers })
}

fn refused(id: DeadLetterId, error: &RehearsalError) -> Refusal {
    let problem = match error {
        RehearsalError::Store(error) => problem_of_store(error),
        RehearsalError::Handler(error) => problem_of_handler(error),
        RehearsalError::Payload(error) => new_job::problem(error),
        RehearsalError::Answer { .. } | RehearsalError::OtherHandler { .. } => invalid(error.code(), error.to_string()),
        RehearsalError::NotRedacted | RehearsalError::Lost => {
            Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.code(), error.to_string())
        }
        RehearsalError::NotOpen { .. }
        | RehearsalError::UnknownKind(_)
        | RehearsalError::OriginalNotKept
        | RehearsalError::NoCurrentVersion { .. } => {
            conflict(error.code(), format!("dead letter {id} can't be rehearsed: {error}"))
        }
    };
    problem.into()
}
