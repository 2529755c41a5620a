//! Sends a page in one POST request, encrypted unless the receiver is on this machine, and signed after the Standard
//! Webhooks scheme when a secret is given. No redirect is followed, and no error quotes the receiver's address.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::Bytes;
use hmac::{Hmac, Mac as _};
use http::{Request, StatusCode, Uri, header};
use http_body_util::Full;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use leasehold_sandbox::tls_client_config;
use rustls::pki_types::ServerName;
use sha2::Sha256;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tokio_rustls::TlsConnector;

use super::document::Document;
use crate::config::Webhook;

/// Posts the page. It was taken when the receiver answers with a status of success.
pub(super) async fn post(receiver: &Webhook, page: &Document, now_ms: i64) -> Result<(), String> {
    let request = request(receiver, page, now_ms)?;
    let is_encrypted = receiver.url.scheme_str() == Some("https");
    let host = receiver.url.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']').to_owned();
    let port = receiver.url.port_u16().unwrap_or(if is_encrypted { 443 } else { 80 });
    let stream = TcpStream::connect((host.as_str(), port))
        .await
        .map_err(|error| format!("the receiver could not be reached: {error}"))?;
    let status = if is_encrypted {
        let name = ServerName::try_from(host).map_err(|_| "the receiver's name is none that has a certificate")?;
        let connector = TlsConnector::from(tls_client_config().ok_or("TLS can't be set up")?);
        let stream = connector
            .connect(name, stream)
            .await
            .map_err(|error| format!("the receiver's connection could not be encrypted: {error}"))?;
        exchange(stream, request).await
    } else {
        exchange(stream, request).await
    };
    match status? {
        status if status.is_success() => Ok(()),
        status => Err(format!("the receiver answered with {}", status.as_u16())),
    }
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Full<Bytes>>,
) -> Result<StatusCode, String> {
    let broken = |error: hyper::Error| format!("the receiver broke the exchange off: {error}");
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
    // The connection ends with its one exchange, and says nothing that the exchange does not say.
    let driver = tokio::spawn(connection);
    let answer = sender.send_request(request).await.map_err(broken);
    driver.abort();
    Ok(answer?.status())
}

fn request(receiver: &Webhook, page: &Document, now_ms: i64) -> Result<Request<Full<Bytes>>, String> {
    let url = &receiver.url;
    let target = url.path_and_query().map_or("/", |path| path.as_str());
    let sent_at_s = (now_ms / 1_000).to_string();
    let mut request = Request::post(target.parse::<Uri>().map_err(|_| "the receiver's path can't be sent")?)
        .header(header::HOST, url.authority().map_or("", |authority| authority.as_str()))
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::USER_AGENT, concat!("leasehold/", env!("CARGO_PKG_VERSION")))
        .header(header::CONNECTION, "close")
        .header("idempotency-key", &page.id)
        .header("webhook-id", &page.id)
        .header("webhook-timestamp", &sent_at_s);
    if let Some(key) = &receiver.signing_key {
        request = request.header("webhook-signature", signature(key, &page.id, &sent_at_s, &page.body));
    }
    request.body(Bytes::from(page.body.clone()).into()).map_err(|error| format!("the request can't be made: {error}"))
}

/// HMAC-SHA256 over id, time and body (Standard Webhooks 1.0.0, "Signature scheme").
fn signature(key: &[u8], id: &str, sent_at_s: &str, body: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes a key of any length");
    for part in [id, ".", sent_at_s, ".", body] {
        mac.update(part.as_bytes());
    }
    format!("v1,{}", BASE64_STANDARD.encode(mac.finalize().into_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn o2_the_signature_is_that_of_the_published_example() {
        let key = BASE64_STANDARD.decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let signed = signature(&key, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", r#"{"test": 2432232314}"#);
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }
}
