//! Reads what a request carries, never more of it than its limit, and says what is wrong with it in the API's words.

use std::{
    sync::{Arc, Mutex, PoisonError},
    task::Context,
    time::Duration,
};

use axum::{
    body::{Body, BodyDataStream},
    extract::Query,
};
use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt as _, stream};
use http::Uri;
use serde::de::DeserializeOwned;

use super::{
    Api,
    refusal::{Refusal, malformed, too_large},
};
use crate::config::Config;

/// How much of a body that is too large is still read, so that its sender gets to hear why it was refused.
const DROPPED_MAX_BYTES: usize = 256 << 20;
/// Room for the names, the numbers and the white space around a payload.
const ENVELOPE_MAX_BYTES: usize = 64 << 10;

/// How long the rest of a body is read whose answer stands already.
const REST_PATIENCE: Duration = Duration::from_secs(10);

/// What a call's reader leaves of its body.
pub(super) struct Rest(Arc<Mutex<BodyDataStream>>);

/// Keeps hold of a body beside the one who reads it.
pub(super) fn watched(body: Body) -> (Body, Rest) {
    let rest = Rest(Arc::new(Mutex::new(body.into_data_stream())));
    let read = Arc::clone(&rest.0);
    let next =
        move |context: &mut Context<'_>| read.lock().unwrap_or_else(PoisonError::into_inner).poll_next_unpin(context);
    (Body::from_stream(stream::poll_fn(next)), rest)
}

impl Rest {
    /// Reads what is left of a body, within bounds, once nobody reads it any more: a connection that is closed on a
    /// sender takes the answer with it that says why.
    pub(super) async fn discard(self) {
        let Some(chunks) = Arc::into_inner(self.0) else { return };
        let mut chunks = chunks.into_inner().unwrap_or_else(PoisonError::into_inner);
        let read_on = async {
            let mut dropped_bytes = 0;
            while let Some(Ok(chunk)) = chunks.next().await {
                dropped_bytes += chunk.len();
                if dropped_bytes > DROPPED_MAX_BYTES {
                    break;
                }
            }
        };
        let _ = tokio::time::timeout(REST_PATIENCE, read_on).await;
    }
}

/// Reads a body whole.
pub(super) async fn read(body: Body, limit_bytes: usize) -> Result<Bytes, Refusal> {
    let mut chunks = body.into_data_stream();
    let mut read = BytesMut::new();
    let mut dropped_bytes = 0;
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|error| malformed(format!("the body could not be read: {error}")))?;
        if dropped_bytes > 0 || read.len() + chunk.len() > limit_bytes {
            read = BytesMut::new();
            dropped_bytes += chunk.len();
        } else {
            read.extend_from_slice(&chunk);
        }
        if dropped_bytes > DROPPED_MAX_BYTES {
            break;
        }
    }
    if dropped_bytes > 0 { Err(too_large("the body", limit_bytes).into()) } else { Ok(read.freeze()) }
}

/// Reads a body that is one JSON document.
pub(super) async fn read_json<T: DeserializeOwned>(body: Body, api: &Api) -> Result<T, Refusal> {
    let bytes = read(body, document_max_bytes(&api.daemon.config())).await?;
    parse(&bytes)
}

/// Reads one JSON document; the error names the place and what was expected there.
pub(super) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Refusal> {
    // A sequence would be read as a record's fields in their order, which is no promise of this API.
    if bytes.trim_ascii_start().first() != Some(&b'{') {
        return Err(malformed("this is not a JSON object".to_owned()));
    }
    serde_json::from_slice(bytes).map_err(|error| malformed(format!("this is not what was expected: {error}")))
}

/// The largest document that can hold a job within the configured limits: base64 makes four bytes of three, and an
/// escape makes six of one.
pub(super) fn document_max_bytes(config: &Config) -> usize {
    let queue = &config.queue;
    let names_bytes = queue.metadata_max_bytes + queue.key_length_max_bytes + queue.lane_length_max_bytes;
    (queue.payload_max_bytes / 3 + 1) * 4 + names_bytes * 6 + ENVELOPE_MAX_BYTES
}

/// Reads the query of an address.
pub(super) fn query<T: DeserializeOwned>(uri: &Uri) -> Result<T, Refusal> {
    let query = Query::try_from_uri(uri).map_err(|error| malformed(format!("the query is wrong: {error}")))?;
    let Query(read) = query;
    Ok(read)
}
