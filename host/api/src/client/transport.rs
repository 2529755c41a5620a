//! One request over one connection to the daemon, and its bounded repetition. It never repeats what isn't safe.

use std::{fmt, io, path::PathBuf, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Method, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
};

use super::ClientError;
use crate::Operation;

/// How often a request is sent at most.
const ATTEMPTS_MAX: u32 = 5;
/// The delay before the second try; each further one doubles it.
const FIRST_DELAY_MS: u64 = 100;

/// Where the daemon listens.
#[derive(Debug, Clone)]
pub(super) enum Endpoint {
    /// At a Unix socket.
    Socket(PathBuf),
    /// At a host and port.
    Network(String),
}

/// Whom the daemon listens to, and what proves it.
#[derive(Debug, Clone)]
pub(super) struct Target {
    pub(super) endpoint: Endpoint,
    pub(super) token: Option<Token>,
}

/// A token as the header that carries it. It is shown nowhere.
#[derive(Clone)]
pub(super) struct Token(pub(super) HeaderValue);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// A request that can be sent several times.
pub(super) struct Request {
    method: Method,
    pub(super) path: String,
    content_type: Option<&'static str>,
    body: Bytes,
    repeatable: bool,
}

/// A whole answer.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) body: Bytes,
}

impl Request {
    /// A request without a body. Reads are repeatable.
    pub(super) fn new(operation: Operation, parts: &[&str]) -> Self {
        let method = operation.route().method;
        let repeatable = method == Method::GET;
        Self { method, path: operation.path_to(parts), content_type: None, body: Bytes::new(), repeatable }
    }

    pub(super) fn body(self, content_type: &'static str, body: Bytes) -> Self {
        Self { content_type: Some(content_type), body, ..self }
    }

    /// Says that the request may be sent again though its first sending may have taken effect.
    pub(super) fn repeatable(self) -> Self {
        Self { repeatable: true, ..self }
    }
}

/// Sends the request; sends it again when the connection is lost and that is safe. A first connection that fails is
/// not tried again, since nobody listens; a later one is, since the daemon may be starting again.
pub(super) async fn send(target: &Target, request: &Request) -> Result<Answer, ClientError> {
    let mut attempt = 1;
    loop {
        let error = match send_once(target, request).await {
            Ok(answer) => return Ok(answer),
            Err(ClientError::Lost { source, .. }) => ClientError::Lost { attempts: attempt, source },
            Err(error) => error,
        };
        let lost = matches!(error, ClientError::Lost { .. });
        let gone = attempt > 1 && matches!(error, ClientError::NoDaemon { .. } | ClientError::NoServer { .. });
        if !request.repeatable || attempt == ATTEMPTS_MAX || !(lost || gone) {
            return Err(error);
        }
        tokio::time::sleep(Duration::from_millis(FIRST_DELAY_MS << (attempt - 1))).await;
        attempt += 1;
    }
}

async fn send_once(target: &Target, request: &Request) -> Result<Answer, ClientError> {
    match &target.endpoint {
        Endpoint::Socket(path) => {
            let stream = UnixStream::connect(path).await.map_err(|source| unreachable_socket(path, source))?;
            send_over(stream, target, "leasehold", request).await
        }
        Endpoint::Network(authority) => {
            let unreachable = |source| ClientError::NoServer { address: authority.clone(), source };
            let stream = TcpStream::connect(authority).await.map_err(unreachable)?;
            send_over(stream, target, authority, request).await
        }
    }
}

async fn send_over(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    target: &Target,
    host: &str,
    request: &Request,
) -> Result<Answer, ClientError> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(lost)?;
    // The connection ends with its one exchange, and says nothing that the exchange does not say.
    let driver = tokio::spawn(connection);
    let answer = exchange(&mut sender, built(request, host, target.token.as_ref())?).await;
    driver.abort();
    answer
}

async fn exchange(
    sender: &mut http1::SendRequest<Full<Bytes>>,
    request: http::Request<Full<Bytes>>,
) -> Result<Answer, ClientError> {
    let response = sender.send_request(request).await.map_err(lost)?;
    let status = response.status();
    let body = response.into_body().collect().await.map_err(lost)?.to_bytes();
    Ok(Answer { status, body })
}

fn built(request: &Request, host: &str, token: Option<&Token>) -> Result<http::Request<Full<Bytes>>, ClientError> {
    let mut builder = http::Request::builder()
        .method(request.method.clone())
        .uri(&request.path)
        .header(header::HOST, host)
        .header(header::CONNECTION, "close");
    if let Some(content_type) = request.content_type {
        builder = builder.header(header::CONTENT_TYPE, content_type);
    }
    if let Some(Token(value)) = token {
        builder = builder.header(header::AUTHORIZATION, value);
    }
    builder.body(Full::new(request.body.clone())).map_err(ClientError::Request)
}

fn lost(source: hyper::Error) -> ClientError {
    ClientError::Lost { attempts: 1, source }
}

fn unreachable_socket(socket: &std::path::Path, source: io::Error) -> ClientError {
    let path = socket.to_owned();
    match source.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => ClientError::NoDaemon { path, source },
        _ => ClientError::Socket { path, source },
    }
}
