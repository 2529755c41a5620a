//! Bulk replays: previewed, started from the preview's token, shown, waited for, stopped and resumed. Whether a member
//! may go is decided in the transaction that replays it.

use std::time::Duration;

use axum::{
    Extension, Json,
    body::Body,
    extract::{Path, State},
};
use http::{StatusCode, Uri};
use leasehold_api::{
    BulkReplayChange, BulkReplayFilter, BulkReplayMember, BulkReplayMemberFilter, BulkReplayPreview,
    BulkReplayPreviewRequest, BulkReplayRequest, BulkReplayView, Page, Problem, ReplaySelection, WaitQuery,
};
use leasehold_domain::{
    BulkReplayId, ErrorClass, Kind,
    bulk_replay::{BulkState, Rate, RateError},
};
use leasehold_store::{
    BULK_MEMBERS_MAX, BulkMemberFilter, BulkReplayRecord, Previewed, Resumed, Selection, Started, Stopped,
};

use super::{
    Api, body, bulk_replay_views as views, jobs, new_job,
    paging::{before, page, page_size},
    refusal::{Refusal, conflict, invalid, malformed, not_found},
    versions,
    words::reason,
};
use crate::{
    bulk_replays::{BulkStart, BulkWish},
    config::{Actor, Config},
};

pub(super) async fn preview(State(api): State<Api>, body: Body) -> Result<Json<BulkReplayPreview>, Refusal> {
    let BulkReplayPreviewRequest { selection, version, override_reason } = body::read_json(body, &api).await?;
    let wish = wish(selection, version, override_reason, &api.daemon.config())?;
    match api.daemon.preview_bulk_replay(wish).await? {
        Previewed::Seen(preview) => Ok(Json(views::preview(*preview))),
        Previewed::TooMany => {
            let detail = format!(
                "more than {BULK_MEMBERS_MAX} dead letters match, as many as a bulk replay may have; narrow the selection \
                 (class, cause, died_on, since, until) and replay one part after the other"
            );
            Err(invalid("too_many_dead_letters", detail).with("limit", BULK_MEMBERS_MAX).into())
        }
    }
}

pub(super) async fn start(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    body: Body,
) -> Result<(StatusCode, Json<BulkReplayView>), Refusal> {
    let asked: BulkReplayRequest = body::read_json(body, &api).await?;
    let start = BulkStart {
        token: asked.token.ok_or_else(preview_required)?,
        reason: reason(asked.reason, &api.daemon.config())?,
        rate: asked.rate.as_deref().map(rate).transpose()?,
        probe: asked.probe,
    };
    let wish = wish(asked.selection, asked.version, asked.override_reason, &api.daemon.config())?;
    let id = match api.daemon.start_bulk_replay(wish, start, &actor.name).await? {
        Started::Now(id) => id,
        Started::Token(refusal) => return Err(conflict(refusal.code(), refusal.to_string()).into()),
        Started::Refused(refusal) => return Err(conflict(refusal.code(), refusal.to_string()).into()),
        Started::NothingLeft { closed, elsewhere, bulk_replay } => {
            return Err(nothing_left(closed, elsewhere, bulk_replay).into());
        }
    };
    Ok((StatusCode::CREATED, Json(views::bulk_replay(find(&api, id).await?))))
}

fn preview_required() -> Problem {
    let detail = "nothing is replayed in bulk that was not looked at before: preview it (POST /v1/replays:preview) and send \
                  the preview's token";
    conflict("preview_required", detail)
}

fn nothing_left(closed: u64, elsewhere: u64, bulk_replay: Option<BulkReplayId>) -> Problem {
    let where_else = bulk_replay.map(|id| format!(" (such as {id})")).unwrap_or_default();
    let detail = format!(
        "nothing is left to replay: since the preview {closed} of its dead letters were replayed or discarded, and {elsewhere} \
         wait for their turn in another bulk replay{where_else}"
    );
    let problem = conflict("nothing_to_replay", detail).with("closed", closed).with("in_others", elsewhere);
    match bulk_replay {
        Some(id) => problem.with("bulk_replay_id", id.0),
        None => problem,
    }
}

fn rate(text: &str) -> Result<Rate, Problem> {
    text.parse().map_err(|error: RateError| invalid("invalid_rate", error.to_string()))
}

/// What is asked for, its versions under the name of the kind's handler where they have none of their own.
fn wish(
    selection: ReplaySelection,
    version: Option<String>,
    override_reason: Option<String>,
    config: &Config,
) -> Result<BulkWish, Problem> {
    let kind = Kind::new(selection.kind.as_str()).ok().filter(|kind| config.kinds.contains_key(kind));
    let kind = kind.ok_or_else(|| new_job::unknown_kind(&selection.kind, config))?;
    let handler = &config.kinds[&kind].handler;
    if selection.class.as_deref().is_some_and(|class| ErrorClass::new(class).as_str() != class) {
        let detail = "this is no error class; one has up to 64 of a-z, 0-9, '.', '_' and '-'";
        return Err(invalid("invalid_selection", detail));
    }
    let full = |text: Option<String>| text.map(|text| versions::read(&text, Some(handler))).transpose();
    Ok(BulkWish {
        selection: Selection {
            died_on: full(selection.died_on)?,
            error_class: selection.class,
            cause: selection.cause,
            since_ms: selection.since.map(leasehold_api::Timestamp::as_ms),
            until_ms: selection.until.map(leasehold_api::Timestamp::as_ms),
            kind,
        },
        version: full(version)?,
        override_reason: override_reason.map(|why| reason(why, config)).transpose()?,
    })
}

pub(super) async fn list(State(api): State<Api>, uri: Uri) -> Result<Json<Page<BulkReplayView>>, Refusal> {
    let query: BulkReplayFilter = body::query(&uri)?;
    let listed = api.daemon.store().bulk_replays(before(query.cursor.as_deref())?, page_size(query.limit)?).await?;
    Ok(Json(page(listed, views::bulk_replay)))
}

pub(super) async fn show(State(api): State<Api>, Path(path): Path<String>) -> Result<Json<BulkReplayView>, Refusal> {
    find(&api, id(&path)?).await.map(views::bulk_replay).map(Json)
}

fn id(path: &str) -> Result<BulkReplayId, Refusal> {
    jobs::id(path).map(BulkReplayId)
}

async fn find(api: &Api, id: BulkReplayId) -> Result<BulkReplayRecord, Refusal> {
    api.daemon.store().bulk_replay(id).await?.ok_or_else(|| no_bulk_replay(id))
}

fn no_bulk_replay(id: BulkReplayId) -> Refusal {
    not_found(format!("there is no bulk replay {id}"))
}

pub(super) async fn members(
    State(api): State<Api>,
    Path(path): Path<String>,
    uri: Uri,
) -> Result<Json<Page<BulkReplayMember>>, Refusal> {
    let query: BulkReplayMemberFilter = body::query(&uri)?;
    let id = find(&api, id(&path)?).await?.id;
    if let Some(state) = query.state.as_deref().filter(|state| !["pending", "replayed", "refused"].contains(state)) {
        return Err(malformed(format!("state is {state:?}; allowed are pending, replayed and refused")));
    }
    let filter = BulkMemberFilter { state: query.state, after: before(query.cursor.as_deref())? };
    let listed = api.daemon.store().bulk_members(id, filter, page_size(query.limit)?).await?;
    Ok(Json(page(listed, views::bulk_member)))
}

pub(super) async fn stop(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(path): Path<String>,
) -> Result<Json<BulkReplayChange>, Refusal> {
    let id = id(&path)?;
    let changed = match api.daemon.stop_bulk_replay(id, &actor.name).await? {
        Stopped::Now => true,
        Stopped::Already => false,
        Stopped::IsDone => return Err(is_done(id)),
        Stopped::NotFound => return Err(no_bulk_replay(id)),
    };
    Ok(Json(BulkReplayChange { changed, bulk_replay: views::bulk_replay(find(&api, id).await?) }))
}

pub(super) async fn resume(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(path): Path<String>,
) -> Result<Json<BulkReplayChange>, Refusal> {
    let id = id(&path)?;
    let changed = match api.daemon.resume_bulk_replay(id, &actor.name).await? {
        Some(Resumed::Now) => true,
        Some(Resumed::Already) => false,
        Some(Resumed::IsDone) => return Err(is_done(id)),
        Some(Resumed::Refused(refusal)) => return Err(conflict(refusal.code(), refusal.to_string()).into()),
        Some(Resumed::NotFound) | None => return Err(no_bulk_replay(id)),
    };
    Ok(Json(BulkReplayChange { changed, bulk_replay: views::bulk_replay(find(&api, id).await?) }))
}

fn is_done(id: BulkReplayId) -> Refusal {
    let detail =
        format!("bulk replay {id} is done: every member has had its turn, so nothing is left to stop or resume");
    conflict("already_done", detail).into()
}

/// Answers when nothing of it is under way, the time is over or the daemon stops, whichever comes first.
pub(super) async fn wait(
    State(api): State<Api>,
    Path(path): Path<String>,
    uri: Uri,
) -> Result<Json<BulkReplayView>, Refusal> {
    let WaitQuery { timeout_ms } = body::query(&uri)?;
    let id = id(&path)?;
    let over = tokio::time::sleep(Duration::from_millis(jobs::wait_ms(timeout_ms)));
    let mut over = std::pin::pin!(over);
    let mut stopping = api.stopping.clone();
    let mut changes = api.daemon.bulk_replay_changes();
    let mut ends = api.daemon.replay_ends();
    loop {
        // Listening goes before looking, so that no change in between is missed.
        changes.mark_unchanged();
        ends.mark_unchanged();
        let record = find(&api, id).await?;
        let runs = record.state == BulkState::Running;
        let view = views::bulk_replay(record);
        if view.settled {
            return Ok(Json(view));
        }
        tokio::select! {
            _ = changes.changed() => {}
            // While members go, how their jobs end changes nothing for who waits for all.
            _ = ends.changed(), if !runs => {}
            () = &mut over => return Ok(Json(view)),
            _ = stopping.wait_for(|stopping| *stopping) => return Ok(Json(view)),
        }
    }
}
