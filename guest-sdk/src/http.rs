//! Outbound HTTP. An error says whether the request may have been applied, which is what a step needs to know. It never
//! follows a redirect, never sends twice, and never puts a URL, a header or a body into an error.

use std::time::UNIX_EPOCH;

use serde::{Serialize, de::DeserializeOwned};

use crate::{Failure, StepError, host};

/// How much of an answer's body is read unless the request says otherwise.
const BODY_MAX_BYTES: usize = 256 * 1024;

/// A request's method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are HTTP's own")]
pub enum Method {
    Get,
    Head,
    Options,
    Post,
    Put,
    Patch,
    Delete,
}

/// A request to be sent. It has no `Debug`: its headers carry secrets.
pub struct Request {
    pub(crate) method: Method,
    pub(crate) url: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) timeout_ms: Option<u64>,
    pub(crate) body_max_bytes: usize,
    invalid: Option<String>,
}

impl Request {
    /// A request by that method.
    pub fn new(method: Method, url: impl Into<String>) -> Self {
        Self {
            method,
            url: url.into(),
            headers: Vec::new(),
            body: Vec::new(),
            timeout_ms: None,
            body_max_bytes: BODY_MAX_BYTES,
            invalid: None,
        }
    }

    /// A GET request.
    pub fn get(url: impl Into<String>) -> Self {
        Self::new(Method::Get, url)
    }

    /// A POST request.
    pub fn post(url: impl Into<String>) -> Self {
        Self::new(Method::Post, url)
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Sets the body.
    #[must_use]
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// Sets the body to this value as JSON, and the content type with it.
    #[must_use]
    pub fn json(mut self, value: &impl Serialize) -> Self {
        match serde_json::to_vec(value) {
            Ok(text) => self.body(text).header("content-type", "application/json"),
            Err(error) => {
                self.invalid = Some(error.to_string());
                self
            }
        }
    }

    /// How long to wait for a connection, for the answer's first byte, and between its bytes. The host has an upper bound.
    #[must_use]
    pub fn timeout_ms(mut self, timeout_ms: u64) -> Self {
        self.timeout_ms = Some(timeout_ms);
        self
    }

    /// How much of the answer's body is read; what is longer is cut off and marked as such.
    #[must_use]
    pub fn body_max_bytes(mut self, body_max_bytes: usize) -> Self {
        self.body_max_bytes = body_max_bytes;
        self
    }

    /// Sends the request and waits for the whole answer, whatever its status.
    pub fn send(self) -> Result<Response, Error> {
        match &self.invalid {
            Some(reason) => Err(Error::new(ErrorKind::Invalid, reason)),
            None => host::send(&self),
        }
    }
}

/// The parts of a URL that a request needs.
pub(crate) struct UrlParts<'a> {
    /// `http` or `https`.
    pub(crate) scheme: &'a str,
    /// Host and port.
    pub(crate) authority: &'a str,
    /// Path and query, beginning with a slash.
    pub(crate) path: String,
}

/// Takes a URL apart; nothing but plain http and https URLs without credentials is accepted.
pub(crate) fn url_parts(url: &str) -> Result<UrlParts<'_>, Error> {
    let invalid = |reason: &str| Error::new(ErrorKind::Invalid, reason);
    let (scheme, rest) = url.split_once("://").ok_or_else(|| invalid("the URL has no scheme"))?;
    if scheme != "http" && scheme != "https" {
        return Err(invalid("the URL is neither http nor https"));
    }
    let rest = rest.split('#').next().unwrap_or_default();
    let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    if authority.is_empty() || authority.contains('@') {
        return Err(invalid("the URL has no host, or credentials before it"));
    }
    let slash = if path.starts_with('/') { "" } else { "/" };
    Ok(UrlParts { scheme, authority, path: format!("{slash}{path}") })
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// The headers, their names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body, as far as it was read.
    pub body: Vec<u8>,
    /// Whether the body was longer than what the request wanted to read.
    pub is_cut_off: bool,
}

impl Response {
    /// The first header of that name, which is given in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.as_str())
    }

    /// Whether the status is one of success.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// The body read as JSON, if it is of that form.
    pub fn json<T: DeserializeOwned>(&self) -> Option<T> {
        serde_json::from_slice(&self.body).ok()
    }

    /// How long `Retry-After` asks to wait, given the time: it is a number of seconds or a date.
    pub fn retry_after_ms(&self, now_ms: u64) -> Option<u64> {
        let value = self.header("retry-after")?.trim();
        if let Ok(seconds) = value.parse::<u64>() {
            return Some(seconds.saturating_mul(1000));
        }
        let date = httpdate::parse_http_date(value).ok()?.duration_since(UNIX_EPOCH).ok()?;
        let date_ms = u64::try_from(date.as_millis()).ok()?;
        Some(date_ms.saturating_sub(now_ms))
    }
}

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The request was malformed; nothing was sent.
    Invalid,
    /// The host refuses to send this request; nothing was sent.
    Denied,
    /// There was no connection; nothing was sent.
    Connect,
    /// No answer came in time; the request may have been applied.
    Timeout,
    /// The connection or the answer broke off; the request may have been applied.
    Broken,
}

/// A request without an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// Why there is no answer.
    pub kind: ErrorKind,
    /// Words for a person, without anything of the request.
    pub message: String,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// Whether the request may have been applied downstream.
    pub fn may_have_been_applied(&self) -> bool {
        matches!(self.kind, ErrorKind::Timeout | ErrorKind::Broken)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error.kind {
            ErrorKind::Invalid => Self::poison("request.invalid", error.message),
            ErrorKind::Denied => Self::rejected("downstream.denied", error.message),
            ErrorKind::Connect => Self::retry("downstream.connect", error.message),
            ErrorKind::Timeout => Self::retry("downstream.timeout", error.message),
            ErrorKind::Broken => Self::retry("downstream.unavailable", error.message),
        }
    }
}

impl From<Error> for StepError {
    fn from(error: Error) -> Self {
        if error.may_have_been_applied() { Self::Unknown(error.into()) } else { Self::NotApplied(error.into()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(retry_after: &str) -> Response {
        Response {
            status: 429,
            headers: vec![("retry-after".into(), retry_after.into())],
            body: Vec::new(),
            is_cut_off: false,
        }
    }

    #[test]
    fn q9_retry_after_is_read_as_seconds_and_as_a_date() {
        let now_ms = 1_700_000_000_000; // 2023-11-14T22:13:20Z
        assert_eq!(answer("120").retry_after_ms(now_ms), Some(120_000));
        assert_eq!(answer("Tue, 14 Nov 2023 22:14:20 GMT").retry_after_ms(now_ms), Some(60_000));
        assert_eq!(answer("Tue, 14 Nov 2023 22:00:00 GMT").retry_after_ms(now_ms), Some(0));
        assert_eq!(answer("soon").retry_after_ms(now_ms), None);
    }

    #[test]
    fn a_url_is_taken_apart() {
        let parts = url_parts("https://api.example:8443/v1/send?x=1#top").expect("a good URL");
        assert_eq!((parts.scheme, parts.authority, parts.path.as_str()), ("https", "api.example:8443", "/v1/send?x=1"));
        assert_eq!(url_parts("http://h?x").expect("a good URL").path, "/?x");
        assert_eq!(url_parts("http://h").expect("a good URL").path, "/");
        for bad in ["api.example/x", "ftp://h/", "http:///x", "https://user:pass@h/"] {
            assert_eq!(url_parts(bad).map(|_| ()).map_err(|error| error.kind), Err(ErrorKind::Invalid), "{bad}");
        }
    }

    #[test]
    fn i3_an_error_says_whether_the_request_may_have_been_applied() {
        let is_unknown = |kind| matches!(StepError::from(Error::new(kind, "")), StepError::Unknown(_));
        assert!(!is_unknown(ErrorKind::Invalid));
        assert!(!is_unknown(ErrorKind::Denied));
        assert!(!is_unknown(ErrorKind::Connect));
        assert!(is_unknown(ErrorKind::Timeout));
        assert!(is_unknown(ErrorKind::Broken));
    }
}
