//! Joins each operation of the API's table to its handler and puts the check of its access before it.

use axum::{
    Router, middleware,
    response::IntoResponse,
    routing::{MethodFilter, MethodRouter, on},
};
use http::{Method, StatusCode, Uri};
use leasehold_api::{Operation, Problem};

use super::{Api, audit, batch, caller, dead_letters, handlers, jobs, kinds, path, refusal, system};

/// The whole API.
pub(super) fn router(api: Api) -> Router {
    let with_route = |router: Router<Api>, operation: Operation| {
        let route = operation.route();
        let guard = middleware::from_fn_with_state((api.clone(), route.access), caller::authorize);
        router.route(route.path, endpoint(operation, filter(&route.method)).route_layer(guard))
    };
    Operation::ALL
        .into_iter()
        .fold(Router::new(), with_route)
        .fallback(unknown_path)
        .method_not_allowed_fallback(unknown_method)
        .layer(middleware::from_fn(path::require_text))
        .with_state(api)
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
        Operation::DiscardDeadLetter => on(method, dead_letters::discard),
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
        Operation::Metrics => on(method, system::metrics),
        Operation::Health => on(method, system::health),
        Operation::Readiness => on(method, system::readiness),
        Operation::OpenApi => on(method, system::openapi),
    }
}

async fn unknown_path(uri: Uri) -> impl IntoResponse {
    refusal::not_found(format!("nothing is at {}; /openapi.json lists what is", uri.path()))
}

async fn unknown_method(method: Method, uri: Uri) -> impl IntoResponse {
    let detail = format!("{method} is not for {}; /openapi.json lists what is", uri.path());
    refusal::Refusal(Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", detail))
}
