//! The daemon itself: its configuration, measurements, health and description.

use std::sync::{LazyLock, atomic::Ordering};

use axum::{
    Extension, Json,
    extract::State,
    response::{IntoResponse, Response},
};
use http::{StatusCode, header};
use leasehold_api::{Problem, ReloadAnswer, openapi::document};

use super::{Api, refusal::Refusal};
use crate::{config::Actor, daemon::Daemon};

const PROMETHEUS_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The description never changes while the daemon runs.
static DOCUMENT: LazyLock<utoipa::openapi::OpenApi> = LazyLock::new(document);

pub(super) async fn reload(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
) -> Result<Json<ReloadAnswer>, Refusal> {
    api.daemon.reload(&actor.name).await?;
    Ok(Json(ReloadAnswer { file: api.daemon.config().path.display().to_string() }))
}

/// The measurements. When the queue can't be asked, the others are still shown, since that is when they are looked at.
pub(super) async fn metrics(State(api): State<Api>) -> Response {
    let text = api.daemon.metrics_text().await.unwrap_or_else(|error| {
        tracing::warn!(code = error.code(), %error, "the queue could not be measured");
        api.daemon.rendered_metrics()
    });
    ([(header::CONTENT_TYPE, PROMETHEUS_TEXT)], text).into_response()
}

pub(super) async fn health() -> &'static str {
    "ok\n"
}

pub(super) async fn readiness(State(api): State<Api>) -> Result<&'static str, Refusal> {
    match unready(&api.daemon) {
        None => Ok("ready\n"),
        Some(reason) => Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "not_ready", reason).into()),
    }
}

/// Why the daemon takes or runs no jobs, if so.
pub(super) fn unready(daemon: &Daemon) -> Option<String> {
    if daemon.stopping.load(Ordering::SeqCst) {
        return Some("the daemon is stopping".to_owned());
    }
    if let Some(problem) = daemon.store().write_problem() {
        return Some(format!("nothing can be written: {problem}"));
    }
    daemon.store().key_problem().map(|problem| format!("the sealing key is not available: {problem}"))
}

pub(super) async fn openapi() -> Response {
    Json(&*DOCUMENT).into_response()
}
