//! Sends a permitted request: connect, enter it in the ledger, write it, wait for its answer. Whatever fails before the
//! ledger's entry leaves the open step untouched.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use http::{Method, Request, Uri};
use http_body_util::BodyExt;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use wasmtime_wasi_http::{Error, RequestOptions, WasiBody};

use super::{
    Answer, Permitted,
    body::{AnswerBody, InFlight},
    dial, refusal_text,
};
use crate::{attempt::Attempt, job_log::LogLevel};

/// Time-outs that a guest did not set. The attempt's deadline bounds them all.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) async fn send(
    attempt: Arc<Attempt>,
    request: Request<WasiBody>,
    permitted: Permitted,
    options: RequestOptions,
) -> Result<Answer, Error> {
    let in_flight = InFlight::new(attempt.clone());
    let deadline = attempt.deadline;
    let dialling = dial::dial(&permitted.destination, &permitted.grant);
    let connect_timeout = Some(options.connect_timeout.unwrap_or(CONNECT_TIMEOUT));
    let connection = within(connect_timeout, deadline, Error::ConnectionTimeout, dialling).await??;
    let (mut sender, driver) = http1::handshake(TokioIo::new(connection)).await.map_err(|error| broken(&error))?;
    let request = in_origin_form(request)?;
    enter(&attempt, &permitted, request.method())?;
    // The task is stopped with the attempt: it belongs to what this future or its answer holds.
    let driver = wasmtime_wasi::runtime::spawn(driver);
    let answering = sender.send_request(request);
    let answer = within(options.first_byte_timeout, deadline, Error::HttpResponseTimeout, answering)
        .await?
        .map_err(|error| broken(&error))?;
    let between = options.between_bytes_timeout;
    let body_max_bytes = attempt.limits.response_max_bytes;
    let answer = answer.map(|incoming| AnswerBody::new(incoming, body_max_bytes, between, in_flight).boxed_unsync());
    Ok((answer, Box::new(async move { driver.await.map_err(|error| broken(&error)) })))
}

/// The last look before the first byte leaves.
pub(super) fn enter(attempt: &Attempt, permitted: &Permitted, method: &Method) -> Result<(), Error> {
    let entered = attempt.ledger().send(permitted.unsafe_request.as_ref());
    entered.map_err(|refusal| {
        attempt.log.write(LogLevel::Warn, &refusal_text(refusal, method, &permitted.destination));
        Error::HttpRequestDenied
    })
}

/// To an origin only the path is sent; scheme and authority would make it a proxy's request.
fn in_origin_form(mut request: Request<WasiBody>) -> Result<Request<WasiBody>, Error> {
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str()).to_owned();
    *request.uri_mut() = Uri::builder().path_and_query(path).build().map_err(|_| Error::HttpRequestUriInvalid)?;
    Ok(request)
}

/// Waits no longer than the guest asked for. A wait that would outlast the attempt is ended by the attempt's own
/// deadline, so that its outcome says what the guest was waiting for.
async fn within<T>(
    timeout: Option<Duration>,
    deadline: Instant,
    error: Error,
    future: impl Future<Output = T>,
) -> Result<T, Error> {
    let left = deadline.saturating_duration_since(Instant::now());
    match timeout.filter(|timeout| *timeout < left) {
        Some(timeout) => tokio::time::timeout(timeout, future).await.map_err(|_| error),
        None => Ok(future.await),
    }
}

/// What a guest is told of a connection that broke once the request may have left.
pub(super) fn broken(error: &hyper::Error) -> Error {
    if error.is_timeout() {
        Error::HttpResponseTimeout
    } else if error.is_incomplete_message() {
        Error::HttpResponseIncomplete
    } else if error.is_parse() {
        Error::HttpProtocolError
    } else {
        Error::ConnectionTerminated
    }
}
