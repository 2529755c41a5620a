//! Answers in the network's place: what a rehearsal's guest sends is shown to whoever stands there, and goes nowhere. Its
//! grants, its address and its step are held to as if it went out. Nothing is resolved or dialled here.

use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response, request::Parts};
use http_body_util::{BodyExt, Full, Limited};
use leasehold_domain::{Outcome, Problem};
use wasmtime_wasi_http::{Error, WasiBody};

use super::{Answer, Permitted, dial, send};
use crate::attempt::Attempt;

/// How much of a request's body is shown; the rest is counted.
const BODY_SHOWN_MAX_BYTES: usize = 256 << 10;

/// A request that its guest was allowed to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboundRequest {
    /// The method.
    pub method: String,
    /// The whole URL.
    pub url: String,
    /// Names and values in their order, with the step's `Idempotency-Key`. Bytes that are no UTF-8 are replaced.
    pub headers: Vec<(String, String)>,
    /// The body; nothing when it is larger than what is shown.
    pub body: Option<Vec<u8>>,
    /// The body's length.
    pub body_bytes: u64,
}

/// What comes back.
#[derive(Debug)]
pub enum Answered {
    /// A response.
    Response(Response<Bytes>),
    /// No answer in time.
    TimedOut,
    /// No connection: the request certainly did not leave.
    NotConnected,
    /// The connection broke once the request had left.
    Broken,
    /// There is no answer: the attempt ends here.
    Unanswered,
}

/// Whoever stands in the network's place for one attempt. It is asked once for each request, in their order.
pub type Answers = Arc<dyn Fn(OutboundRequest) -> Answered + Send + Sync>;

/// Shows a permitted request and gives its guest the answer.
pub(super) async fn answer(
    attempt: Arc<Attempt>,
    request: Request<WasiBody>,
    permitted: Permitted,
    answers: Answers,
) -> Result<Answer, Error> {
    dial::check_written_out(&permitted.destination, &permitted.grant)?;
    send::enter(&attempt, &permitted, request.method())?;
    let (parts, body) = request.into_parts();
    let shown = show(&parts, body).await?;
    match answers(shown) {
        Answered::Response(response) => Ok((limited(response, &attempt), Box::new(std::future::ready(Ok(()))))),
        Answered::TimedOut => Err(Error::HttpResponseTimeout),
        Answered::NotConnected => Err(Error::ConnectionRefused),
        Answered::Broken => Err(Error::ConnectionTerminated),
        Answered::Unanswered => {
            let message = "the rehearsal has no answer to a request".to_owned();
            attempt.end(Outcome::Broke { problem: Problem::new("rehearsal.unanswered", message) });
            // The guest gets nothing to go on with: it waits here until it is stopped.
            std::future::pending().await
        }
    }
}

async fn show(parts: &Parts, mut body: WasiBody) -> Result<OutboundRequest, Error> {
    let (mut shown, mut length) = (Vec::new(), 0);
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame?.into_data() {
            length += data.len();
            if length <= BODY_SHOWN_MAX_BYTES {
                shown.extend_from_slice(&data);
            }
        }
    }
    let headers = parts.headers.iter();
    Ok(OutboundRequest {
        method: parts.method.to_string(),
        url: parts.uri.to_string(),
        headers: headers.map(|(name, value)| (name.to_string(), lossy(value.as_bytes()))).collect(),
        body: (length <= BODY_SHOWN_MAX_BYTES).then_some(shown),
        body_bytes: u64::try_from(length).unwrap_or(u64::MAX),
    })
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The body is bounded as one from the network is.
fn limited(response: Response<Bytes>, attempt: &Attempt) -> Response<WasiBody> {
    let most = attempt.limits.response_max_bytes;
    let too_large = move |_| Error::HttpResponseBodySize(u64::try_from(most).ok());
    response.map(|bytes| Limited::new(Full::new(bytes), most).map_err(too_large).boxed_unsync())
}
