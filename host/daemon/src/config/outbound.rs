//! Grants of outbound HTTP, as `"POST https://api.example.com"` or as a table. It never resolves a name.

use std::{collections::BTreeSet, net::IpAddr};

use leasehold_domain::grants::OutboundGrant;

use super::reader::Entry;

/// What a grant allows when it names no method.
const DEFAULT_METHODS: [&str; 3] = ["GET", "HEAD", "OPTIONS"];
const METHODS: [&str; 7] = ["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"];
const FORM: &str = "allowed is scheme://host or scheme://host:port with http or https, where the host may be *, \
                    *.example.org or an address, without a path; methods may stand before it, as in \"GET,POST https://api.example.org\"";

/// Reads one grant.
pub(super) fn read(entry: &Entry<'_>) -> Option<OutboundGrant> {
    let grant = if entry.is_table() { read_table(entry) } else { read_text(&entry.text_as("a string or a table")?) };
    grant.map_err(|message| entry.error(message)).ok()
}

/// An error here was not recorded yet.
type Read<T> = Result<T, String>;

fn read_text(text: &str) -> Read<OutboundGrant> {
    match text.rsplit_once(' ') {
        None => grant(text, DEFAULT_METHODS.map(str::to_owned).into()),
        Some((methods, url)) => {
            let methods = methods.split([',', ' ']).filter(|method| !method.is_empty());
            grant(url, methods.map(check_method).collect::<Read<_>>()?)
        }
    }
}

fn read_table(entry: &Entry<'_>) -> Read<OutboundGrant> {
    let section = entry.section();
    let private = section.boolean("private", false);
    let outside_step = section.boolean("outside_step", false);
    let methods = match section.entry("methods") {
        None => Ok(DEFAULT_METHODS.map(str::to_owned).into()),
        Some(methods) => {
            methods.elements().iter().filter_map(Entry::text).map(|method| check_method(&method)).collect()
        }
    };
    let url = section.entry("url").map(|url| url.text().unwrap_or_default());
    section.refuse_unknown();
    let grant = grant(&url.ok_or("url is missing")?, methods?)?;
    Ok(OutboundGrant { private: private || grant.private, outside_step, ..grant })
}

fn check_method(method: &str) -> Read<String> {
    let method = method.to_ascii_uppercase();
    if METHODS.contains(&&*method) {
        return Ok(method);
    }
    Err(format!("{method:?} is no method that can be granted; allowed are {}", METHODS.join(", ")))
}

fn grant(url: &str, methods: BTreeSet<String>) -> Read<OutboundGrant> {
    let wrong = || format!("{url:?} is no destination; {FORM}");
    let (scheme, authority) = url.split_once("://").ok_or_else(wrong)?;
    let default_port = match scheme {
        "http" => 80,
        "https" => 443,
        _ => return Err(wrong()),
    };
    let (host, port) = split_port(authority.strip_suffix('/').unwrap_or(authority)).ok_or_else(wrong)?;
    let host = host.to_ascii_lowercase();
    let private = is_named_address(&host);
    if !private && !is_host_pattern(&host) {
        return Err(wrong());
    }
    let port = port.unwrap_or(default_port);
    Ok(OutboundGrant { scheme: scheme.to_owned(), host, port, methods, private, outside_step: false })
}

/// Splits an authority into host and port; an IPv6 address loses its brackets.
fn split_port(authority: &str) -> Option<(&str, Option<u16>)> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(bracketed) => {
            let (address, rest) = bracketed.split_once(']')?;
            address.parse::<std::net::Ipv6Addr>().ok()?;
            (address, if rest.is_empty() { None } else { Some(rest.strip_prefix(':')?) })
        }
        None => authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port))),
    };
    let port = match port {
        None => None,
        Some(digits) => Some(digits.parse().ok().filter(|port| *port != 0)?),
    };
    Some((host, port))
}

/// An address that is written out, or `localhost`, is granted as what it is, also when it is a private one.
fn is_named_address(host: &str) -> bool {
    host.parse::<IpAddr>().is_ok() || host == "localhost"
}

fn is_host_pattern(host: &str) -> bool {
    let name = host.strip_prefix("*.").unwrap_or(host);
    let is_label = |label: &str| {
        !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    host == "*" || name.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Read<OutboundGrant> {
        let methods = |methods: &[&str]| methods.iter().map(|&method| method.to_owned()).collect();
        grant(text, methods(&["GET"]))
    }

    #[test]
    fn h6_a_destination_is_a_scheme_a_host_and_a_port() {
        let parts = |text: &str| read(text).map(|grant| (grant.scheme, grant.host, grant.port, grant.private)).unwrap();
        let expected = |scheme: &str, host: &str, port, private| (scheme.to_owned(), host.to_owned(), port, private);
        assert_eq!(parts("https://API.example.org/"), expected("https", "api.example.org", 443, false));
        assert_eq!(parts("http://*.example.org:8080"), expected("http", "*.example.org", 8080, false));
        assert_eq!(parts("https://*"), expected("https", "*", 443, false));
        assert_eq!(parts("http://127.0.0.1:9000"), expected("http", "127.0.0.1", 9000, true));
        assert_eq!(parts("http://[::1]:9000"), expected("http", "::1", 9000, true));
    }

    #[test]
    fn h6_what_is_no_destination_is_refused() {
        for text in [
            "",
            "api.example.org",
            "ftp://a.org",
            "https://",
            "https://a.org/path",
            "https://user@a.org",
            "https://a..org",
            "https://*a.org",
            "https://a.*.org",
            "https://a.org:0",
            "https://a.org:99999",
            "https://a.org:",
            "https://[x]",
            "https://[::1]9",
            "https://a.org?x=1",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn h6_a_method_that_can_not_be_granted_is_refused() {
        assert_eq!(check_method("post"), Ok("POST".to_owned()));
        assert!(check_method("CONNECT").is_err());
    }
}
