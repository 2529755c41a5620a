//! Handler versions: stored, listed, shown, activated and retired.

use std::collections::BTreeMap;

use axum::{
    Extension, Json,
    body::Body,
    extract::{Path, State},
    response::{IntoResponse, Response},
};
use http::{StatusCode, Uri};
use leasehold_api::{ActivateQuery, HandlerView, Page, PushAnswer, RetireAnswer};
use leasehold_domain::HandlerVersion;

use super::{
    Api, body,
    refusal::{Refusal, malformed, not_found},
    views,
};
use crate::config::Actor;

fn version(text: &str) -> Result<HandlerVersion, Refusal> {
    text.parse().map_err(|error: leasehold_domain::handler::HandlerVersionError| malformed(error.to_string()))
}

pub(super) async fn list(State(api): State<Api>) -> Result<Json<Page<HandlerView>>, Refusal> {
    let damaged = api.daemon.in_force().damaged.clone();
    let versions = api.daemon.store().versions().await?;
    let items = versions.into_iter().map(|row| views::handler(row, &damaged)).collect();
    Ok(Json(Page { items, next_cursor: None }))
}

pub(super) async fn show(State(api): State<Api>, Path(path): Path<String>) -> Result<Json<HandlerView>, Refusal> {
    view(&api, &version(&path)?).await
}

async fn view(api: &Api, version: &HandlerVersion) -> Result<Json<HandlerView>, Refusal> {
    let found = api.daemon.store().version(version).await?;
    let row =
        found.ok_or_else(|| not_found(format!("{version} is not stored; `leasehold handlers ls` lists what is")))?;
    Ok(Json(views::handler(row, &api.daemon.in_force().damaged.clone())))
}

pub(super) async fn push(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(path): Path<String>,
    body: Body,
) -> Result<Response, Refusal> {
    let version = version(&path)?;
    store(&api, Some(version), body, &actor).await
}

pub(super) async fn push_self_named(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    body: Body,
) -> Result<Response, Refusal> {
    store(&api, None, body, &actor).await
}

async fn store(api: &Api, version: Option<HandlerVersion>, body: Body, actor: &Actor) -> Result<Response, Refusal> {
    let component = body::read(body, api.daemon.config().sandbox.component_max_bytes).await?;
    let (name, number) = version.map(|version| (version.name.to_string(), version.version.to_string())).unzip();
    let pushed = api.daemon.push_handler(component, name.as_deref(), number.as_deref(), &actor.name).await?;
    let status = if pushed.same { StatusCode::OK } else { StatusCode::CREATED };
    let (version, digest) = (pushed.version.to_string(), pushed.digest.to_string());
    Ok((status, Json(PushAnswer { version, digest, already_stored: pushed.same })).into_response())
}

pub(super) async fn activate(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(path): Path<String>,
    uri: Uri,
) -> Result<Json<HandlerView>, Refusal> {
    let ActivateQuery { keep_live } = body::query(&uri)?;
    let version = version(&path)?;
    api.daemon.activate_handler(&version, keep_live, &actor.name).await?;
    view(&api, &version).await
}

pub(super) async fn retire(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(path): Path<String>,
) -> Result<Json<RetireAnswer>, Refusal> {
    let version = version(&path)?;
    api.daemon.retire_handler(&version, &actor.name).await?;
    let Json(handler) = view(&api, &version).await?;
    Ok(Json(RetireAnswer { handler, waiting: waiting(&api, &version).await? }))
}

/// The kinds that the handler of a version can't serve any more, and how many jobs each has.
async fn waiting(api: &Api, version: &HandlerVersion) -> Result<BTreeMap<String, u64>, Refusal> {
    let in_force = api.daemon.in_force();
    if in_force.servable.contains(&version.name) {
        return Ok(BTreeMap::new());
    }
    let depths = api.daemon.store().depths().await?;
    let jobs =
        |kind: &str| depths.iter().filter(|depth| depth.kind == kind).map(leasehold_store::KindDepth::jobs).sum();
    let kinds = in_force.config.kinds.values().filter(|policy| policy.handler == version.name);
    Ok(kinds.map(|policy| (policy.kind.to_string(), jobs(policy.kind.as_str()))).collect())
}
