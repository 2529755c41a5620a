//! A typed client of the daemon's API, over its Unix socket or TCP. It never makes up an answer: what the daemon did not say
//! is an error.
//!
//! A request that can't do harm when it is sent twice is sent again, a bounded number of times, when its connection is
//! lost: reads, and jobs that carry a key.

mod error;
mod transport;

use std::path::PathBuf;

use bytes::Bytes;
use http::HeaderValue;
use serde::{Serialize, de::DeserializeOwned};

pub use error::ClientError;
use transport::{Answer, Endpoint, Request, Target, Token};

use crate::{
    ActivateQuery, AlertView, AuditEntry, AuditFilter, BatchAnswer, BulkReplayChange, BulkReplayFilter,
    BulkReplayMember, BulkReplayMemberFilter, BulkReplayPreview, BulkReplayPreviewRequest, BulkReplayRequest,
    BulkReplayView, CloseIncidentRequest, DeadLetterFilter, DeadLetterGroup, DeadLetterSummary, DeadLetterView,
    DiscardRequest, EditIncidentRequest, EnqueueAnswer, EnqueueRequest, HandlerView, IncidentFilter, IncidentSummary,
    IncidentView, JobFilter, JobStateAnswer, JobSummary, JobView, KindView, OpenIncidentRequest, Operation, Page,
    PageFilter, PageView, PushAnswer, RehearsalReport, RehearsalRequest, ReloadAnswer, ReplayAnswer, ReplayRequest,
    RetireAnswer, RevealAnswer, RevealRequest, TokenAnswer, TokenRequest, TokenView, WaitQuery,
};

/// A client of one daemon.
#[derive(Debug, Clone)]
pub struct Client {
    target: Target,
}

type Result<T> = std::result::Result<T, ClientError>;

impl Client {
    /// A client of the daemon that listens there; nothing is connected before the first request.
    #[must_use]
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        Self { target: Target { endpoint: Endpoint::Socket(socket.into()), token: None } }
    }

    /// A client of the daemon at `http://HOST:PORT`; nothing is connected before the first request.
    pub fn at(url: &str) -> Result<Self> {
        let authority = url.strip_prefix("http://").map(|rest| rest.trim_end_matches('/'));
        let authority = authority.and_then(|text| text.parse::<http::uri::Authority>().ok());
        let endpoint = authority.filter(|authority| authority.port().is_some() && !authority.as_str().contains('@'));
        match endpoint {
            Some(authority) => {
                Ok(Self { target: Target { endpoint: Endpoint::Network(authority.to_string()), token: None } })
            }
            None => Err(ClientError::Address { url: url.to_owned() }),
        }
    }

    /// The same client with a token, which it sends with every request.
    pub fn with_token(self, token: &str) -> Result<Self> {
        let mut value = HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| ClientError::Token)?;
        value.set_sensitive(true);
        Ok(Self { target: Target { token: Some(Token(value)), ..self.target } })
    }

    /// Sends one job in; with a key it is safe, and tried, again when the connection is lost.
    pub async fn enqueue(&self, job: &EnqueueRequest) -> Result<EnqueueAnswer> {
        let request = Request::new(Operation::EnqueueJob, &[]).json(job)?;
        self.answer(if job.key.is_some() { request.repeatable() } else { request }).await
    }

    /// Sends jobs in, one JSON document a line. Every line must carry a key when `repeatable` is said.
    pub async fn enqueue_lines(&self, lines: Bytes, repeatable: bool) -> Result<Vec<BatchAnswer>> {
        let request = Request::new(Operation::EnqueueBatch, &[]).body("application/x-ndjson", lines);
        let answer = self.send(if repeatable { request.repeatable() } else { request }).await?;
        let filled = answer.body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        filled.map(|line| serde_json::from_slice(line).map_err(ClientError::Unreadable)).collect()
    }

    /// Lists jobs.
    pub async fn jobs(&self, filter: &JobFilter) -> Result<Page<JobSummary>> {
        self.answer(Request::new(Operation::ListJobs, &[]).query(filter)?).await
    }

    /// Shows a job.
    pub async fn job(&self, id: i64) -> Result<JobView> {
        self.answer(Request::new(Operation::ShowJob, &[&id.to_string()])).await
    }

    /// Cancels a job.
    pub async fn cancel(&self, id: i64) -> Result<JobStateAnswer> {
        self.answer(Request::new(Operation::CancelJob, &[&id.to_string()])).await
    }

    /// Waits for a job's end, at most as long as the query says; then the state is as it is.
    pub async fn wait(&self, id: i64, query: &WaitQuery) -> Result<JobStateAnswer> {
        self.answer(Request::new(Operation::WaitForJob, &[&id.to_string()]).query(query)?).await
    }

    /// Lists dead letters.
    pub async fn dead_letters(&self, filter: &DeadLetterFilter) -> Result<Page<DeadLetterSummary>> {
        self.answer(Request::new(Operation::ListDeadLetters, &[]).query(filter)?).await
    }

    /// Shows a dead letter.
    pub async fn dead_letter(&self, id: i64) -> Result<DeadLetterView> {
        self.answer(Request::new(Operation::ShowDeadLetter, &[&id.to_string()])).await
    }

    /// Sends a dead letter's job back into the queue.
    pub async fn replay(&self, id: i64, replay: &ReplayRequest) -> Result<ReplayAnswer> {
        self.answer(Request::new(Operation::ReplayDeadLetter, &[&id.to_string()]).json(replay)?).await
    }

    /// Runs a dead letter with nothing applied, and reports what the run would do.
    pub async fn rehearse(&self, id: i64, rehearsal: &RehearsalRequest) -> Result<RehearsalReport> {
        self.answer(Request::new(Operation::RehearseDeadLetter, &[&id.to_string()]).json(rehearsal)?).await
    }

    /// Gives a dead letter up.
    pub async fn discard(&self, id: i64, discard: &DiscardRequest) -> Result<()> {
        self.done(Request::new(Operation::DiscardDeadLetter, &[&id.to_string()]).json(discard)?).await
    }

    /// Shows what a bulk replay would do.
    pub async fn preview_bulk_replay(&self, asked: &BulkReplayPreviewRequest) -> Result<BulkReplayPreview> {
        self.answer(Request::new(Operation::PreviewBulkReplay, &[]).json(asked)?.repeatable()).await
    }

    /// Starts a bulk replay that was previewed. It is not tried again when the connection is lost: look for it first.
    pub async fn start_bulk_replay(&self, asked: &BulkReplayRequest) -> Result<BulkReplayView> {
        self.answer(Request::new(Operation::StartBulkReplay, &[]).json(asked)?).await
    }

    /// Lists bulk replays.
    pub async fn bulk_replays(&self, filter: &BulkReplayFilter) -> Result<Page<BulkReplayView>> {
        self.answer(Request::new(Operation::ListBulkReplays, &[]).query(filter)?).await
    }

    /// Shows a bulk replay.
    pub async fn bulk_replay(&self, id: i64) -> Result<BulkReplayView> {
        self.answer(Request::new(Operation::ShowBulkReplay, &[&id.to_string()])).await
    }

    /// Lists the members of a bulk replay.
    pub async fn bulk_replay_members(
        &self,
        id: i64,
        filter: &BulkReplayMemberFilter,
    ) -> Result<Page<BulkReplayMember>> {
        self.answer(Request::new(Operation::ListBulkReplayMembers, &[&id.to_string()]).query(filter)?).await
    }

    /// Lets no further member of a bulk replay go.
    pub async fn stop_bulk_replay(&self, id: i64) -> Result<BulkReplayChange> {
        self.answer(Request::new(Operation::StopBulkReplay, &[&id.to_string()])).await
    }

    /// Lets a stopped bulk replay go on.
    pub async fn resume_bulk_replay(&self, id: i64) -> Result<BulkReplayChange> {
        self.answer(Request::new(Operation::ResumeBulkReplay, &[&id.to_string()])).await
    }

    /// Waits until nothing of a bulk replay is under way, at most as long as the query says.
    pub async fn wait_for_bulk_replay(&self, id: i64, query: &WaitQuery) -> Result<BulkReplayView> {
        self.answer(Request::new(Operation::WaitForBulkReplay, &[&id.to_string()]).query(query)?).await
    }

    /// Groups open dead letters.
    pub async fn dead_letter_groups(&self) -> Result<Page<DeadLetterGroup>> {
        self.answer(Request::new(Operation::GroupDeadLetters, &[])).await
    }

    /// Lists incidents.
    pub async fn incidents(&self, filter: &IncidentFilter) -> Result<Page<IncidentSummary>> {
        self.answer(Request::new(Operation::ListIncidents, &[]).query(filter)?).await
    }

    /// Opens an incident.
    pub async fn open_incident(&self, incident: &OpenIncidentRequest) -> Result<IncidentView> {
        self.answer(Request::new(Operation::OpenIncident, &[]).json(incident)?).await
    }

    /// Shows an incident.
    pub async fn incident(&self, id: i64) -> Result<IncidentView> {
        self.answer(Request::new(Operation::ShowIncident, &[&id.to_string()])).await
    }

    /// Changes an incident.
    pub async fn edit_incident(&self, id: i64, edit: &EditIncidentRequest) -> Result<IncidentView> {
        self.answer(Request::new(Operation::EditIncident, &[&id.to_string()]).json(edit)?).await
    }

    /// Closes an incident.
    pub async fn close_incident(&self, id: i64, close: &CloseIncidentRequest) -> Result<IncidentView> {
        self.answer(Request::new(Operation::CloseIncident, &[&id.to_string()]).json(close)?).await
    }

    /// Lists what needs somebody now.
    pub async fn alerts(&self) -> Result<Page<AlertView>> {
        self.answer(Request::new(Operation::ListAlerts, &[])).await
    }

    /// Lists pages.
    pub async fn pages(&self, filter: &PageFilter) -> Result<Page<PageView>> {
        self.answer(Request::new(Operation::ListPages, &[]).query(filter)?).await
    }

    /// Shows the original of a dead letter, once that is on record.
    pub async fn reveal(&self, id: i64, reveal: &RevealRequest) -> Result<RevealAnswer> {
        self.answer(Request::new(Operation::RevealDeadLetter, &[&id.to_string()]).json(reveal)?).await
    }

    /// Lists stored handler versions.
    pub async fn handlers(&self) -> Result<Page<HandlerView>> {
        self.answer(Request::new(Operation::ListHandlers, &[])).await
    }

    /// Shows a handler version, `name@1.2.3`.
    pub async fn handler(&self, version: &str) -> Result<HandlerView> {
        self.answer(Request::new(Operation::ShowHandler, &[version])).await
    }

    /// Stores a component, under the version named or else the one that it carries. The same bytes may be sent again,
    /// so it is tried again when the connection is lost.
    pub async fn push_handler(&self, version: Option<&str>, component: Bytes) -> Result<PushAnswer> {
        let request = match version {
            Some(version) => Request::new(Operation::PushHandler, &[version]),
            None => Request::new(Operation::PushSelfNamedHandler, &[]),
        };
        self.answer(request.body("application/wasm", component).repeatable()).await
    }

    /// Makes a version current.
    pub async fn activate_handler(&self, version: &str, query: ActivateQuery) -> Result<HandlerView> {
        self.answer(Request::new(Operation::ActivateHandler, &[version]).query(&query)?).await
    }

    /// Takes a version out of service.
    pub async fn retire_handler(&self, version: &str) -> Result<RetireAnswer> {
        self.answer(Request::new(Operation::RetireHandler, &[version])).await
    }

    /// Lists kinds and how they stand.
    pub async fn kinds(&self) -> Result<Page<KindView>> {
        self.answer(Request::new(Operation::ListKinds, &[])).await
    }

    /// Stops a kind's jobs from being leased.
    pub async fn pause_kind(&self, kind: &str) -> Result<()> {
        self.done(Request::new(Operation::PauseKind, &[kind])).await
    }

    /// Lets a kind's jobs be leased again.
    pub async fn resume_kind(&self, kind: &str) -> Result<()> {
        self.done(Request::new(Operation::ResumeKind, &[kind])).await
    }

    /// Applies a changed configuration.
    pub async fn reload(&self) -> Result<ReloadAnswer> {
        self.answer(Request::new(Operation::Reload, &[])).await
    }

    /// Lists what operators did.
    pub async fn audit(&self, filter: &AuditFilter) -> Result<Page<AuditEntry>> {
        self.answer(Request::new(Operation::ListAudit, &[]).query(filter)?).await
    }

    /// Makes a token.
    pub async fn add_token(&self, token: &TokenRequest) -> Result<TokenAnswer> {
        self.answer(Request::new(Operation::AddToken, &[]).json(token)?).await
    }

    /// Lists tokens.
    pub async fn tokens(&self) -> Result<Page<TokenView>> {
        self.answer(Request::new(Operation::ListTokens, &[])).await
    }

    /// Takes a token back, by its name or id.
    pub async fn revoke_token(&self, token: &str) -> Result<TokenView> {
        self.answer(Request::new(Operation::RevokeToken, &[token])).await
    }

    /// The measurements, in Prometheus text form.
    pub async fn metrics(&self) -> Result<String> {
        let answer = self.send(Request::new(Operation::Metrics, &[])).await?;
        Ok(String::from_utf8_lossy(&answer.body).into_owned())
    }

    /// Whether the daemon takes and runs jobs.
    pub async fn ready(&self) -> Result<()> {
        self.done(Request::new(Operation::Readiness, &[])).await
    }

    async fn answer<T: DeserializeOwned>(&self, request: Request) -> Result<T> {
        let answer = self.send(request).await?;
        serde_json::from_slice(&answer.body).map_err(ClientError::Unreadable)
    }

    async fn done(&self, request: Request) -> Result<()> {
        self.send(request).await.map(drop)
    }

    /// Sends the request, and again when that is safe; an answer that is no success becomes an error.
    async fn send(&self, request: Request) -> Result<Answer> {
        let answer = transport::send(&self.target, &request).await?;
        if answer.status.is_success() { Ok(answer) } else { Err(refused(&answer)) }
    }
}

/// The problem that the answer carries; an answer that carries none is still named by its status.
fn refused(answer: &Answer) -> ClientError {
    match serde_json::from_slice(&answer.body) {
        Ok(problem) => ClientError::Refused(Box::new(problem)),
        Err(_) => ClientError::Unexpected { status: answer.status },
    }
}

impl Request {
    fn json(self, body: &impl Serialize) -> Result<Self> {
        let bytes = serde_json::to_vec(body).map_err(ClientError::Unwritable)?;
        Ok(self.body("application/json", bytes.into()))
    }

    fn query(mut self, query: &impl Serialize) -> Result<Self> {
        let encoded = serde_urlencoded::to_string(query).map_err(ClientError::Query)?;
        if !encoded.is_empty() {
            self.path = format!("{}?{encoded}", self.path);
        }
        Ok(self)
    }
}
