//! Incidents: opened, edited and closed by operators, and the groups of open dead letters that they are opened for.

use axum::{
    Extension, Json,
    body::Body,
    extract::{Path, State},
};
use http::{StatusCode, Uri};
use leasehold_api::{
    CloseIncidentRequest, DeadLetterGroup, EditIncidentRequest, IncidentFilter, IncidentGroup, IncidentState,
    IncidentSummary, IncidentView, OpenIncidentRequest, Page, Problem, Timestamp,
};
use leasehold_domain::{ErrorClass, HandlerVersion, IncidentId, Kind, error_class::UNCLASSIFIED};
use leasehold_store::{Changed, Incident, IncidentChange, IncidentRecord, OpenIncident, Opened};

use super::{
    Api, alerts, body, jobs, new_job,
    paging::{before, page, page_size},
    refusal::{Refusal, conflict, invalid, not_found},
    versions,
    words::note,
};
use crate::config::{Actor, Config};

pub(super) async fn groups(State(api): State<Api>) -> Result<Json<Page<DeadLetterGroup>>, Refusal> {
    let groups = api.daemon.store().dead_letter_groups().await?;
    Ok(Json(Page { items: groups.into_iter().map(group_view).collect(), next_cursor: None }))
}

pub(super) async fn list(State(api): State<Api>, uri: Uri) -> Result<Json<Page<IncidentSummary>>, Refusal> {
    let query: IncidentFilter = body::query(&uri)?;
    let is_open = query.state.map(|state| state == IncidentState::Open);
    let cursor = before(query.cursor.as_deref())?;
    Ok(Json(page(api.daemon.store().incidents(is_open, cursor, page_size(query.limit)?).await?, summary)))
}

pub(super) async fn show(State(api): State<Api>, Path(path): Path<String>) -> Result<Json<IncidentView>, Refusal> {
    find(&api, IncidentId(jobs::id(&path)?)).await.map(view).map(Json)
}

async fn find(api: &Api, id: IncidentId) -> Result<Incident, Refusal> {
    api.daemon.store().incident(id).await?.ok_or_else(|| no_incident(id))
}

fn no_incident(id: IncidentId) -> Refusal {
    not_found(format!("there is no incident {id}"))
}

pub(super) async fn open(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    body: Body,
) -> Result<(StatusCode, Json<IncidentView>), Refusal> {
    let asked: OpenIncidentRequest = body::read_json(body, &api).await?;
    let config = api.daemon.config();
    let kind = kind(&api, &config, &asked.kind).await?;
    let error_class = match asked.error_class {
        Some(name) => Some(class(&api, &config, &kind, name).await?),
        None => None,
    };
    let incident = OpenIncident {
        error_class,
        note: note(asked.note, &config)?,
        fixed_in: asked.fixed_in.map(|text| fixed_in(&config, kind.as_str(), &text)).transpose()?,
        kind,
        actor: actor.name,
        now_ms: api.daemon.now_ms(),
    };
    match api.daemon.store().open_incident(incident).await? {
        Opened::Now(id) => Ok((StatusCode::CREATED, Json(view(find(&api, id).await?)))),
        Opened::Already(id) => {
            let detail = format!("incident {id} is open for the same already; close it, or edit it");
            Err(conflict("incident_open_already", detail).with("id", id.0).into())
        }
    }
}

/// A kind that is configured, or has left the configuration with dead letters behind it.
async fn kind(api: &Api, config: &Config, name: &str) -> Result<Kind, Refusal> {
    let unknown = || new_job::unknown_kind(name, config);
    let kind = Kind::new(name).map_err(|_| unknown())?;
    let is_known = config.kinds.contains_key(&kind) || api.daemon.store().has_dead_letters(name, None).await?;
    if is_known { Ok(kind) } else { Err(unknown().into()) }
}

/// A class that jobs can die of, or have died of.
async fn class(api: &Api, config: &Config, kind: &Kind, name: String) -> Result<ErrorClass, Refusal> {
    let class = ErrorClass::new(&name);
    let is_named = class.as_str() == name;
    let in_vocabulary = name == UNCLASSIFIED || !config.vocabulary.classify(&class).unknown;
    if is_named && (in_vocabulary || api.daemon.store().has_dead_letters(kind.as_str(), Some(&name)).await?) {
        return Ok(class);
    }
    let shown: String = name.chars().take(64).collect();
    let detail = format!(
        "no job dies of the class {shown:?}: it is not in the vocabulary ([errors] of the configuration), and what is not \
         in it is recorded as {UNCLASSIFIED}; see the classes with leasehold dlq groups"
    );
    Err(invalid("unknown_class", detail).into())
}

/// A version of the kind's handler, with or without the handler's name.
fn fixed_in(config: &Config, kind: &str, text: &str) -> Result<HandlerVersion, Problem> {
    let handler = versions::handler_of(config, kind);
    let wrong = |detail: String| invalid("invalid_handler_version", detail);
    let version = versions::read(text, handler)?;
    match handler {
        Some(handler) if version.name != *handler => {
            Err(wrong(format!("kind {kind} is served by {handler}; a fix of it is a version of that")))
        }
        _ => Ok(version),
    }
}

pub(super) async fn edit(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(path): Path<String>,
    body: Body,
) -> Result<Json<IncidentView>, Refusal> {
    let id = IncidentId(jobs::id(&path)?);
    let asked: EditIncidentRequest = body::read_json(body, &api).await?;
    let incident = find(&api, id).await?.record;
    let config = api.daemon.config();
    let fixed_in = asked.fixed_in.map(|text| fixed_in(&config, &incident.kind, &text)).transpose()?;
    change(&api, id, IncidentChange::FixedIn(fixed_in), &actor).await
}

pub(super) async fn close(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(path): Path<String>,
    body: Body,
) -> Result<Json<IncidentView>, Refusal> {
    let id = IncidentId(jobs::id(&path)?);
    let asked: CloseIncidentRequest = body::read_json(body, &api).await?;
    let incident = find(&api, id).await?.record;
    let config = api.daemon.config();
    let fixed_in = asked.fixed_in.map(|text| fixed_in(&config, &incident.kind, &text)).transpose()?;
    change(&api, id, IncidentChange::Close { note: note(asked.note, &config)?, fixed_in }, &actor).await
}

async fn change(
    api: &Api,
    id: IncidentId,
    change: IncidentChange,
    actor: &Actor,
) -> Result<Json<IncidentView>, Refusal> {
    match api.daemon.store().change_incident(id, change, &actor.name, api.daemon.now_ms()).await? {
        Changed::Now => find(api, id).await.map(view).map(Json),
        Changed::AlreadyClosed => Err(conflict("already_closed", format!("incident {id} is closed already")).into()),
        Changed::NotFound => Err(no_incident(id)),
    }
}

fn summary(record: IncidentRecord) -> IncidentSummary {
    IncidentSummary {
        id: record.id.0,
        kind: record.kind,
        error_class: record.error_class,
        state: if record.is_open { IncidentState::Open } else { IncidentState::Closed },
        note: record.note,
        fixed_in: record.fixed_in,
        opened_at: Timestamp::from_ms(record.opened_at_ms),
        opened_by: record.opened_by,
        closed_at: record.closed_at_ms.map(Timestamp::from_ms),
        closed_by: record.closed_by,
        closing_note: record.closing_note,
        arrivals: record.arrivals,
        open_dead_letters: record.letters,
    }
}

fn view(incident: Incident) -> IncidentView {
    let group = |group: leasehold_store::IncidentGroup| IncidentGroup {
        error_class: group.error_class,
        handler: group.version,
        arrivals: group.arrivals,
        open_dead_letters: group.letters,
    };
    IncidentView {
        summary: summary(incident.record),
        groups: incident.groups.into_iter().map(group).collect(),
        pages: incident.pages.into_iter().map(alerts::page_view).collect(),
    }
}

fn group_view(group: leasehold_store::DeadLetterGroup) -> DeadLetterGroup {
    DeadLetterGroup {
        kind: group.kind,
        error_class: group.error_class,
        handler: group.version,
        open_dead_letters: group.letters,
        first_died_at: Timestamp::from_ms(group.first_at_ms),
        last_died_at: Timestamp::from_ms(group.last_at_ms),
        latest_id: group.latest,
        incident_id: group.incident.map(|incident| incident.0),
    }
}
