//! The section `[api]`: whether the API is also served over TCP, and under which names. It never opens a socket.

use std::net::SocketAddr;

use super::reader::{Entry, Section};

/// How the API is served beside its Unix socket.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ApiConfig {
    /// The address to listen on, if any.
    pub listen: Option<SocketAddr>,
    /// Further names, in lower case, that callers may send as `Host`: those of a proxy in front.
    pub hosts: Vec<String>,
}

impl ApiConfig {
    pub(super) fn read(section: &Section<'_>) -> Self {
        let allow_remote = section.boolean("allow_remote", false);
        let config = Self {
            listen: section.entry("listen").and_then(|entry| read_listen(&entry, allow_remote)),
            hosts: section.elements("hosts").iter().filter_map(read_host).collect(),
        };
        section.refuse_unknown();
        config
    }
}

fn read_listen(entry: &Entry<'_>, allow_remote: bool) -> Option<SocketAddr> {
    let text = entry.text()?;
    if text.is_empty() {
        return None;
    }
    let Ok(address) = text.parse::<SocketAddr>() else {
        entry.error(format!(
            "{text:?} is no address to listen on; allowed is an IP address and a port, such as \"127.0.0.1:7878\" or \
             \"[::1]:7878\", or \"\" for none"
        ));
        return None;
    };
    if !address.ip().to_canonical().is_loopback() && !allow_remote {
        entry.error(format!(
            "{} can be reached from other machines; allowed is a loopback address, such as \"127.0.0.1:{}\", unless \
             allow_remote = true. The API speaks no TLS: put a proxy that does in front of it",
            address.ip(),
            address.port()
        ));
    }
    Some(address)
}

fn read_host(entry: &Entry<'_>) -> Option<String> {
    let host = entry.text()?.to_ascii_lowercase();
    let is_name = !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
    if !is_name {
        entry.error(format!(
            "{host:?} is no host's name; allowed is a name without scheme and port, such as \"queue.example.com\""
        ));
    }
    is_name.then_some(host)
}
