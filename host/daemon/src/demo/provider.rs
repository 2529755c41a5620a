//! The demo's payment provider: a real HTTP server that does not deduplicate. It counts what reaches it, by order.

use std::{
    future::IntoFuture as _,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::{
    Json, Router,
    extract::State,
    http::{HeaderMap, StatusCode, Uri},
    routing::post,
};
use serde_json::Value;
use tokio::net::TcpListener;

/// An order that the provider takes its time for, so that its lease has to be extended.
pub(super) const SLOW_ORDER: &str = "A-1001";
/// How long it takes: longer than the lease holds by itself.
const SLOWNESS: Duration = Duration::from_millis(1_800);

/// One request.
#[derive(Debug, Clone)]
struct Seen {
    path: String,
    order: String,
    idempotency_key: Option<String>,
}

type Requests = Arc<Mutex<Vec<Seen>>>;

/// The server; it ends with the process.
pub(super) struct Provider {
    url: String,
    requests: Requests,
}

impl Provider {
    pub(super) async fn start() -> std::io::Result<Self> {
        let requests = Requests::default();
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let router = Router::new()
            .route("/charges", post(take))
            .route("/receipts", post(take))
            .with_state(Arc::clone(&requests));
        tokio::spawn(axum::serve(listener, router).into_future());
        Ok(Self { url, requests })
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// How many requests for an order reached a path.
    pub(super) fn count(&self, path: &str, order: &str) -> usize {
        self.seen().iter().filter(|seen| seen.path == path && seen.order == order).count()
    }

    /// Whether every request carried an idempotency key.
    pub(super) fn all_keyed(&self) -> bool {
        self.seen().iter().all(|seen| seen.idempotency_key.is_some())
    }

    fn seen(&self) -> Vec<Seen> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn take(State(requests): State<Requests>, uri: Uri, headers: HeaderMap, Json(body): Json<Value>) -> StatusCode {
    let order = body["order"].as_str().unwrap_or_default().to_owned();
    let idempotency_key = headers.get("idempotency-key").and_then(|value| value.to_str().ok()).map(str::to_owned);
    let is_slow = order == SLOW_ORDER && uri.path() == "/charges";
    let seen = Seen { path: uri.path().to_owned(), order, idempotency_key };
    requests.lock().unwrap_or_else(PoisonError::into_inner).push(seen);
    if is_slow {
        // The provider is slow on purpose; this is no waiting for anything.
        tokio::time::sleep(SLOWNESS).await;
    }
    StatusCode::CREATED
}
