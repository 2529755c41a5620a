//! The API's description as an `OpenAPI` document, made from the table of routes and the wire types.

use utoipa::{
    IntoParams, OpenApi as _,
    openapi::{
        Components, Content, HttpMethod, InfoBuilder, OpenApi, OpenApiBuilder, Paths, Ref, RefOr, Required, Response,
        ResponseBuilder, Schema,
        path::{Operation as Described, OperationBuilder, Parameter, ParameterBuilder, ParameterIn},
        request_body::{RequestBody, RequestBodyBuilder},
        schema::{KnownFormat, ObjectBuilder, SchemaFormat, Type},
    },
};

use crate::{
    ActivateQuery, AlertView, AuditEntry, AuditFilter, BatchAnswer, BulkReplayChange, BulkReplayFilter,
    BulkReplayMember, BulkReplayMemberFilter, BulkReplayPreview, BulkReplayPreviewRequest, BulkReplayRequest,
    BulkReplayView, CloseIncidentRequest, DeadLetterFilter, DeadLetterGroup, DeadLetterSummary, DeadLetterView,
    DiscardRequest, EditIncidentRequest, EnqueueAnswer, EnqueueRequest, HandlerView, IncidentFilter, IncidentSummary,
    IncidentView, JobFilter, JobStateAnswer, JobSummary, JobView, KindView, OpenIncidentRequest, Operation, Page,
    PageFilter, PageView, Problem, PushAnswer, RehearsalReport, RehearsalRequest, ReloadAnswer, ReplayAnswer,
    ReplayRequest, RetireAnswer, RevealAnswer, RevealRequest, Role, Route, StepResolution, TokenAnswer, TokenRequest,
    TokenView, WaitQuery, problem,
    route::{Body, variable},
};

#[derive(utoipa::OpenApi)]
#[openapi(components(schemas(
    BatchAnswer,
    BulkReplayChange, BulkReplayPreview, BulkReplayPreviewRequest, BulkReplayRequest, BulkReplayView, CloseIncidentRequest,
    DeadLetterView,
    DiscardRequest,
    EditIncidentRequest,
    EnqueueAnswer,
    EnqueueRequest,
    HandlerView,
    IncidentView,
    JobStateAnswer,
    JobView,
    KindView,
    OpenIncidentRequest,
    Page<AlertView>,
    Page<AuditEntry>,
    Page<BulkReplayMember>,
    Page<BulkReplayView>,
    Page<DeadLetterGroup>,
    Page<DeadLetterSummary>,
    Page<HandlerView>,
    Page<IncidentSummary>,
    Page<JobSummary>,
    Page<KindView>,
    Page<PageView>,
    Page<TokenView>,
    Problem,
    PushAnswer,
    RehearsalReport,
    RehearsalRequest,
    ReloadAnswer,
    ReplayAnswer,
    ReplayRequest,
    RetireAnswer,
    RevealAnswer,
    RevealRequest,
    StepResolution,
    Role,
    TokenAnswer,
    TokenRequest,
    TokenView,
)))]
struct WireTypes;

/// The document that the daemon serves as `/openapi.json`.
#[must_use]
pub fn document() -> OpenApi {
    let mut paths = Paths::new();
    for operation in Operation::ALL {
        let route = operation.route();
        paths.add_path_operation(route.path, vec![method(&route)], describe(operation, &route));
    }
    let info = InfoBuilder::new()
        .title("Leasehold")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some("Jobs, dead letters and handlers of one Leasehold daemon."))
        .build();
    OpenApiBuilder::new().info(info).paths(paths).components(Some(components())).build()
}

fn components() -> Components {
    WireTypes::openapi().components.unwrap_or_default()
}

fn method(route: &Route) -> HttpMethod {
    match route.method {
        http::Method::POST => HttpMethod::Post,
        http::Method::PUT => HttpMethod::Put,
        _ => HttpMethod::Get,
    }
}

fn describe(operation: Operation, route: &Route) -> Described {
    let mut described = OperationBuilder::new()
        .operation_id(Some(format!("{operation:?}")))
        .summary(Some(route.summary))
        .description(Some(route.access.to_string()))
        .parameters(Some(path_parameters(route)))
        .parameters(Some(query_parameters(operation)))
        .request_body(request(route.takes));
    for status in route.statuses {
        described = described.response(status.to_string(), answer(route.answers));
    }
    described.response("default", refusal()).build()
}

fn path_parameters(route: &Route) -> Vec<Parameter> {
    let names = route.path.split('/').filter_map(variable);
    let parameter = |name: &str| {
        let described = ParameterBuilder::new().name(name).parameter_in(ParameterIn::Path).required(Required::True);
        let value_type = if name == "id" { Type::Integer } else { Type::String };
        described.schema(Some(Schema::from(ObjectBuilder::new().schema_type(value_type)))).build()
    };
    names.map(parameter).collect()
}

fn query_parameters(operation: Operation) -> Vec<Parameter> {
    let within = || Some(ParameterIn::Query);
    match operation {
        Operation::ListJobs => JobFilter::into_params(within),
        Operation::ListDeadLetters => DeadLetterFilter::into_params(within),
        Operation::ListIncidents => IncidentFilter::into_params(within),
        Operation::ListPages => PageFilter::into_params(within),
        Operation::ListAudit => AuditFilter::into_params(within),
        Operation::ListBulkReplays => BulkReplayFilter::into_params(within),
        Operation::ListBulkReplayMembers => BulkReplayMemberFilter::into_params(within),
        Operation::WaitForJob | Operation::WaitForBulkReplay => WaitQuery::into_params(within),
        Operation::ActivateHandler => ActivateQuery::into_params(within),
        _ => Vec::new(),
    }
}

fn request(body: Body) -> Option<RequestBody> {
    let described = RequestBodyBuilder::new().required(Some(Required::True));
    Some(described.content(body.media_type()?, Content::new(Some(schema_of(body)))).build())
}

fn answer(body: Body) -> Response {
    let described = ResponseBuilder::new().description("It went well.");
    match body.media_type() {
        None => described.build(),
        Some(media_type) => described.content(media_type, Content::new(Some(schema_of(body)))).build(),
    }
}

fn refusal() -> Response {
    let content = Content::new(Some(Ref::from_schema_name("Problem")));
    ResponseBuilder::new()
        .description("It was refused or failed; `code` says why.")
        .content(problem::CONTENT_TYPE, content)
        .build()
}

fn schema_of(body: Body) -> RefOr<Schema> {
    let text = ObjectBuilder::new().schema_type(Type::String);
    match body {
        Body::Json(name) | Body::JsonLines(name) => Ref::from_schema_name(name).into(),
        Body::AnyJson => ObjectBuilder::new().schema_type(Type::Object).into(),
        Body::Component => text.format(Some(SchemaFormat::KnownFormat(KnownFormat::Binary))).into(),
        Body::Empty | Body::Text => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn as_json() -> Value {
        serde_json::to_value(document()).unwrap()
    }

    #[test]
    fn o5_every_route_is_in_the_document_with_who_may_ask() {
        let document = as_json();
        for operation in Operation::ALL {
            let route = operation.route();
            let described = &document["paths"][route.path][route.method.as_str().to_lowercase()];
            assert_eq!(described["description"], route.access.to_string(), "{operation:?}");
        }
    }

    #[test]
    fn nothing_in_the_document_points_at_a_schema_that_is_not_there() {
        fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
            match value {
                Value::Object(fields) => {
                    found.extend(fields.get("$ref").and_then(Value::as_str));
                    fields.values().for_each(|field| references(field, found));
                }
                Value::Array(items) => items.iter().for_each(|item| references(item, found)),
                _ => {}
            }
        }
        let document = as_json();
        let mut found = Vec::new();
        references(&document, &mut found);
        assert!(found.len() > 30);
        for reference in found {
            let pointer = reference.trim_start_matches('#');
            assert!(document.pointer(pointer).is_some(), "{reference} leads nowhere");
        }
    }
}
