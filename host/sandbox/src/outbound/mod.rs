//! Outbound HTTP: every request of a guest is decided by its grants, dialled to an address that was checked, and entered
//! in the ledger before its first byte leaves. Redirects are never followed, and a refusal is an error code for the
//! guest, never a trap.

mod address;
pub(crate) mod answers;
mod body;
mod dial;
pub(crate) mod grant;
mod send;
pub(crate) mod tls;

use std::sync::Arc;

use http::{HeaderName, HeaderValue, Method, Request, Response};
use leasehold_domain::grants::OutboundGrant;
use wasmtime_wasi_http::{Error, RequestOptions, WasiBody, WasiHttpHooks};

use crate::{
    attempt::Attempt,
    job_log::LogLevel,
    ledger::{SendRefusal, UnsafeRequest},
    outbound::grant::Destination,
};

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

type Answer = (Response<WasiBody>, Box<dyn Future<Output = Result<(), Error>> + Send>);

/// A request that may be dialled.
struct Permitted {
    destination: Destination,
    grant: OutboundGrant,
    unsafe_request: Option<UnsafeRequest>,
}

/// The outbound side of one attempt.
pub(crate) struct Outbound(Arc<Attempt>);

impl Outbound {
    pub(crate) fn new(attempt: Arc<Attempt>) -> Self {
        Self(attempt)
    }

    /// Decides about a request and gives it the step's key.
    fn permit(&self, request: &mut Request<WasiBody>) -> Result<Permitted, Error> {
        let attempt = &self.0;
        // The guest learns of a broken limit as a refusal; the attempt is ended by the switch.
        attempt.count_call().map_err(|_| Error::HttpRequestDenied)?;
        let destination = Destination::of(request.uri()).map_err(|reason| {
            attempt.log.write(LogLevel::Warn, &format!("an outbound request was refused: {reason}"));
            Error::HttpRequestUriInvalid
        })?;
        let grants = &attempt.grants.outbound;
        let granted = grant::decide(grants, &destination, request.method().as_str()).map_err(|refusal| {
            attempt.log.write(LogLevel::Warn, &refusal.to_string());
            Error::HttpRequestDenied
        })?;
        let unsafe_request = self.place(request, &destination, granted)?;
        Ok(Permitted { destination, grant: granted.clone(), unsafe_request })
    }

    fn place(
        &self,
        request: &mut Request<WasiBody>,
        destination: &Destination,
        granted: &OutboundGrant,
    ) -> Result<Option<UnsafeRequest>, Error> {
        if is_safe(request.method()) {
            return Ok(None);
        }
        let has_own_key = request.headers().contains_key(IDEMPOTENCY_KEY);
        let placed = self.0.ledger().place_unsafe(has_own_key, granted.outside_step);
        let (unsafe_request, key) = placed.map_err(|refusal| self.refused(refusal, request.method(), destination))?;
        if let Some(key) = key {
            // A key that is no header value can't be the host's own; such a request is not sent without one.
            let value = HeaderValue::from_str(&key).map_err(|_| Error::InternalError(None))?;
            request.headers_mut().insert(IDEMPOTENCY_KEY, value);
        }
        Ok(Some(unsafe_request))
    }

    fn refused(&self, refusal: SendRefusal, method: &Method, destination: &Destination) -> Error {
        let message = refusal_text(refusal, method, destination);
        self.0.log.write(LogLevel::Warn, &message);
        if refusal == SendRefusal::OutsideStep {
            self.0.ledger().refused_outside_step = Some(message);
        }
        Error::HttpRequestDenied
    }
}

fn is_safe(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

fn refusal_text(refusal: SendRefusal, method: &Method, destination: &Destination) -> String {
    match refusal {
        SendRefusal::Ended => format!("{method} {destination} was refused: the attempt has ended"),
        SendRefusal::OutsideStep => format!(
            "{method} {destination} was refused: outside a step only GET, HEAD and OPTIONS leave the host; make the \
             request inside a step, or grant the destination with `outside_step = true`"
        ),
        SendRefusal::StepClosed => {
            format!("{method} {destination} was refused: the step that it was made under is no longer open")
        }
        SendRefusal::SecondInStep => format!(
            "{method} {destination} was refused: the step has sent an unsafe request already; use a step for each, or \
             set an Idempotency-Key header on each"
        ),
    }
}

impl WasiHttpHooks for Outbound {
    fn send_request(
        &mut self,
        mut request: Request<WasiBody>,
        options: Option<RequestOptions>,
        // What becomes of the response's body afterwards is of no consequence here.
        _response_processed: Box<dyn Future<Output = Result<(), Error>> + Send>,
    ) -> Box<dyn Future<Output = Result<Answer, Error>> + Send> {
        match self.permit(&mut request) {
            Ok(permitted) => match self.0.answers.clone() {
                Some(answers) => Box::new(answers::answer(self.0.clone(), request, permitted, answers)),
                None => Box::new(send::send(self.0.clone(), request, permitted, options.unwrap_or_default())),
            },
            Err(error) => Box::new(std::future::ready(Err(error))),
        }
    }
}
