//! The answers that stand in for the network in a rehearsal. A request takes the first one that matches it; none is taken
//! twice. Nothing is made up: a request without an answer gets none.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Response, StatusCode, header::CONTENT_TYPE};
use leasehold_api::{RehearsalAnswer, RequestFailure};
use leasehold_sandbox::{Answered, OutboundRequest};

use super::RehearsalError;

/// How many answers a rehearsal is given at most.
const ANSWERS_MAX: usize = 1_000;

/// One answer that may be taken.
struct Scripted {
    method: Option<String>,
    url: String,
    gives: Result<Response<Bytes>, RequestFailure>,
}

/// The answers that have not been taken, in the order in which they were given.
#[derive(Default)]
pub(super) struct Script(Vec<Scripted>);

impl Script {
    /// Reads the answers as they were sent; the error names the first that is none by its place.
    pub(super) fn read(answers: Vec<RehearsalAnswer>) -> Result<Self, RehearsalError> {
        if answers.len() > ANSWERS_MAX {
            let why = format!("at most {ANSWERS_MAX} answers are taken, {} were given", answers.len());
            return Err(RehearsalError::Answer { place: ANSWERS_MAX + 1, why });
        }
        let numbered = answers.into_iter().enumerate();
        let read =
            numbered.map(|(at, answer)| scripted(answer).map_err(|why| RehearsalError::Answer { place: at + 1, why }));
        Ok(Self(read.collect::<Result<_, _>>()?))
    }

    /// Takes the first answer that matches, and says what it is in a word.
    pub(super) fn take(&mut self, request: &OutboundRequest) -> (Answered, String) {
        let matches = |answer: &Scripted| {
            answer.method.as_ref().is_none_or(|method| *method == request.method) && matches(&answer.url, &request.url)
        };
        let Some(at) = self.0.iter().position(matches) else {
            return (Answered::Unanswered, "unanswered".to_owned());
        };
        match self.0.remove(at).gives {
            Ok(response) => {
                let status = response.status().as_str().to_owned();
                (Answered::Response(response), status)
            }
            Err(RequestFailure::NotConnected) => (Answered::NotConnected, "not_connected".to_owned()),
            Err(RequestFailure::TimedOut) => (Answered::TimedOut, "timed_out".to_owned()),
            Err(RequestFailure::Broken) => (Answered::Broken, "broken".to_owned()),
        }
    }

    /// How many answers are left.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

fn scripted(answer: RehearsalAnswer) -> Result<Scripted, String> {
    let RehearsalAnswer { method, url, status, headers, body, body_text, failure } = answer;
    if url.is_empty() {
        return Err("its url is empty; give the request's whole URL, where * stands for anything".to_owned());
    }
    let says_more = status.is_some() || !headers.is_empty() || body.is_some() || body_text.is_some();
    let gives = match failure {
        Some(_) if says_more => return Err("a failure has no status, header or body".to_owned()),
        Some(failure) => Err(failure),
        None => Ok(response(status.unwrap_or(200), &headers, body.map(|body| body.get().to_owned()), body_text)?),
    };
    Ok(Scripted { method, url, gives })
}

fn response(
    status: u16,
    headers: &BTreeMap<String, String>,
    json: Option<String>,
    text: Option<String>,
) -> Result<Response<Bytes>, String> {
    let is_json = json.is_some();
    let body = match (json, text) {
        (Some(_), Some(_)) => return Err("give body or body_text, not both".to_owned()),
        (json, text) => json.or(text).unwrap_or_default(),
    };
    let mut response = Response::new(Bytes::from(body));
    let refused = || format!("its status is {status}; a final status is 200 to 599");
    *response.status_mut() =
        StatusCode::from_u16(status).ok().filter(|status| (200..600).contains(&status.as_u16())).ok_or_else(refused)?;
    if is_json {
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    for (name, value) in headers {
        let refused = || format!("{name:?} and its value are no header");
        let name = HeaderName::try_from(name).map_err(|_| refused())?;
        let value = HeaderValue::try_from(value).map_err(|_| refused())?;
        response.headers_mut().insert(name, value);
    }
    Ok(response)
}

/// Whether a text matches a pattern in which `*` stands for anything. It takes time linear in the text for each star.
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| text.strip_prefix(first)) else { return false };
    let mut parts: Vec<_> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(json: &str) -> RehearsalAnswer {
        serde_json::from_str(json).unwrap()
    }

    fn request(method: &str, url: &str) -> OutboundRequest {
        let (method, url) = (method.to_owned(), url.to_owned());
        OutboundRequest { method, url, headers: Vec::new(), body: None, body_bytes: 0 }
    }

    #[test]
    fn r7_a_star_stands_for_anything_and_nothing_else_does() {
        for (pattern, text, expected) in [
            ("https://a/b", "https://a/b", true),
            ("https://a/b", "https://a/bc", false),
            ("https://a/*", "https://a/b?c=*", true),
            ("*/b*d", "https://a/bcd", true),
            ("*b*b", "ab", false),
            ("*", "", true),
            ("a*a", "a", false),
            ("a.c", "abc", false),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn r7_answers_are_taken_in_order_and_once() {
        let answers = [
            r#"{"method": "GET", "url": "http://a/*", "status": 404}"#,
            r#"{"url": "http://a/x", "body": {"n": 1}}"#,
            r#"{"url": "http://a/x", "failure": "timed_out"}"#,
        ];
        let mut script = Script::read(answers.map(answer).into()).unwrap();
        let mut take = |method, url| script.take(&request(method, url)).1;
        assert_eq!(take("POST", "http://a/x"), "200");
        assert_eq!(take("POST", "http://a/x"), "timed_out");
        assert_eq!(take("POST", "http://a/x"), "unanswered");
        assert_eq!(take("GET", "http://a/x"), "404");
        assert_eq!(script.len(), 0);
    }

    #[test]
    fn r7_what_is_no_answer_is_named_by_its_place() {
        for wrong in [
            r#"{"url": ""}"#,
            r#"{"url": "*", "status": 99}"#,
            r#"{"url": "*", "status": 101}"#,
            r#"{"url": "*", "body": 1, "body_text": "1"}"#,
            r#"{"url": "*", "failure": "broken", "status": 200}"#,
            r#"{"url": "*", "headers": {"a b": "c"}}"#,
        ] {
            let error = Script::read(vec![answer(r#"{"url": "*"}"#), answer(wrong)]).err().expect(wrong);
            assert!(error.to_string().starts_with("answer 2 "), "{error}");
        }
    }
}
