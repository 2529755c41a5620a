//! Kinds: how each stands, and pausing them.

use std::collections::{BTreeMap, BTreeSet};

use axum::{
    Extension, Json,
    extract::{Path, State},
};
use http::StatusCode;
use leasehold_api::{KindView, Page, Timestamp};
use leasehold_domain::{HandlerName, HandlerState, JobState, Kind};
use leasehold_store::{KindDepth, VersionRow};

use super::{Api, new_job, refusal::Refusal, system};
use crate::config::{Actor, Config};

/// Every kind that is configured or still has jobs or dead letters.
pub(super) async fn list(State(api): State<Api>) -> Result<Json<Page<KindView>>, Refusal> {
    let store = api.daemon.store();
    let (depths, paused, versions) = (store.depths().await?, store.paused_kinds().await?, store.versions().await?);
    let letters = store.open_letters().await?;
    let in_force = api.daemon.in_force();
    let config = &in_force.config;
    let paused: BTreeSet<_> = paused.into_iter().map(|paused| paused.kind).collect();
    let configured = config.kinds.keys().map(|kind| kind.as_str().to_owned());
    let with_jobs = depths.iter().map(|depth| depth.kind.clone());
    let kinds: BTreeSet<_> = configured.chain(with_jobs).chain(letters.keys().cloned()).collect();
    let nothing_runs = system::unready(&api.daemon);
    let items = kinds.into_iter().map(|kind| KindView {
        nothing_runs: nothing_runs.clone(),
        paused: paused.contains(&kind),
        dead_letters: letters.get(&kind).copied().unwrap_or_default(),
        ..view(kind, config, &depths, &versions, &in_force.servable)
    });
    Ok(Json(Page { items: items.collect(), next_cursor: None }))
}

fn view(
    kind: String,
    config: &Config,
    depths: &[KindDepth],
    versions: &[VersionRow],
    servable: &[HandlerName],
) -> KindView {
    let policy = config.kinds.values().find(|policy| policy.kind.as_str() == kind);
    let is_live = |row: &&VersionRow| {
        row.state == HandlerState::Live
            && row.current
            && policy.is_some_and(|policy| policy.handler == row.version.name)
    };
    let live_version = versions.iter().find(is_live).map(|row| row.version.to_string());
    // A version that is live and can't run, since its component is damaged, serves nobody either.
    let is_served = policy.is_some_and(|policy| servable.contains(&policy.handler));
    let depth = depths.iter().find(|depth| depth.kind == kind);
    KindView {
        handler: policy.map(|policy| policy.handler.to_string()),
        owner: policy.map(|policy| policy.owner.clone()),
        waiting_for_handler: !is_served && depth.is_some_and(|depth| depth.jobs() > 0),
        live_version,
        nothing_runs: None,
        paused: false,
        dead_letters: 0,
        depth: depth.map(depth_by_state).unwrap_or_default(),
        oldest_ready_at: depth.and_then(|depth| depth.oldest_ready_at_ms).map(Timestamp::from_ms),
        kind,
    }
}

/// The states in which there are jobs.
fn depth_by_state(depth: &KindDepth) -> BTreeMap<String, u64> {
    let states = [(JobState::Waiting, depth.waiting), (JobState::Ready, depth.ready), (JobState::Leased, depth.leased)];
    states.into_iter().filter(|(_, jobs)| *jobs > 0).map(|(state, jobs)| (state.as_str().to_owned(), jobs)).collect()
}

pub(super) async fn pause(api: State<Api>, actor: Extension<Actor>, kind: Path<String>) -> Result<StatusCode, Refusal> {
    set_paused(&api, &actor, &kind, true).await
}

pub(super) async fn resume(
    api: State<Api>,
    actor: Extension<Actor>,
    kind: Path<String>,
) -> Result<StatusCode, Refusal> {
    set_paused(&api, &actor, &kind, false).await
}

async fn set_paused(api: &Api, actor: &Actor, kind: &str, paused: bool) -> Result<StatusCode, Refusal> {
    let config = api.daemon.config();
    // A kind that has left the configuration can still be let go on, so that its jobs run once it is back.
    let kind = match Kind::new(kind) {
        Ok(kind) if config.kinds.contains_key(&kind) || !paused => kind,
        _ => return Err(new_job::unknown_kind(kind, &config).into()),
    };
    api.daemon.pause_kind(&kind, paused, &actor.name).await?;
    Ok(StatusCode::NO_CONTENT)
}
