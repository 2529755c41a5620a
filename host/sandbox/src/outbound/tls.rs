//! Whose certificates are trusted, said once for everything that leaves this process encrypted.

use std::sync::{Arc, OnceLock};

use rustls::{ClientConfig, RootCertStore};

/// How a connection to a public server is encrypted: HTTP/1.1, by the public authorities that Mozilla trusts. None when the
/// cipher suites can't be set up.
pub fn client_config() -> Option<Arc<ClientConfig>> {
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
