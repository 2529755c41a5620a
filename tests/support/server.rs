//! A real HTTP server that does not deduplicate: it records every request in full and answers as a test says. A test
//! can hold an answer back and wait until a request has arrived.

use std::{
    future::Future,
    sync::{Arc, Condvar, Mutex, OnceLock},
    time::{SystemTime, UNIX_EPOCH},
};

use axum::{
    body::to_bytes,
    extract::{Request, State},
    response::Response,
};
use tokio::sync::{Notify, oneshot};

use super::daemon::PATIENCE;

/// One request that arrived.
#[derive(Debug, Clone)]
pub struct Received {
    pub method: String,
    pub path: String,
    pub headers: Vec<(String, String)>,
    pub body: String,
    /// When it arrived, in milliseconds since 1970.
    pub at_ms: i64,
}

impl Received {
    /// A header's value.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }
}

/// What is answered.
#[derive(Debug, Clone)]
pub enum Reply {
    /// A status with headers and a body.
    Status(u16, Vec<(&'static str, String)>, String),
    /// The same, once the test lets go of held answers.
    Held(Box<Reply>),
    /// Nothing: the connection is closed.
    Broken,
}

impl Reply {
    /// A status without anything.
    pub fn status(status: u16) -> Self {
        Self::Status(status, Vec::new(), String::new())
    }
}

type Script = dyn Fn(&Received, usize) -> Reply + Send + Sync;

struct Shared {
    received: Mutex<Vec<Received>>,
    arrived: Condvar,
    script: Box<Script>,
    let_go: Notify,
}

/// The server. It ends when it is dropped.
pub struct Server {
    url: String,
    shared: Arc<Shared>,
    _stop: oneshot::Sender<()>,
}

impl Server {
    /// A server that answers every request with 200.
    pub fn accepting() -> Self {
        Self::answering(|_, _| Reply::status(200))
    }

    /// A server that answers as told; the number of a request counts from 0.
    pub fn answering(script: impl Fn(&Received, usize) -> Reply + Send + Sync + 'static) -> Self {
        let shared = Arc::new(Shared {
            received: Mutex::default(),
            arrived: Condvar::new(),
            script: Box::new(script),
            let_go: Notify::new(),
        });
        let (stop, stopped) = oneshot::channel::<()>();
        let listener = block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = axum::Router::new().fallback(answer).with_state(Arc::clone(&shared));
        runtime().spawn(async move {
            tokio::select! {
                _ = axum::serve(listener, router).into_future() => {}
                _ = stopped => {}
            }
        });
        Self { url, shared, _stop: stop }
    }

    /// Where it listens, such as `http://127.0.0.1:4711`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// What has arrived so far.
    pub fn received(&self) -> Vec<Received> {
        self.shared.received.lock().unwrap().clone()
    }

    /// Waits until this many requests have arrived.
    #[track_caller]
    pub fn wait_for(&self, count: usize) -> Vec<Received> {
        let received = self.shared.received.lock().unwrap();
        let (received, timeout) =
            self.shared.arrived.wait_timeout_while(received, PATIENCE, |received| received.len() < count).unwrap();
        assert!(!timeout.timed_out(), "{} of {count} requests arrived", received.len());
        received.clone()
    }

    /// Lets go of the answers that are held back now.
    pub fn let_go(&self) {
        self.shared.let_go.notify_waiters();
    }
}

async fn answer(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    // A request whose sender died before its end has not arrived.
    let Ok(body) = to_bytes(body, usize::MAX).await else { return respond(Reply::status(400)) };
    let received = Received {
        method: parts.method.to_string(),
        path: parts.uri.to_string(),
        headers: parts
            .headers
            .iter()
            .map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
            .collect(),
        body: String::from_utf8_lossy(&body).into_owned(),
        at_ms: i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap(),
    };
    // Enrolled before the arrival is told, so that a test can't let go too early.
    let let_go = shared.let_go.notified();
    let mut let_go = std::pin::pin!(let_go);
    let_go.as_mut().enable();
    let number = {
        let mut all = shared.received.lock().unwrap();
        all.push(received.clone());
        all.len() - 1
    };
    let reply = (shared.script)(&received, number);
    shared.arrived.notify_all();
    match reply {
        Reply::Held(reply) => {
            let_go.await;
            respond(*reply)
        }
        reply => respond(reply),
    }
}

fn respond(reply: Reply) -> Response {
    match reply {
        Reply::Status(status, headers, body) => {
            let mut response = Response::builder().status(status);
            for (name, value) in headers {
                response = response.header(name, value);
            }
            response.body(body.into()).unwrap()
        }
        // The server's task ends with its connection, as a crash of the server would end it.
        Reply::Broken | Reply::Held(_) => panic!("told to break the connection off"),
    }
}

fn runtime() -> &'static tokio::runtime::Runtime {
    static RUNTIME: OnceLock<tokio::runtime::Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap())
}

/// Waits for a future outside of any runtime.
pub fn block_on<T: Send>(future: impl Future<Output = T> + Send) -> T {
    runtime().block_on(future)
}
