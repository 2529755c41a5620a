//! One HTTP request over `wasi:http/outgoing-handler`, from its URL to the last byte of its answer. It never retries, and
//! it calls a request certainly unsent only where the host says so.

use crate::{
    bindings::wasi::{
        http::{
            outgoing_handler,
            types::{self as wit, ErrorCode},
        },
        io::streams::{InputStream, StreamError},
    },
    http::{Error, ErrorKind, Method, Request, Response, UrlParts, url_parts},
};

/// What the stream's contract lets one blocking write carry.
const WRITE_MAX_BYTES: usize = 4096;
/// How much is asked for in one read.
const READ_MAX_BYTES: u64 = 64 * 1024;

/// Sends a request and reads its answer.
pub(crate) fn send(request: &Request) -> Result<Response, Error> {
    let outgoing = outgoing_request(request, &url_parts(&request.url)?)?;
    let body = outgoing.body().map_err(|()| invalid("the request's body can't be written"))?;
    let pending = outgoing_handler::handle(outgoing, Some(options(request)?)).map_err(|code| error_of(&code))?;
    // When the body can't be sent the answer says why, or is itself a refusal that came early; so it is awaited all the same.
    let sent = write_body(body, &request.body);
    pending.subscribe().block();
    let answer = match pending.get() {
        Some(Ok(answer)) => answer.map_err(|code| error_of(&code))?,
        Some(Err(())) | None => return Err(Error::new(ErrorKind::Broken, "the answer was lost")),
    };
    let response = read_response(&answer, request.body_max_bytes)?;
    // A success that came before the whole request was sent is none that can be relied upon.
    match sent {
        Err(error) if response.is_success() => Err(error),
        _ => Ok(response),
    }
}

fn invalid(reason: &str) -> Error {
    Error::new(ErrorKind::Invalid, reason)
}

fn outgoing_request(request: &Request, parts: &UrlParts<'_>) -> Result<wit::OutgoingRequest, Error> {
    let mut headers: Vec<(String, Vec<u8>)> =
        request.headers.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.clone().into_bytes())).collect();
    if !request.body.is_empty() {
        headers.push(("content-length".into(), request.body.len().to_string().into_bytes()));
    }
    let headers = wit::Fields::from_list(&headers).map_err(|_| invalid("a header is malformed or not allowed"))?;
    let outgoing = wit::OutgoingRequest::new(headers);
    let scheme = if parts.scheme == "https" { wit::Scheme::Https } else { wit::Scheme::Http };
    outgoing
        .set_method(&method_of(request.method))
        .and_then(|()| outgoing.set_scheme(Some(&scheme)))
        .and_then(|()| outgoing.set_authority(Some(parts.authority)))
        .and_then(|()| outgoing.set_path_with_query(Some(&parts.path)))
        .map_err(|()| invalid("the URL is malformed"))?;
    Ok(outgoing)
}

fn method_of(method: Method) -> wit::Method {
    match method {
        Method::Get => wit::Method::Get,
        Method::Head => wit::Method::Head,
        Method::Options => wit::Method::Options,
        Method::Post => wit::Method::Post,
        Method::Put => wit::Method::Put,
        Method::Patch => wit::Method::Patch,
        Method::Delete => wit::Method::Delete,
    }
}

fn options(request: &Request) -> Result<wit::RequestOptions, Error> {
    let options = wit::RequestOptions::new();
    if let Some(timeout_ms) = request.timeout_ms {
        let timeout_ns = Some(timeout_ms.saturating_mul(1_000_000));
        options
            .set_connect_timeout(timeout_ns)
            .and_then(|()| options.set_first_byte_timeout(timeout_ns))
            .and_then(|()| options.set_between_bytes_timeout(timeout_ns))
            .map_err(|()| invalid("the host does not take time-outs"))?;
    }
    Ok(options)
}

fn write_body(body: wit::OutgoingBody, bytes: &[u8]) -> Result<(), Error> {
    let broken = || Error::new(ErrorKind::Broken, "the request could not be sent to its end");
    {
        let stream = body.write().map_err(|()| broken())?;
        for chunk in bytes.chunks(WRITE_MAX_BYTES) {
            stream.blocking_write_and_flush(chunk).map_err(|_| broken())?;
        }
    }
    wit::OutgoingBody::finish(body, None).map_err(|_| broken())
}

fn read_response(answer: &wit::IncomingResponse, body_max_bytes: usize) -> Result<Response, Error> {
    let broken = || Error::new(ErrorKind::Broken, "the answer could not be read to its end");
    let headers = answer.headers().entries();
    let headers = headers
        .into_iter()
        .map(|(name, value)| (name.to_ascii_lowercase(), String::from_utf8_lossy(&value).into_owned()))
        .collect();
    let body = answer.consume().map_err(|()| broken())?;
    let stream = body.stream().map_err(|()| broken())?;
    let (body, is_cut_off) = read_body(&stream, body_max_bytes)?;
    Ok(Response { status: answer.status(), headers, body, is_cut_off })
}

fn read_body(stream: &InputStream, max_bytes: usize) -> Result<(Vec<u8>, bool), Error> {
    let mut body = Vec::new();
    loop {
        match stream.blocking_read(READ_MAX_BYTES) {
            Ok(chunk) => body.extend_from_slice(&chunk),
            Err(StreamError::Closed) => return Ok((body, false)),
            Err(StreamError::LastOperationFailed(error)) => {
                return Err(wit::http_error_code(&error).map_or_else(
                    || Error::new(ErrorKind::Broken, "the answer broke off"),
                    |code| broken_answer(&code),
                ));
            }
        }
        if body.len() > max_bytes {
            body.truncate(max_bytes);
            return Ok((body, true));
        }
    }
}

/// An error while the answer is read: the request has been sent, whatever the code says.
fn broken_answer(code: &ErrorCode) -> Error {
    let error = error_of(code);
    if error.may_have_been_applied() { error } else { Error::new(ErrorKind::Broken, error.message) }
}

/// What an error code says about whether the request left. A code that does not say so counts as unknown.
fn error_of(code: &ErrorCode) -> Error {
    let (kind, message) = match code {
        ErrorCode::DnsTimeout | ErrorCode::DnsError(_) => (ErrorKind::Connect, "the name was not resolved"),
        ErrorCode::DestinationNotFound | ErrorCode::DestinationUnavailable | ErrorCode::DestinationIpUnroutable => {
            (ErrorKind::Connect, "the destination is not reachable")
        }
        ErrorCode::ConnectionRefused => (ErrorKind::Connect, "the connection was refused"),
        ErrorCode::ConnectionTimeout => (ErrorKind::Connect, "the connection took too long"),
        ErrorCode::ConnectionLimitReached => (ErrorKind::Connect, "there are too many connections"),
        ErrorCode::TlsCertificateError => (ErrorKind::Connect, "the certificate was not accepted"),
        ErrorCode::DestinationIpProhibited | ErrorCode::HttpRequestDenied => {
            (ErrorKind::Denied, "the host does not allow this request")
        }
        ErrorCode::HttpRequestLengthRequired
        | ErrorCode::HttpRequestMethodInvalid
        | ErrorCode::HttpRequestUriInvalid
        | ErrorCode::HttpRequestUriTooLong
        | ErrorCode::HttpRequestHeaderSectionSize(_)
        | ErrorCode::HttpRequestHeaderSize(_) => (ErrorKind::Invalid, "the request is malformed or too large"),
        ErrorCode::ConnectionReadTimeout | ErrorCode::ConnectionWriteTimeout | ErrorCode::HttpResponseTimeout => {
            (ErrorKind::Timeout, "no answer came in time")
        }
        _ => (ErrorKind::Broken, "the connection or the answer broke off"),
    };
    Error::new(kind, message)
}
