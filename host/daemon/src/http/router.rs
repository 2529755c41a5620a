//! Joins each operation of the API's table to its handler and puts the check of its access before it.

use std::panic::resume_unwind;

use axum::{
    Router,
    extract::Request,
    handler::Handler as _,
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::{MethodFilter, MethodRouter, on},
};
use http::{Method, StatusCode, Uri};
use leasehold_api::{Operation, Problem};
use leasehold_store::StoreError;
use tokio::task::JoinError;

use super::{
    Api, alerts, audit, batch, bulk_replays, caller, dead_letters, handlers, incidents, jobs, kinds, path, refusal,
    rehearsals, reveal, system, tokens,
};

/// The whole API.
pub(super) fn router(api: &Api) -> Router {
    // What is no route tells nothing to whom it does not know either.
    let guard = |operation| middleware::from_fn_with_state((api.clone(), operation), caller::authorize);
    let with_route = |router: Router<Api>, operation: Operation| {
        let route = operation.route();
        let endpoint = endpoint(operation, filter(&route.method)).route_layer(guard(Some(operation)));
        // What refuses an act puts that on record, so it is seen through with it.
        let seen_through = || middleware::from_fn(see_through);
        router
            .route(route.path, if is_seen_through(operation) { endpoint.route_layer(seen_through()) } else { endpoint })
    };
    Operation::ALL
        .into_iter()
        .fold(Router::new(), with_route)
        .fallback(unknown_path.layer(guard(None)))
        .method_not_allowed_fallback(unknown_method.layer(guard(None)))
        .layer(middleware::from_fn(path::require_text))
        .with_state(api.clone())
}

fn filter(method: &Method) -> MethodFilter {
    match *method {
        Method::POST => MethodFilter::POST,
        Method::PUT => MethodFilter::PUT,
        _ => MethodFilter::GET,
    }
}

fn endpoint(operation: Operation, method: MethodFilter) -> MethodRouter<Api> {
    match operation {
        Operation::EnqueueJob => on(method, jobs::enqueue),
        Operation::EnqueueBatch => on(method, batch::enqueue),
        Operation::ListJobs => on(method, jobs::list),
        Operation::ShowJob => on(method, jobs::show),
        Operation::CancelJob => on(method, jobs::cancel),
        Operation::WaitForJob => on(method, jobs::wait),
        Operation::ListDeadLetters => on(method, dead_letters::list),
        Operation::ShowDeadLetter => on(method, dead_letters::show),
        Operation::ReplayDeadLetter => on(method, dead_letters::replay),
        Operation::RehearseDeadLetter => on(method, rehearsals::rehearse),
        Operation::DiscardDeadLetter => on(method, dead_letters::discard),
        Operation::PreviewBulkReplay => on(method, bulk_replays::preview),
        Operation::StartBulkReplay => on(method, bulk_replays::start),
        Operation::ListBulkReplays => on(method, bulk_replays::list),
        Operation::ShowBulkReplay => on(method, bulk_replays::show),
        Operation::ListBulkReplayMembers => on(method, bulk_replays::members),
        Operation::StopBulkReplay => on(method, bulk_replays::stop),
        Operation::ResumeBulkReplay => on(method, bulk_replays::resume),
        Operation::WaitForBulkReplay => on(method, bulk_replays::wait),
        Operation::GroupDeadLetters => on(method, incidents::groups),
        Operation::ListIncidents => on(method, incidents::list),
        Operation::OpenIncident => on(method, incidents::open),
        Operation::ShowIncident => on(method, incidents::show),
        Operation::EditIncident => on(method, incidents::edit),
        Operation::CloseIncident => on(method, incidents::close),
        Operation::ListAlerts => on(method, alerts::list),
        Operation::ListPages => on(method, alerts::pages),
        Operation::RevealDeadLetter => on(method, reveal::reveal),
        Operation::ListHandlers => on(method, handlers::list),
        Operation::ShowHandler => on(method, handlers::show),
        Operation::PushHandler => on(method, handlers::push),
        Operation::PushSelfNamedHandler => on(method, handlers::push_self_named),
        Operation::ActivateHandler => on(method, handlers::activate),
        Operation::RetireHandler => on(method, handlers::retire),
        Operation::ListKinds => on(method, kinds::list),
        Operation::PauseKind => on(method, kinds::pause),
        Operation::ResumeKind => on(method, kinds::resume),
        Operation::Reload => on(method, system::reload),
        Operation::ListAudit => on(method, audit::list),
        Operation::AddToken => on(method, tokens::add),
        Operation::ListTokens => on(method, tokens::list),
        Operation::RevokeToken => on(method, tokens::revoke),
        Operation::Metrics => on(method, system::metrics),
        Operation::Health => on(method, system::health),
        Operation::Readiness => on(method, system::readiness),
        Operation::OpenApi => on(method, system::openapi),
    }
}

/// Whether it goes on when its caller goes away. Reads do not, nor do rehearsals and previews, which carry a body and apply
/// nothing: what they find out is for who waits for it.
fn is_seen_through(operation: Operation) -> bool {
    operation.route().method != Method::GET
        && !matches!(operation, Operation::RehearseDeadLetter | Operation::PreviewBulkReplay)
}

/// Sees an act through when its caller goes away meanwhile. The queue may have done it by then, and what follows from it
/// would be left undone: whoever waits for it is not rung, a guest not stopped, a version not served.
async fn see_through(request: Request, next: Next) -> Response {
    match tokio::spawn(next.run(request)).await.map_err(JoinError::try_into_panic) {
        Ok(answer) => answer,
        Err(Ok(panic)) => resume_unwind(panic),
        Err(Err(_)) => refusal::Refusal::from(StoreError::Closed).into_response(),
    }
}

async fn unknown_path(uri: Uri) -> impl IntoResponse {
    refusal::not_found(format!("nothing is at {}; /openapi.json lists what is", uri.path()))
}

async fn unknown_method(method: Method, uri: Uri) -> impl IntoResponse {
    let detail = format!("{method} is not for {}; /openapi.json lists what is", uri.path());
    refusal::Refusal(Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", detail))
}
