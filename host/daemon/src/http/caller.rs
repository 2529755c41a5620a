//! Who asks, and whether they may. A call that carries a token is its bearer's; one on the Unix socket without a token is
//! the user's whom the kernel names. Callers can say nothing else about themselves, and whoever is refused is on record.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use axum::{
    extract::{ConnectInfo, Request, State, connect_info::Connected},
    middleware::Next,
    response::Response,
    serve::IncomingStream,
};
use http::{HeaderMap, Method, StatusCode, header, request::Parts};
use leasehold_api::{Access, Operation, Problem, Role, route::Body};
use leasehold_domain::{refusals::Refused, token::TokenState};
use tokio::net::{TcpListener, UnixListener};

use super::{
    Api, body, gate,
    refusal::{Refusal, problem_of_store},
};
use crate::{
    config::{self, Actor},
    redact,
    tokens::{Bearer, state_text},
};

/// The other end of a connection.
#[derive(Debug, Clone, Copy)]
pub(super) enum Peer {
    /// A user of this machine.
    Uid(u32),
    /// Somebody on the Unix socket whom the kernel could not name.
    Unknown,
    /// Somebody on the network.
    Network {
        /// Where the call comes from.
        remote: IpAddr,
        /// Which of this machine's addresses it came to.
        local: SocketAddr,
    },
}

impl Connected<IncomingStream<'_, UnixListener>> for Peer {
    fn connect_info(stream: IncomingStream<'_, UnixListener>) -> Self {
        stream.io().peer_cred().map_or(Self::Unknown, |credentials| Self::Uid(credentials.uid()))
    }
}

impl Connected<IncomingStream<'_, TcpListener>> for Peer {
    fn connect_info(stream: IncomingStream<'_, TcpListener>) -> Self {
        // A connection that has no address any more is gone; no host matches the one that stands for it.
        let local = stream.io().local_addr().unwrap_or_else(|_| SocketAddr::from(([0, 0, 0, 0], 0)));
        Self::Network { remote: stream.remote_addr().ip().to_canonical(), local }
    }
}

impl Peer {
    /// How the log names somebody of whom no more is known.
    fn name(self) -> String {
        match self {
            Self::Uid(uid) => format!("uid:{uid}"),
            Self::Unknown => "uid:unknown".to_owned(),
            Self::Network { remote, .. } => format!("peer:{remote}"),
        }
    }

    fn address(self) -> Option<String> {
        match self {
            Self::Network { remote, .. } => Some(remote.to_string()),
            Self::Uid(_) | Self::Unknown => None,
        }
    }
}

/// A call that is not let through.
struct Denied {
    /// Who it was, as far as that is known.
    actor: String,
    problem: Problem,
}

/// Stands before every route, and before what is no route: lets through whom the route's access allows, and tells the
/// handler who it is. What is refused here, and what the handler refuses of an act, goes on record.
pub(super) async fn authorize(
    State((api, operation)): State<(Api, Option<Operation>)>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    request: Request,
    next: Next,
) -> Result<Response, Refusal> {
    let (mut parts, body) = request.into_parts();
    let (body, rest) = body::watched(body);
    let answer = match admit(&api, operation, peer, &parts).await {
        Ok(actor) => {
            let (name, path) = (actor.name.clone(), parts.uri.path().to_owned());
            parts.extensions.insert(actor);
            let response = next.run(Request::from_parts(parts, body)).await;
            if let (Some(operation), Some(problem)) = (operation, response.extensions().get::<Problem>()) {
                record_answer(&api, name, peer, operation, &path, problem).await;
            }
            Ok(response)
        }
        Err(Denied { actor, problem }) => {
            drop(body);
            record(&api, refused(actor, peer, operation, &problem), &problem).await;
            Err(problem.into())
        }
    };
    rest.discard().await;
    answer
}

async fn admit(api: &Api, operation: Option<Operation>, peer: Peer, call: &Parts) -> Result<Actor, Denied> {
    let route = operation.map(Operation::route);
    let takes = route.as_ref().map_or(Body::Empty, |route| route.takes);
    if let Peer::Network { local, .. } = peer {
        let hosts = &api.daemon.config().api.hosts;
        gate::check(local, hosts, call, takes).map_err(|problem| Denied { actor: peer.name(), problem })?;
    }
    let actor = authenticate(api, peer, &call.headers).await?;
    match route.map(|route| route.access) {
        Some(Access::Role(needed)) if !has(&actor, needed) => {
            Err(Denied { problem: role_required(&actor, needed), actor: actor.name })
        }
        _ => Ok(actor),
    }
}

async fn authenticate(api: &Api, peer: Peer, headers: &HeaderMap) -> Result<Actor, Denied> {
    let denied = |problem| Denied { actor: peer.name(), problem };
    if let Some(token) = token(headers) {
        return bearer(api, token, peer).await;
    }
    match peer {
        Peer::Uid(uid) => {
            let actor = api.daemon.config().actor_for_uid(uid);
            actor.ok_or_else(|| denied(unknown_user(&format!("user id {uid}"))))
        }
        Peer::Unknown => Err(denied(unknown_user("the caller's user id, which the system did not tell,"))),
        Peer::Network { .. } => Err(denied(unknown_token())),
    }
}

/// The token that the call carries (RFC 6750, 2.1). Other schemes say nothing here.
fn token(headers: &HeaderMap) -> Option<&str> {
    let sent = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = sent.split_once(' ').unwrap_or((sent, ""));
    scheme.eq_ignore_ascii_case("Bearer").then(|| token.trim())
}

/// Whose call it is by the token that it carries.
async fn bearer(api: &Api, token: &str, peer: Peer) -> Result<Actor, Denied> {
    let denied = |problem| Denied { actor: peer.name(), problem };
    match api.daemon.bearer(token).await {
        Ok(Bearer::Known(actor)) => Ok(actor),
        Ok(Bearer::Former(actor, state)) => Err(Denied { problem: former_token(&actor, state), actor: actor.name }),
        Ok(Bearer::Nobody) => Err(denied(unknown_token())),
        Err(error) => Err(denied(problem_of_store(&error))),
    }
}

fn unknown_user(who: &str) -> Problem {
    let detail = format!("{who} is no actor of this daemon: add it to the section [actors] of the configuration");
    unauthenticated("unauthenticated", detail)
}

/// One answer for no token, a malformed one and an unknown one.
fn unknown_token() -> Problem {
    let detail = "send a token that this daemon knows, as `Authorization: Bearer lh_…`; an admin makes one with \
                  `leasehold tokens add`";
    unauthenticated("unauthenticated", detail)
}

fn former_token(actor: &Actor, state: TokenState) -> Problem {
    let state = state_text(state);
    let detail = format!("the token of {} is {state}; an admin makes another with `leasehold tokens add`", actor.name);
    unauthenticated(&format!("token_{state}"), detail)
}

fn unauthenticated(code: &str, detail: impl Into<String>) -> Problem {
    Problem::new(StatusCode::UNAUTHORIZED, code, detail)
}

/// Whether the actor's role is enough for what needs that one.
pub(super) fn has(actor: &Actor, needed: Role) -> bool {
    actor.role.permits(match needed {
        Role::Enqueue => config::Role::Enqueue,
        Role::View => config::Role::View,
        Role::Operate => config::Role::Operate,
        Role::Admin => config::Role::Admin,
    })
}

fn role_required(actor: &Actor, needed: Role) -> Problem {
    let detail = format!("{} has the role {}; this needs {needed}", actor.name, actor.role.as_str());
    Problem::new(StatusCode::FORBIDDEN, "role_required", detail).with("needed_role", needed.as_str())
}

/// Lets through whoever enqueued the job, and those who may view.
pub(super) fn may_see(actor: &Actor, enqueued_by: &str) -> Result<(), Problem> {
    if actor.name == enqueued_by || has(actor, Role::View) { Ok(()) } else { Err(role_required(actor, Role::View)) }
}

/// Puts on record what a handler answered to somebody who was let in: a lacking role, and an act that was refused. A
/// question that has no answer is no act.
async fn record_answer(api: &Api, actor: String, peer: Peer, operation: Operation, path: &str, problem: &Problem) {
    let route = operation.route();
    let is_act = route.method != Method::GET && matches!(route.access, Access::Role(Role::Operate | Role::Admin));
    let lacks_role = problem.status == StatusCode::FORBIDDEN.as_u16();
    if !is_act && !lacks_role {
        return;
    }
    // What a caller typed is masked where it looks like personal data, as everything of theirs in the log.
    let subject = is_act.then(|| redact::words(&api.daemon.config(), operation.subject_of(path)));
    record(api, Refused { subject, ..refused(actor, peer, Some(operation), problem) }, problem).await;
}

fn refused(actor: String, peer: Peer, operation: Option<Operation>, problem: &Problem) -> Refused {
    Refused {
        actor,
        operation: operation.map_or_else(|| "unknown".to_owned(), |operation| format!("{operation:?}")),
        subject: None,
        code: problem.code.clone(),
        needed_role: problem.extra.get("needed_role").and_then(|role| role.as_str()).map(str::to_owned),
        peer: peer.address(),
    }
}

/// Puts the refusal into the audit log. What only failed is no refusal.
async fn record(api: &Api, refused: Refused, problem: &Problem) {
    if problem.status < 500 {
        let daemon = Arc::clone(&api.daemon);
        // Also when who was refused goes away: refusals of others that were counted are written with it.
        let _ = tokio::spawn(async move { daemon.note_refusal(refused).await }).await;
    }
}
