//! The daemon itself: its configuration, measurements, health and description.

use std::sync::{LazyLock, atomic::Ordering};

use axum::{
    Extension, Json,
    extract::State,
    response::{IntoResponse, Response},
};
use http::{StatusCode, header};
use leasehold_api::{Problem, ReloadAnswer, openapi::document};
use leasehold_domain::HandlerState;
use leasehold_store::StoreError;

use super::{Api, refusal::Refusal};
use crate::{config::Actor, daemon::Daemon, metrics};

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

/// The measurements. Those that the queue knows are asked for first; when it can't answer, the others are still shown,
/// since that is when they are looked at.
pub(super) async fn metrics(State(api): State<Api>) -> Response {
    if let Err(error) = measure(&api.daemon).await {
        tracing::warn!(code = error.code(), %error, "the queue could not be measured");
    }
    ([(header::CONTENT_TYPE, PROMETHEUS_TEXT)], api.daemon.rendered_metrics()).into_response()
}

async fn measure(daemon: &Daemon) -> Result<(), StoreError> {
    metrics::running(daemon.running.len());
    let now_ms = daemon.now_ms();
    for depth in daemon.store().depths().await? {
        metrics::queue(&depth.kind, depth.state.as_str(), depth.jobs, now_ms - depth.oldest_visible_at_ms);
    }
    for row in daemon.store().versions().await? {
        let (name, version) = (row.version.name.as_str(), row.version.version.to_string());
        metrics::version(name, &version, row.state == HandlerState::Live);
    }
    Ok(())
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
fn unready(daemon: &Daemon) -> Option<String> {
    if daemon.stopping.load(Ordering::SeqCst) {
        return Some("the daemon is stopping".to_owned());
    }
    daemon.store().key_problem().map(|problem| format!("the sealing key is not available: {problem}"))
}

pub(super) async fn openapi() -> Response {
    Json(&*DOCUMENT).into_response()
}
