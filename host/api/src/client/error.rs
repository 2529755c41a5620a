//! What can go wrong between the client and the daemon.

use std::{io, path::PathBuf};

use http::StatusCode;

use crate::Problem;

/// Why a request has no good answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens at the socket.
    #[error("no daemon is listening at {path}: start one with `leasehold serve`, or name its socket with --socket")]
    NoDaemon {
        /// The socket.
        path: PathBuf,
        /// What the connection said.
        source: io::Error,
    },
    /// Nobody answers at the address.
    #[error(
        "no daemon can be reached at {address}: {source}; it listens there only with `listen` under [api] of its configuration"
    )]
    NoServer {
        /// The host and port.
        address: String,
        /// What the connection said.
        source: io::Error,
    },
    /// The address is none that this client can speak to.
    #[error("{url:?} is no address of a daemon; allowed is http://HOST:PORT (for TLS, go through a tunnel or a proxy)")]
    Address {
        /// What was given.
        url: String,
    },
    /// The token can't be sent as it is.
    #[error("the token holds characters that no token has")]
    Token,
    /// The socket is there and may not be used.
    #[error("the daemon's socket {path} can't be opened: {source}")]
    Socket {
        /// The socket.
        path: PathBuf,
        /// What the connection said.
        source: io::Error,
    },
    /// The connection broke before the answer was whole; whether the request took effect is not known.
    #[error("the connection to the daemon was lost before it had answered ({attempts} tries): {source}")]
    Lost {
        /// How often it was tried.
        attempts: u32,
        /// How the connection broke.
        source: hyper::Error,
    },
    /// The daemon refused the request or failed at it, and says why.
    #[error(transparent)]
    Refused(Box<Problem>),
    /// The answer is no answer of this API.
    #[error("the daemon answered with {status} and no explanation")]
    Unexpected {
        /// The answer's status.
        status: StatusCode,
    },
    /// The answer could not be read.
    #[error("the daemon's answer could not be read: {0}")]
    Unreadable(#[source] serde_json::Error),
    /// The request could not be written as JSON.
    #[error("the request could not be written: {0}")]
    Unwritable(#[source] serde_json::Error),
    /// The request's filter could not be written into its address.
    #[error("the request's filter could not be written: {0}")]
    Query(#[source] serde_urlencoded::ser::Error),
    /// The request's parts do not make a request.
    #[error("the request could not be built: {0}")]
    Request(#[source] http::Error),
}

impl ClientError {
    /// A stable code for programs: the daemon's own where it gave one.
    #[must_use]
    pub fn code(&self) -> &str {
        match self {
            Self::NoDaemon { .. } | Self::NoServer { .. } => "no_daemon",
            Self::Address { .. } => "address_invalid",
            Self::Token => "token_invalid",
            Self::Socket { .. } => "socket_unusable",
            Self::Lost { .. } => "connection_lost",
            Self::Refused(problem) => &problem.code,
            Self::Unexpected { .. } | Self::Unreadable(_) => "unexpected_answer",
            Self::Unwritable(_) | Self::Query(_) | Self::Request(_) => "invalid_request",
        }
    }

    /// Whether no daemon could be reached at all.
    #[must_use]
    pub const fn is_unreachable(&self) -> bool {
        matches!(self, Self::NoDaemon { .. } | Self::NoServer { .. } | Self::Socket { .. } | Self::Lost { .. })
    }
}
