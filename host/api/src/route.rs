//! The one table of the API's routes: the daemon's router, the `OpenAPI` document and the client all read it, so that a
//! route can't be served without being documented, nor be served without saying who may ask.

use http::Method;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::{Access, Role};

/// Everything that can be asked of the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Sends one job in.
    EnqueueJob,
    /// Sends jobs in, one a line.
    EnqueueBatch,
    /// Lists jobs.
    ListJobs,
    /// Shows a job.
    ShowJob,
    /// Cancels a job.
    CancelJob,
    /// Waits for a job's end.
    WaitForJob,
    /// Lists dead letters.
    ListDeadLetters,
    /// Shows a dead letter.
    ShowDeadLetter,
    /// Sends a dead letter's job back into the queue.
    ReplayDeadLetter,
    /// Runs a dead letter with nothing applied.
    RehearseDeadLetter,
    /// Gives a dead letter up.
    DiscardDeadLetter,
    /// Shows what a bulk replay would do.
    PreviewBulkReplay,
    /// Starts a bulk replay that was previewed.
    StartBulkReplay,
    /// Lists bulk replays.
    ListBulkReplays,
    /// Shows a bulk replay.
    ShowBulkReplay,
    /// Lists the members of a bulk replay.
    ListBulkReplayMembers,
    /// Lets no further member of a bulk replay go.
    StopBulkReplay,
    /// Lets a stopped bulk replay go on.
    ResumeBulkReplay,
    /// Waits until nothing of a bulk replay is under way.
    WaitForBulkReplay,
    /// Groups open dead letters.
    GroupDeadLetters,
    /// Lists incidents.
    ListIncidents,
    /// Opens an incident.
    OpenIncident,
    /// Shows an incident.
    ShowIncident,
    /// Changes an incident.
    EditIncident,
    /// Closes an incident.
    CloseIncident,
    /// Lists what needs somebody now.
    ListAlerts,
    /// Lists pages.
    ListPages,
    /// Shows the original of a dead letter.
    RevealDeadLetter,
    /// Lists stored handler versions.
    ListHandlers,
    /// Shows a handler version.
    ShowHandler,
    /// Stores a component under a name and version.
    PushHandler,
    /// Stores a component under the name and version that it carries.
    PushSelfNamedHandler,
    /// Makes a version current.
    ActivateHandler,
    /// Takes a version out of service.
    RetireHandler,
    /// Lists kinds and how they stand.
    ListKinds,
    /// Stops a kind's jobs from being leased.
    PauseKind,
    /// Lets a kind's jobs be leased again.
    ResumeKind,
    /// Applies a changed configuration.
    Reload,
    /// Lists what operators did.
    ListAudit,
    /// Makes a token.
    AddToken,
    /// Lists tokens.
    ListTokens,
    /// Takes a token back.
    RevokeToken,
    /// The measurements in Prometheus text form.
    Metrics,
    /// Whether the daemon is alive.
    Health,
    /// Whether the daemon takes and runs jobs.
    Readiness,
    /// The API's description.
    OpenApi,
}

/// What a request or an answer carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body {
    /// Nothing.
    Empty,
    /// One JSON document of the named schema.
    Json(&'static str),
    /// JSON documents of the named schema, one a line.
    JsonLines(&'static str),
    /// A JSON document that is not described further.
    AnyJson,
    /// A WebAssembly component.
    Component,
    /// Plain text.
    Text,
}

impl Body {
    /// The media type, if there is a body.
    #[must_use]
    pub const fn media_type(self) -> Option<&'static str> {
        match self {
            Self::Empty => None,
            Self::Json(_) | Self::AnyJson => Some("application/json"),
            Self::JsonLines(_) => Some("application/x-ndjson"),
            Self::Component => Some("application/wasm"),
            Self::Text => Some("text/plain"),
        }
    }
}

/// Where an operation is found, who may ask for it, what it takes and what it answers with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// The HTTP method.
    pub method: Method,
    /// The path, with `{name}` for each part that varies.
    pub path: &'static str,
    /// Who may ask.
    pub access: Access,
    /// What it does, in a line.
    pub summary: &'static str,
    /// What the request carries.
    pub takes: Body,
    /// What a success carries.
    pub answers: Body,
    /// The statuses of success.
    pub statuses: &'static [u16],
}

impl Operation {
    /// Every operation.
    pub const ALL: [Self; 46] = [
        Self::EnqueueJob,
        Self::EnqueueBatch,
        Self::ListJobs,
        Self::ShowJob,
        Self::CancelJob,
        Self::WaitForJob,
        Self::ListDeadLetters,
        Self::ShowDeadLetter,
        Self::ReplayDeadLetter,
        Self::RehearseDeadLetter,
        Self::DiscardDeadLetter,
        Self::PreviewBulkReplay,
        Self::StartBulkReplay,
        Self::ListBulkReplays,
        Self::ShowBulkReplay,
        Self::ListBulkReplayMembers,
        Self::StopBulkReplay,
        Self::ResumeBulkReplay,
        Self::WaitForBulkReplay,
        Self::GroupDeadLetters,
        Self::ListIncidents,
        Self::OpenIncident,
        Self::ShowIncident,
        Self::EditIncident,
        Self::CloseIncident,
        Self::ListAlerts,
        Self::ListPages,
        Self::RevealDeadLetter,
        Self::ListHandlers,
        Self::ShowHandler,
        Self::PushHandler,
        Self::PushSelfNamedHandler,
        Self::ActivateHandler,
        Self::RetireHandler,
        Self::ListKinds,
        Self::PauseKind,
        Self::ResumeKind,
        Self::Reload,
        Self::ListAudit,
        Self::AddToken,
        Self::ListTokens,
        Self::RevokeToken,
        Self::Metrics,
        Self::Health,
        Self::Readiness,
        Self::OpenApi,
    ];

    /// The operation's row in the table.
    #[must_use]
    pub fn route(self) -> Route {
        use Body::{AnyJson, Component, Json, JsonLines, Text};
        const ENQUEUE: Access = Access::Role(Role::Enqueue);
        const VIEW: Access = Access::Role(Role::View);
        const OPERATE: Access = Access::Role(Role::Operate);
        const ADMIN: Access = Access::Role(Role::Admin);
        match self {
            Self::EnqueueJob => post("/v1/jobs", ENQUEUE, "Send one job in")
                .takes(Json("EnqueueRequest"))
                .answers(&[201, 200], Json("EnqueueAnswer")),
            Self::EnqueueBatch => post("/v1/jobs:batch", ENQUEUE, "Send jobs in, one a line; an answer for each line")
                .takes(JsonLines("EnqueueRequest"))
                .answers(&[200], JsonLines("BatchAnswer")),
            Self::ListJobs => get("/v1/jobs", VIEW, "List jobs, the newest first", Json("Page_JobSummary")),
            Self::ShowJob => get("/v1/jobs/{id}", Access::Own, "Show a job, redacted", Json("JobView")),
            Self::CancelJob => {
                post("/v1/jobs/{id}/cancel", OPERATE, "Cancel a job").answers(&[200], Json("JobStateAnswer"))
            }
            Self::WaitForJob => {
                get("/v1/jobs/{id}/wait", Access::Own, "Wait until a job has ended", Json("JobStateAnswer"))
            }
            Self::ListDeadLetters => {
                get("/v1/dead-letters", VIEW, "List dead letters, the newest first", Json("Page_DeadLetterSummary"))
            }
            Self::ShowDeadLetter => {
                get("/v1/dead-letters/{id}", VIEW, "Show a dead letter, redacted", Json("DeadLetterView"))
            }
            Self::ReplayDeadLetter => {
                post("/v1/dead-letters/{id}/replay", OPERATE, "Send a dead letter's job back onto a live version")
                    .takes(Json("ReplayRequest"))
                    .answers(&[200], Json("ReplayAnswer"))
            }
            Self::RehearseDeadLetter => post(
                "/v1/dead-letters/{id}/rehearse",
                OPERATE,
                "Run a dead letter on any stored version, applying nothing",
            )
            .takes(Json("RehearsalRequest"))
            .answers(&[200], Json("RehearsalReport")),
            Self::DiscardDeadLetter => post("/v1/dead-letters/{id}/discard", OPERATE, "Give a dead letter up")
                .takes(Json("DiscardRequest"))
                .answers(&[204], Body::Empty),
            Self::PreviewBulkReplay => {
                post("/v1/replays:preview", VIEW, "Show what a bulk replay would do; nothing is changed")
                    .takes(Json("BulkReplayPreviewRequest"))
                    .answers(&[200], Json("BulkReplayPreview"))
            }
            Self::StartBulkReplay => {
                post("/v1/replays", OPERATE, "Replay many dead letters, as a preview's token says")
                    .takes(Json("BulkReplayRequest"))
                    .answers(&[201], Json("BulkReplayView"))
            }
            Self::ListBulkReplays => {
                get("/v1/replays", VIEW, "List bulk replays, the newest first", Json("Page_BulkReplayView"))
            }
            Self::ShowBulkReplay => get("/v1/replays/{id}", VIEW, "Show a bulk replay", Json("BulkReplayView")),
            Self::ListBulkReplayMembers => get(
                "/v1/replays/{id}/members",
                VIEW,
                "List a bulk replay's members in the order of their turns",
                Json("Page_BulkReplayMember"),
            ),
            Self::StopBulkReplay => post("/v1/replays/{id}/stop", OPERATE, "Let no further member go")
                .answers(&[200], Json("BulkReplayChange")),
            Self::ResumeBulkReplay => post("/v1/replays/{id}/resume", OPERATE, "Let a stopped bulk replay go on")
                .answers(&[200], Json("BulkReplayChange")),
            Self::WaitForBulkReplay => get(
                "/v1/replays/{id}/wait",
                VIEW,
                "Wait until nothing of a bulk replay is under way",
                Json("BulkReplayView"),
            ),
            Self::GroupDeadLetters => get(
                "/v1/dead-letters:groups",
                VIEW,
                "Count open dead letters by kind, error class and version",
                Json("Page_DeadLetterGroup"),
            ),
            Self::ListIncidents => {
                get("/v1/incidents", VIEW, "List incidents, the newest first", Json("Page_IncidentSummary"))
            }
            Self::OpenIncident => post("/v1/incidents", OPERATE, "Open an incident; what it covers pages nobody")
                .takes(Json("OpenIncidentRequest"))
                .answers(&[201], Json("IncidentView")),
            Self::ShowIncident => {
                get("/v1/incidents/{id}", VIEW, "Show an incident with its counts and pages", Json("IncidentView"))
            }
            Self::EditIncident => post("/v1/incidents/{id}/edit", OPERATE, "Say which version is fixed")
                .takes(Json("EditIncidentRequest"))
                .answers(&[200], Json("IncidentView")),
            Self::CloseIncident => post("/v1/incidents/{id}/close", OPERATE, "Close an incident; counting starts anew")
                .takes(Json("CloseIncidentRequest"))
                .answers(&[200], Json("IncidentView")),
            Self::ListAlerts => get("/v1/alerts", VIEW, "List what needs somebody now", Json("Page_AlertView")),
            Self::ListPages => get("/v1/pages", VIEW, "List pages, the newest first", Json("Page_PageView")),
            Self::RevealDeadLetter => {
                post("/v1/dead-letters/{id}/reveal", ADMIN, "Show the original of a dead letter, and record who saw it")
                    .takes(Json("RevealRequest"))
                    .answers(&[200], Json("RevealAnswer"))
            }
            Self::ListHandlers => get("/v1/handlers", VIEW, "List stored handler versions", Json("Page_HandlerView")),
            Self::ShowHandler => {
                get("/v1/handlers/{version}", VIEW, "Show a handler version, name@1.2.3", Json("HandlerView"))
            }
            Self::PushHandler => put("/v1/handlers/{version}", ADMIN, "Store a component as name@1.2.3")
                .takes(Component)
                .answers(&[201, 200], Json("PushAnswer")),
            Self::PushSelfNamedHandler => {
                post("/v1/handlers", ADMIN, "Store a component under the name and version that it carries")
                    .takes(Component)
                    .answers(&[201, 200], Json("PushAnswer"))
            }
            Self::ActivateHandler => post("/v1/handlers/{version}/activate", OPERATE, "Make a version current")
                .answers(&[200], Json("HandlerView")),
            Self::RetireHandler => post("/v1/handlers/{version}/retire", OPERATE, "Take a version out of service")
                .answers(&[200], Json("RetireAnswer")),
            Self::ListKinds => get("/v1/kinds", VIEW, "List kinds and how they stand", Json("Page_KindView")),
            Self::PauseKind => post("/v1/kinds/{kind}/pause", OPERATE, "Stop a kind's jobs from being leased")
                .answers(&[204], Body::Empty),
            Self::ResumeKind => post("/v1/kinds/{kind}/resume", OPERATE, "Let a kind's jobs be leased again")
                .answers(&[204], Body::Empty),
            Self::Reload => {
                post("/v1/reload", ADMIN, "Apply a changed configuration").answers(&[200], Json("ReloadAnswer"))
            }
            Self::ListAudit => {
                get("/v1/audit", OPERATE, "List what operators did, the newest first", Json("Page_AuditEntry"))
            }
            Self::AddToken => post("/v1/tokens", ADMIN, "Make a token, which is shown in this one answer")
                .takes(Json("TokenRequest"))
                .answers(&[201], Json("TokenAnswer")),
            Self::ListTokens => get("/v1/tokens", ADMIN, "List tokens, the newest first", Json("Page_TokenView")),
            Self::RevokeToken => post("/v1/tokens/{token}/revoke", ADMIN, "Take a token back, by its name or id")
                .answers(&[200], Json("TokenView")),
            Self::Metrics => get("/metrics", VIEW, "The measurements in Prometheus text form", Text),
            Self::Health => get("/healthz", Access::Known, "Whether the daemon is alive", Text),
            Self::Readiness => get("/readyz", Access::Known, "Whether the daemon takes and runs jobs", Text),
            Self::OpenApi => get("/openapi.json", Access::Known, "This description", AnyJson),
        }
    }

    /// The path with its variable parts filled in, in their order, each percent-encoded.
    #[must_use]
    pub fn path_to(self, parts: &[&str]) -> String {
        let mut parts = parts.iter();
        let filled = self.route().path.split('/').map(|segment| match variable(segment) {
            Some(_) => utf8_percent_encode(parts.next().unwrap_or(&""), SEGMENT).to_string(),
            None => segment.to_owned(),
        });
        filled.collect::<Vec<_>>().join("/")
    }
}

impl Operation {
    /// What a call's path names: its variable parts, decoded; empty for a path that has none.
    #[must_use]
    pub fn subject_of(self, path: &str) -> String {
        let parts =
            self.route().path.split('/').zip(path.split('/')).filter(|(segment, _)| variable(segment).is_some());
        let parts: Vec<_> = parts.map(|(_, part)| percent_decode_str(part).decode_utf8_lossy()).collect();
        parts.join("/")
    }
}

/// What stays readable in a segment of a path; all else is percent-encoded.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'@');

/// The name of a path segment that varies.
pub(crate) fn variable(segment: &str) -> Option<&str> {
    segment.strip_prefix('{')?.strip_suffix('}')
}

fn get(path: &'static str, access: Access, summary: &'static str, answers: Body) -> Route {
    Route { method: Method::GET, path, access, summary, takes: Body::Empty, answers, statuses: &[200] }
}

fn post(path: &'static str, access: Access, summary: &'static str) -> Route {
    Route { method: Method::POST, ..get(path, access, summary, Body::Empty) }
}

fn put(path: &'static str, access: Access, summary: &'static str) -> Route {
    Route { method: Method::PUT, ..get(path, access, summary, Body::Empty) }
}

impl Route {
    fn takes(self, takes: Body) -> Self {
        Self { takes, ..self }
    }

    fn answers(self, statuses: &'static [u16], answers: Body) -> Self {
        Self { answers, statuses, ..self }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn o5_what_changes_something_needs_a_role_that_may_change_it() {
        for operation in Operation::ALL {
            let route = operation.route();
            let needed = match operation {
                Operation::EnqueueJob | Operation::EnqueueBatch => &[Role::Enqueue][..],
                // A question that is too long for an address.
                Operation::PreviewBulkReplay => &[Role::View],
                _ => &[Role::Operate, Role::Admin],
            };
            let guarded = matches!(route.access, Access::Role(role) if needed.contains(&role));
            assert!(route.method == Method::GET || guarded, "{operation:?}");
        }
    }

    #[test]
    fn every_operation_has_a_place_of_its_own() {
        let places: BTreeSet<_> = Operation::ALL.map(|o| (o.route().method.to_string(), o.route().path)).into();
        assert_eq!(places.len(), Operation::ALL.len());
    }

    #[test]
    fn what_a_path_names_is_read_as_it_was_written() {
        let version = "email-send@1.2.3+b";
        assert_eq!(Operation::ActivateHandler.subject_of(&Operation::ActivateHandler.path_to(&[version])), version);
        assert_eq!(Operation::Reload.subject_of("/v1/reload"), "");
    }

    #[test]
    fn a_part_of_a_path_cannot_leave_its_segment() {
        assert_eq!(Operation::ShowHandler.path_to(&["email-send@1.2.3+b"]), "/v1/handlers/email-send@1.2.3%2Bb");
        assert_eq!(Operation::PauseKind.path_to(&["../x?y"]), "/v1/kinds/..%2Fx%3Fy/pause");
    }
}
