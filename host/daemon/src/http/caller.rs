//! Who asks, and whether they may. Callers of the Unix socket are known by the user id that the kernel gives; they can
//! say nothing about themselves.

use axum::{
    extract::{ConnectInfo, Request, State, connect_info::Connected},
    middleware::Next,
    response::Response,
    serve::IncomingStream,
};
use http::StatusCode;
use leasehold_api::{Access, Problem, Role};
use tokio::net::UnixListener;

use super::{Api, refusal::Refusal};
use crate::config::{self, Actor};

/// The other end of a connection.
#[derive(Debug, Clone, Copy)]
pub(super) enum Peer {
    /// A user of this machine.
    Uid(u32),
    /// Somebody whom the kernel could not name.
    Unknown,
}

impl Connected<IncomingStream<'_, UnixListener>> for Peer {
    fn connect_info(stream: IncomingStream<'_, UnixListener>) -> Self {
        stream.io().peer_cred().map_or(Self::Unknown, |credentials| Self::Uid(credentials.uid()))
    }
}

/// Stands before every route: lets through whom the route's access allows, and tells the handler who it is.
pub(super) async fn authorize(
    State((api, access)): State<(Api, Access)>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    mut request: Request,
    next: Next,
) -> Result<Response, Refusal> {
    let actor = authenticate(&api, peer)?;
    if let Access::Role(needed) = access
        && !has(&actor, needed)
    {
        return Err(forbidden(&actor, needed));
    }
    request.extensions_mut().insert(actor);
    Ok(next.run(request).await)
}

fn authenticate(api: &Api, peer: Peer) -> Result<Actor, Refusal> {
    let (actor, who) = match peer {
        Peer::Uid(uid) => (api.daemon.config().actor_for_uid(uid), format!("user id {uid}")),
        Peer::Unknown => (None, "the caller's user id, which the system did not tell,".to_owned()),
    };
    actor.ok_or_else(|| {
        let detail = format!("{who} is no actor of this daemon: add it to the section [actors] of the configuration");
        Problem::new(StatusCode::UNAUTHORIZED, "unauthenticated", detail).into()
    })
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

fn forbidden(actor: &Actor, needed: Role) -> Refusal {
    let detail = format!("{} has the role {}; this needs {needed}", actor.name, actor.role.as_str());
    Problem::new(StatusCode::FORBIDDEN, "forbidden", detail).with("needed_role", needed.as_str()).into()
}

/// Lets through whoever enqueued the job, and those who may view.
pub(super) fn may_see(actor: &Actor, enqueued_by: &str) -> Result<(), Refusal> {
    if actor.name == enqueued_by || has(actor, Role::View) { Ok(()) } else { Err(forbidden(actor, Role::View)) }
}
