//! What a call over TCP has to look like before anybody asks who sent it: nothing that a web page of another origin can
//! make a browser send. It decides by what is sent alone, and no answer ever carries a header that would let such a page
//! read it.
//!
//! A page that lets its own name resolve to this machine (DNS rebinding) sends that name as `Host`; one that sends across
//! origins has its `Origin` sent along; a form can't send JSON.

use std::net::SocketAddr;

use http::{HeaderMap, StatusCode, Uri, header, request::Parts, uri::Authority};
use leasehold_api::{Problem, route::Body};

/// Lets a call pass that was sent to this address, or says why not. `hosts` are further names, in lower case.
pub(super) fn check(local: SocketAddr, hosts: &[String], call: &Parts, takes: Body) -> Result<(), Problem> {
    let host = host(&call.headers, &call.uri).filter(|host| is_allowed(host, local, hosts));
    let host = host.ok_or_else(|| host_not_allowed(local))?;
    if let Some(origin) = call.headers.get(header::ORIGIN)
        && !origin.to_str().is_ok_and(|origin| is_same_origin(origin, &host))
    {
        let detail = "the call comes from a web page of another origin; the API serves none";
        return Err(Problem::new(StatusCode::FORBIDDEN, "origin_not_allowed", detail));
    }
    check_content_type(&call.headers, takes)
}

/// The one host that the call names. Two that differ, or none, are no host.
fn host(headers: &HeaderMap, uri: &Uri) -> Option<Authority> {
    let mut named = headers.get_all(header::HOST).iter();
    let host: Authority = named.next()?.to_str().ok()?.parse().ok()?;
    let is_one = named.next().is_none() && uri.authority().is_none_or(|authority| *authority == host);
    (is_one && !host.as_str().contains('@')).then_some(host)
}

/// The address that was called, a name that only this machine has, or a name of the configuration, whose port is a
/// proxy's.
fn is_allowed(host: &Authority, local: SocketAddr, hosts: &[String]) -> bool {
    let name = host.host().to_ascii_lowercase();
    if hosts.contains(&name) {
        return true;
    }
    let ip = local.ip().to_canonical();
    let literal = if ip.is_ipv6() { format!("[{ip}]") } else { ip.to_string() };
    let is_here = name == literal || (name == "localhost" && ip.is_loopback());
    is_here && host.port_u16().unwrap_or(80) == local.port()
}

fn is_same_origin(origin: &str, host: &Authority) -> bool {
    let authority = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    authority.is_some_and(|authority| authority.eq_ignore_ascii_case(host.as_str()))
}

fn host_not_allowed(local: SocketAddr) -> Problem {
    let detail = format!(
        "the call names a host that is not this API's; allowed is {local}, and what `hosts` under [api] of the \
         configuration names"
    );
    Problem::new(StatusCode::FORBIDDEN, "host_not_allowed", detail)
}

fn check_content_type(headers: &HeaderMap, takes: Body) -> Result<(), Problem> {
    let Some(needed) = takes.media_type() else { return Ok(()) };
    let sent = headers.get(header::CONTENT_TYPE).and_then(|sent| sent.to_str().ok()).unwrap_or_default();
    let essence = sent.split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case(needed) {
        return Ok(());
    }
    let detail = format!("the body has to be sent with the header `content-type: {needed}`");
    Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "content_type_not_allowed", detail))
}

#[cfg(test)]
mod tests {
    use super::*;

    const JSON: Body = Body::Json("EnqueueRequest");

    fn call(uri: &str, headers: &[(&str, &str)]) -> Parts {
        let builder = headers
            .iter()
            .fold(http::Request::builder().uri(uri), |builder, (name, value)| builder.header(*name, *value));
        builder.body(()).unwrap().into_parts().0
    }

    fn code(local: &str, headers: &[(&str, &str)], takes: Body) -> Option<String> {
        let hosts = ["queue.example.com".to_owned()];
        check(local.parse().unwrap(), &hosts, &call("/v1/jobs", headers), takes).err().map(|problem| problem.code)
    }

    #[test]
    fn o5_a_call_names_the_address_that_it_was_sent_to() {
        let host = |local: &str, host: &str| code(local, &[("host", host)], Body::Empty);
        for (local, name) in [
            ("127.0.0.1:7878", "127.0.0.1:7878"),
            ("127.0.0.1:7878", "LocalHost:7878"),
            ("[::1]:7878", "[::1]:7878"),
            ("[::ffff:127.0.0.1]:7878", "127.0.0.1:7878"),
            ("127.0.0.1:80", "localhost"),
            ("10.0.0.7:7878", "10.0.0.7:7878"),
            ("10.0.0.7:7878", "queue.example.com"),
            ("10.0.0.7:7878", "Queue.Example.com:443"),
        ] {
            assert_eq!(host(local, name), None, "{name} at {local}");
        }
        for (local, name) in [
            ("127.0.0.1:7878", "evil.example:7878"),
            ("127.0.0.1:7878", "localhost.evil.example:7878"),
            ("127.0.0.1:7878", "127.0.0.1"),
            ("127.0.0.1:7878", "127.0.0.1:7879"),
            ("127.0.0.1:7878", "a@127.0.0.1:7878"),
            ("127.0.0.1:7878", ""),
            ("10.0.0.7:7878", "localhost:7878"),
            ("10.0.0.7:7878", "10.0.0.8:7878"),
        ] {
            assert_eq!(host(local, name).as_deref(), Some("host_not_allowed"), "{name} at {local}");
        }
    }

    #[test]
    fn o5_a_call_that_names_no_host_or_two_does_not_pass() {
        let local = "127.0.0.1:7878";
        assert_eq!(code(local, &[], Body::Empty).as_deref(), Some("host_not_allowed"));
        let two = [("host", local), ("host", "evil.example:7878")];
        assert_eq!(code(local, &two, Body::Empty).as_deref(), Some("host_not_allowed"));
        let absolute = call("http://evil.example/v1/jobs", &[("host", local)]);
        assert!(check(local.parse().unwrap(), &[], &absolute, Body::Empty).is_err());
    }

    #[test]
    fn o5_a_page_of_another_origin_does_not_pass() {
        let origin = |origin: &str| code("127.0.0.1:7878", &[("host", "127.0.0.1:7878"), ("origin", origin)], JSON);
        for other in ["null", "http://evil.example", "http://127.0.0.1", "http://localhost:7878", "file://", ""] {
            assert_eq!(origin(other).as_deref(), Some("origin_not_allowed"), "{other}");
        }
        // Its own origin may send; it still needs a token.
        assert_eq!(origin("http://127.0.0.1:7878").as_deref(), Some("content_type_not_allowed"));
    }

    #[test]
    fn o5_a_body_needs_the_media_type_that_no_form_can_send() {
        let sent = |sent: &str| code("127.0.0.1:7878", &[("host", "127.0.0.1:7878"), ("content-type", sent)], JSON);
        assert_eq!(sent("application/json"), None);
        assert_eq!(sent("Application/JSON; charset=utf-8"), None);
        for form in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "", "application/jsonx"]
        {
            assert_eq!(sent(form).as_deref(), Some("content_type_not_allowed"), "{form}");
        }
    }
}
