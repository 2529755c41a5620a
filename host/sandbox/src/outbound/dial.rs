//! Connects to a destination: the name is resolved once, each address is checked, and a checked address is the one that
//! is dialled. Nothing of a request is sent here; a failure here means that it certainly did not leave.

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll},
};

use leasehold_domain::grants::OutboundGrant;
use rustls::{ClientConfig, RootCertStore, pki_types::ServerName};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::{TlsConnector, client::TlsStream};
use wasmtime_wasi_http::Error;

use super::{
    address::{AddressClass, classify},
    grant::{Destination, Host},
};

/// An open connection.
pub(super) enum Connection {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// Resolves, checks and connects.
pub(super) async fn dial(destination: &Destination, grant: &OutboundGrant) -> Result<Connection, Error> {
    let addresses = permitted(&resolve(destination).await?, grant)?;
    let stream = connect(&addresses).await?;
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

async fn resolve(destination: &Destination) -> Result<Vec<SocketAddr>, Error> {
    match &destination.host {
        Host::Address(address) => Ok(vec![SocketAddr::new(*address, destination.port)]),
        Host::Name(name) => tokio::net::lookup_host((name.as_str(), destination.port))
            .await
            .map(Iterator::collect)
            .map_err(|_| Error::DnsError { rcode: None, info_code: None }),
    }
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
    let config = tls_config().ok_or(Error::ConfigurationError)?;
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

fn tls_config() -> Option<Arc<ClientConfig>> {
    static CONFIG: OnceLock<Option<Arc<ClientConfig>>> = OnceLock::new();
    CONFIG
        .get_or_init(|| {
            let roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.into() };
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().ok()?;
            let mut config = builder.with_root_certificates(roots).with_no_client_auth();
            config.alpn_protocols = vec![b"http/1.1".to_vec()];
            Some(Arc::new(config))
        })
        .clone()
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
}
