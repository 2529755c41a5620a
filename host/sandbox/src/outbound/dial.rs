//! Connects to a destination: the name is resolved once, each address is checked, and a checked address is the one that
//! is dialled. Nothing of a request is sent here; a failure here means that it certainly did not leave.

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll},
};

use leasehold_domain::grants::OutboundGrant;
use rustls::pki_types::ServerName;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::{TlsConnector, client::TlsStream};
use wasmtime_wasi_http::Error;

use super::{
    address::{AddressClass, classify},
    grant::{Destination, Host},
    tls,
};

/// An open connection.
pub(super) enum Connection {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// Resolves, checks and connects.
pub(super) async fn dial(destination: &Destination, grant: &OutboundGrant) -> Result<Connection, Error> {
    let stream = open(destination, grant, lookup).await?;
    // Requests are written whole; waiting to fill a segment only costs time. Failing to say so is harmless.
    let _ = stream.set_nodelay(true);
    if destination.is_tls { encrypt(stream, &destination.host).await } else { Ok(Connection::Plain(stream)) }
}

/// Checks an address that a request names itself, without resolving anything: of a name nothing is known here.
pub(super) fn check_written_out(destination: &Destination, grant: &OutboundGrant) -> Result<(), Error> {
    match &destination.host {
        Host::Address(address) => permitted(&[SocketAddr::new(*address, destination.port)], grant).map(drop),
        Host::Name(_) => Ok(()),
    }
}

/// Asks the system what a name resolves to.
async fn lookup(name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    tokio::net::lookup_host((name, port)).await.map(Iterator::collect)
}

/// Connects to what a name is found to be by one lookup: a second one could answer otherwise than the one that was checked.
async fn open(
    destination: &Destination,
    grant: &OutboundGrant,
    lookup: impl AsyncFn(&str, u16) -> io::Result<Vec<SocketAddr>>,
) -> Result<TcpStream, Error> {
    let resolved = match &destination.host {
        Host::Address(address) => vec![SocketAddr::new(*address, destination.port)],
        Host::Name(name) => {
            lookup(name, destination.port).await.map_err(|_| Error::DnsError { rcode: None, info_code: None })?
        }
    };
    connect(&permitted(&resolved, grant)?).await
}

/// The addresses that the grant allows to be dialled.
fn permitted(resolved: &[SocketAddr], grant: &OutboundGrant) -> Result<Vec<SocketAddr>, Error> {
    if resolved.is_empty() {
        return Err(Error::DestinationNotFound);
    }
    let is_permitted = |address: &&SocketAddr| match classify(address.ip()) {
        AddressClass::Public => true,
        AddressClass::Private => grant.private,
        AddressClass::Never => false,
    };
    let addresses: Vec<_> = resolved.iter().filter(is_permitted).copied().collect();
    if addresses.is_empty() { Err(Error::DestinationIpProhibited) } else { Ok(addresses) }
}

async fn connect(addresses: &[SocketAddr]) -> Result<TcpStream, Error> {
    let mut last = Error::DestinationNotFound;
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => last = connect_error(&error),
        }
    }
    Err(last)
}

fn connect_error(error: &io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::TimedOut => Error::ConnectionTimeout,
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable | io::ErrorKind::AddrNotAvailable => {
            Error::DestinationUnavailable
        }
        _ => Error::ConnectionRefused,
    }
}

async fn encrypt(stream: TcpStream, host: &Host) -> Result<Connection, Error> {
    let name = match host {
        Host::Name(name) => ServerName::try_from(name.clone()).map_err(|_| Error::HttpRequestUriInvalid)?,
        Host::Address(address) => ServerName::from(*address),
    };
    let config = tls::client_config().ok_or(Error::ConfigurationError)?;
    let stream = TlsConnector::from(config).connect(name, stream).await.map_err(|error| tls_error(&error))?;
    Ok(Connection::Tls(Box::new(stream)))
}

fn tls_error(error: &io::Error) -> Error {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
    match cause {
        Some(rustls::Error::InvalidCertificate(_)) => Error::TlsCertificateError,
        _ => Error::TlsProtocolError,
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut *self {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tokio::net::TcpListener;

    use super::*;

    fn addresses(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn grant(private: bool) -> OutboundGrant {
        OutboundGrant {
            scheme: "http".into(),
            host: "*".into(),
            port: 80,
            methods: std::collections::BTreeSet::new(),
            private,
            outside_step: false,
        }
    }

    #[test]
    fn h6_only_checked_addresses_are_left_to_dial() {
        let mixed = addresses(&["127.0.0.1:80", "1.1.1.1:80", "0.0.0.0:80", "[fe80::1]:80"]);
        assert_eq!(permitted(&mixed, &grant(false)).unwrap(), addresses(&["1.1.1.1:80"]));
        assert_eq!(
            permitted(&mixed, &grant(true)).unwrap(),
            addresses(&["127.0.0.1:80", "1.1.1.1:80", "[fe80::1]:80"])
        );
        let private = addresses(&["10.0.0.1:80"]);
        assert!(matches!(permitted(&private, &grant(false)), Err(Error::DestinationIpProhibited)));
        assert!(matches!(permitted(&[], &grant(true)), Err(Error::DestinationNotFound)));
    }

    fn named(port: u16) -> Destination {
        Destination { is_tls: false, host: Host::Name("rebound.test".into()), port }
    }

    #[tokio::test]
    async fn h6_a_name_that_resolves_otherwise_the_second_time_is_dialled_where_it_was_checked() {
        let checked = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let other = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let answers = [checked.local_addr().unwrap(), other.local_addr().unwrap()];
        let asked = Cell::new(0);
        let lookup = async |_: &str, _: u16| Ok(vec![answers[usize::from(asked.replace(asked.get() + 1) > 0)]]);
        let stream = open(&named(80), &grant(true), lookup).await.unwrap();
        assert_eq!((stream.peer_addr().unwrap(), asked.get()), (answers[0], 1_u8));
    }

    #[tokio::test]
    async fn h6_a_name_that_resolves_to_a_private_address_is_refused_however_it_is_written() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        for address in
            ["127.0.0.1", "::ffff:127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "::1", "fe80::1", "10.1.2.3"]
        {
            let resolved = SocketAddr::new(address.parse().unwrap(), port);
            let refused = open(&named(port), &grant(false), async |_: &str, _: u16| Ok(vec![resolved])).await;
            assert!(matches!(refused, Err(Error::DestinationIpProhibited)), "{address}: {refused:?}");
        }
        let nowhere =
            open(&named(port), &grant(true), async |_: &str, _: u16| Err(io::ErrorKind::NotFound.into())).await;
        assert!(matches!(nowhere, Err(Error::DnsError { .. })), "{nowhere:?}");
    }
}
