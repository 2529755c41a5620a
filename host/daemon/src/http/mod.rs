//! The API over HTTP: each handler parses and checks, makes one call, and gives the answer its wire type.
//!
//! Every route comes from the one table in `leasehold_api::route`, which also says who may ask. Nothing here decides
//! about a job, and nothing here is shown that was not redacted before.

mod alerts;
mod audit;
mod batch;
mod body;
mod bulk_replay_views;
mod bulk_replays;
mod caller;
mod dead_letters;
mod gate;
mod handlers;
mod incidents;
mod jobs;
mod kinds;
mod listener;
mod new_job;
mod paging;
mod path;
mod refusal;
mod rehearsals;
mod reveal;
mod router;
mod system;
#[cfg(test)]
mod tests;
mod tokens;
mod versions;
mod views;
mod words;

use std::{future::Future, io, sync::Arc};

use axum::{
    extract::connect_info::Connected,
    serve::{IncomingStream, Listener},
};
use tokio::sync::watch;

pub use listener::bind;

use caller::Peer;

use crate::daemon::Daemon;

/// What every handler has at hand.
#[derive(Clone)]
struct Api {
    daemon: Arc<Daemon>,
    /// True once the daemon is stopping, so that nobody waits any longer.
    stopping: watch::Receiver<bool>,
}

/// Serves the API until the future resolves; then it takes no new connection and ends those that are open once what
/// they asked for is answered.
#[allow(private_bounds, reason = "whoever is at the other end is this module's to know")]
pub async fn serve<L>(
    listener: L,
    daemon: Arc<Daemon>,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()>
where
    L: Listener<Addr: std::fmt::Debug>,
    Peer: for<'a> Connected<IncomingStream<'a, L>>,
{
    let (stop, stopping) = watch::channel(false);
    let service = router::router(&Api { daemon, stopping }).into_make_service_with_connect_info::<Peer>();
    let stopped = async move {
        shutdown.await;
        stop.send_replace(true);
    };
    axum::serve(listener, service).with_graceful_shutdown(stopped).await
}
