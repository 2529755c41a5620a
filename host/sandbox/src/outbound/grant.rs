//! Whether a request's destination is granted: a pure decision over scheme, host, port and method. It never resolves a
//! name; what a name resolves to is checked by `address`.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use http::Uri;
use leasehold_domain::grants::OutboundGrant;

/// A host as it is compared: a name in lower case without its final dot, or an address whatever its notation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Host {
    Name(String),
    Address(IpAddr),
}

impl Host {
    /// Reads a host as browsers do, so that `127.1`, `0x7f000001` and `2130706433` are the address that they are.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if let Some(inner) = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
            return inner.parse::<Ipv6Addr>().ok().map(|address| Self::Address(IpAddr::V6(address)));
        }
        let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_'));
        if name.is_empty() || name.len() > 253 || !is_plain || name.split('.').any(str::is_empty) {
            return None;
        }
        let last = name.rsplit('.').next().unwrap_or_default();
        if is_number(last) {
            return ipv4(&name).map(|address| Self::Address(IpAddr::V4(address)));
        }
        Some(Self::Name(name))
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
            Self::Address(IpAddr::V4(address)) => address.fmt(f),
        }
    }
}

fn is_number(label: &str) -> bool {
    label.bytes().all(|byte| byte.is_ascii_digit())
        || label.strip_prefix("0x").is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// An IPv4 address in any notation: one to four numbers, each decimal, octal or hexadecimal, the last one filling the
/// rest.
fn ipv4(text: &str) -> Option<Ipv4Addr> {
    let parts = text.split('.').map(number).collect::<Option<Vec<u64>>>()?;
    let (last, leading) = parts.split_last()?;
    if leading.len() > 3 || leading.iter().any(|part| *part > 255) {
        return None;
    }
    let rest_bits = 8 * (4 - u32::try_from(leading.len()).ok()?);
    if *last >= 1 << rest_bits {
        return None;
    }
    let leading = leading.iter().enumerate().fold(0, |sum, (place, part)| sum | part << (24 - 8 * place));
    u32::try_from(leading | last).ok().map(Ipv4Addr::from)
}

fn number(text: &str) -> Option<u64> {
    let (digits, radix) = match text.as_bytes() {
        [b'0', b'x', ..] => (&text[2..], 16),
        [b'0', _, ..] => (&text[1..], 8),
        _ => (text, 10),
    };
    // "0x" alone is zero.
    if digits.is_empty() { (radix == 16).then_some(0) } else { u64::from_str_radix(digits, radix).ok() }
}

/// Where a request goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Destination {
    pub(crate) is_tls: bool,
    pub(crate) host: Host,
    pub(crate) port: u16,
}

impl Destination {
    /// Reads a request's destination, or says why it is none.
    pub(crate) fn of(uri: &Uri) -> Result<Self, &'static str> {
        let is_tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err("its scheme is neither http nor https"),
        };
        let authority = uri.authority().ok_or("it names no host")?;
        if authority.as_str().contains('@') {
            return Err("its URL carries a user name or password; use an Authorization header");
        }
        let host = Host::parse(authority.host()).ok_or("its host is no well-formed name or address")?;
        let port = match (authority.port(), is_tls) {
            (Some(port), _) => port.as_u16(),
            (None, true) => 443,
            (None, false) => 80,
        };
        if port == 0 {
            return Err("its port is 0");
        }
        Ok(Self { is_tls, host, port })
    }

    fn scheme(&self) -> &'static str {
        if self.is_tls { "https" } else { "http" }
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}:{}", self.scheme(), self.host, self.port)
    }
}

/// No grant covers the request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    method: String,
    destination: Destination,
    /// The destination is granted, with other methods.
    methods: Option<Vec<String>>,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { method, destination, methods } = self;
        match methods {
            Some(methods) => write!(
                f,
                "{method} {destination} was refused: the destination is granted with {} alone; add the method to the \
                 grant",
                methods.join(", ")
            ),
            None => write!(
                f,
                "{method} {destination} was refused: it is not granted; add \"{method} {destination}\" to `outbound` of the \
                 handler"
            ),
        }
    }
}

/// The grant that covers a request. Methods are case-sensitive; CONNECT would open a tunnel and is never granted.
pub(crate) fn decide<'a>(
    grants: &'a [OutboundGrant],
    destination: &Destination,
    method: &str,
) -> Result<&'a OutboundGrant, Refusal> {
    let mut at_destination = grants.iter().filter(|grant| covers(grant, destination)).peekable();
    let refusal = |methods| Refusal { method: method.to_owned(), destination: destination.clone(), methods };
    if at_destination.peek().is_none() {
        return Err(refusal(None));
    }
    let mut granted = Vec::new();
    for grant in at_destination {
        if method != "CONNECT" && grant.methods.contains(method) {
            return Ok(grant);
        }
        granted.extend(grant.methods.iter().cloned());
    }
    Err(refusal(Some(granted)))
}

fn covers(grant: &OutboundGrant, destination: &Destination) -> bool {
    grant.scheme == destination.scheme()
        && grant.port == destination.port
        && covers_host(&grant.host, &destination.host)
}

fn covers_host(granted: &str, host: &Host) -> bool {
    if granted == "*" {
        return true;
    }
    if let Some(suffix) = granted.strip_prefix("*.") {
        let suffix = suffix.strip_suffix('.').unwrap_or(suffix).to_ascii_lowercase();
        let Host::Name(name) = host else { return false };
        return name.strip_suffix(&suffix).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'));
    }
    // A bare IPv6 address in the configuration means the same as one in brackets.
    let granted = granted.parse::<Ipv6Addr>().map(IpAddr::V6).map(Host::Address).ok().or_else(|| Host::parse(granted));
    granted.as_ref() == Some(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(scheme: &str, host: &str, port: u16, methods: &[&str]) -> OutboundGrant {
        OutboundGrant {
            scheme: scheme.into(),
            host: host.into(),
            port,
            methods: methods.iter().map(|method| (*method).to_owned()).collect(),
            private: false,
            outside_step: false,
        }
    }

    fn is_granted(grant: &OutboundGrant, method: &str, uri: &str) -> bool {
        let Ok(uri) = uri.parse() else { return false };
        Destination::of(&uri).is_ok_and(|destination| decide(std::slice::from_ref(grant), &destination, method).is_ok())
    }

    #[test]
    fn h6_the_allow_list_decides_on_scheme_host_port_and_method() {
        let exact = grant("https", "api.example.org", 443, &["GET", "POST"]);
        let table = [
            ("GET", "https://api.example.org/x", true),
            ("POST", "https://api.example.org:443/x", true),
            ("GET", "https://API.example.ORG./x", true),
            ("DELETE", "https://api.example.org/x", false),
            ("get", "https://api.example.org/x", false),
            ("CONNECT", "https://api.example.org/x", false),
            ("GET", "http://api.example.org/x", false),
            ("GET", "http://api.example.org:443/x", false),
            ("GET", "https://api.example.org:8443/x", false),
            ("GET", "https://example.org/x", false),
            ("GET", "https://evil-api.example.org/x", false),
            ("GET", "https://api.example.org.evil.test/x", false),
            ("GET", "https://user@api.example.org/x", false),
            ("GET", "https://user:word@api.example.org/x", false),
            ("GET", "https://evil.test@api.example.org/x", false),
            ("GET", "https://api.example.org@evil.test/x", false),
            ("GET", "https://api.example.org:443@evil.test/x", false),
            ("GET", "https://api.example.org%2eevil.test/x", false),
            ("GET", "https://api.example.org%00.evil.test/x", false),
            ("GET", "https://evil.test/https://api.example.org/x", false),
            ("GET", "//api.example.org/x", false),
            ("GET", "/x", false),
            ("GET", "wss://api.example.org/x", false),
            ("GET", "ftp://api.example.org/x", false),
            ("GET", "https://api.example.org:0/x", false),
            ("GET", "https://api..example.org/x", false),
        ];
        for (method, uri, expected) in table {
            assert_eq!(is_granted(&exact, method, uri), expected, "{method} {uri}");
        }
        let connect = grant("https", "api.example.org", 443, &["CONNECT"]);
        assert!(!is_granted(&connect, "CONNECT", "https://api.example.org/"));
    }

    #[test]
    fn h6_a_wildcard_covers_subdomains_and_no_more() {
        let wildcard = grant("https", "*.Example.org", 443, &["GET"]);
        let table = [
            ("https://a.example.org/", true),
            ("https://a.b.example.org/", true),
            ("https://example.org/", false),
            ("https://badexample.org/", false),
            ("https://.example.org/", false),
            ("https://a.example.org.evil.test/", false),
            ("https://1.2.3.4/", false),
            ("https://example.org.a.example.org/", true),
            ("https://a_example.org/", false),
        ];
        for (uri, expected) in table {
            assert_eq!(is_granted(&wildcard, "GET", uri), expected, "{uri}");
        }
        let any = grant("http", "*", 80, &["GET"]);
        assert!(is_granted(&any, "GET", "http://whatever.test/") && is_granted(&any, "GET", "http://[2001:db8::1]/"));
    }

    #[test]
    fn h6_an_address_is_the_same_in_every_notation() {
        let loopback = Host::Address(IpAddr::V4(Ipv4Addr::LOCALHOST));
        for text in [
            "127.0.0.1",
            "127.0.0.1.",
            "127.1",
            "127.0.1",
            "2130706433",
            "0x7f000001",
            "0x7F.0.0.1",
            "0177.0.0.01",
            "017700000001",
            "0x7f.1",
            "127.0x000001",
        ] {
            assert_eq!(Host::parse(text).as_ref(), Some(&loopback), "{text}");
        }
        assert_eq!(Host::parse("[0:0::1]"), Some(Host::Address(IpAddr::V6(Ipv6Addr::LOCALHOST))));
        for text in ["", ".", "127.0.0.1.5", "256.1.1.1", "4294967296", "1.2.3.08", "0x", "[::1", "a b", "bücher.test"]
        {
            let read = Host::parse(text);
            assert!(read.is_none() || text == "0x", "{text} was read as {read:?}");
        }
        for granted in ["::1", "[::1]", "[0:0:0:0:0:0:0:1]"] {
            assert!(covers_host(granted, &Host::Address(IpAddr::V6(Ipv6Addr::LOCALHOST))), "{granted}");
        }
        assert!(covers_host("127.1", &loopback));
    }

    #[test]
    fn h6_a_refusal_says_what_to_add() {
        let grants = [grant("https", "api.example.org", 443, &["GET"])];
        let other = Destination::of(&"http://other.test/".parse().unwrap()).unwrap();
        assert_eq!(
            decide(&grants, &other, "GET").unwrap_err().to_string(),
            "GET http://other.test:80 was refused: it is not granted; add \"GET http://other.test:80\" to `outbound` of the \
             handler"
        );
        let same = Destination::of(&"https://api.example.org/".parse().unwrap()).unwrap();
        assert!(decide(&grants, &same, "PUT").unwrap_err().to_string().contains("granted with GET alone"));
    }
}
