//! A small HTTP server that notes each request and answers by its path: `/hang` never, `/redirect` elsewhere, `/large`
//! with more than is allowed, all else with what was sent.

use std::sync::{Arc, Mutex};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
};

/// A running server.
#[derive(Clone)]
pub struct Server {
    port: u16,
    requests: Arc<Mutex<Vec<String>>>,
    arrived: watch::Sender<usize>,
}

impl Server {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = Self { port, requests: Arc::default(), arrived: watch::Sender::new(0) };
        let serving = server.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serving.clone().serve(stream));
            }
        });
        server
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// The heads of all requests so far.
    pub fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }

    /// Waits until so many requests have arrived.
    pub async fn arrived(&self, requests: usize) {
        self.arrived.subscribe().wait_for(|arrived| *arrived >= requests).await.unwrap();
    }

    async fn serve(self, mut stream: TcpStream) {
        let Some((head, body)) = read(&mut stream).await else { return };
        let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
        self.requests.lock().unwrap().push(head);
        self.arrived.send_modify(|arrived| *arrived += 1);
        let answer = match path.as_str() {
            "/hang" => return std::future::pending().await,
            "/redirect" => "HTTP/1.1 302 Found\r\nlocation: /elsewhere\r\ncontent-length: 0\r\n\r\n".to_owned(),
            "/large" => format!("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{}", "x".repeat(100 << 10)),
            "/refuse" => "HTTP/1.1 429 Too Many Requests\r\ncontent-length: 0\r\n\r\n".to_owned(),
            _ => format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len()),
        };
        // A guest that has been stopped no longer listens.
        let _ = stream.write_all(answer.as_bytes()).await;
    }
}

/// A request's head in lower case, and its body.
async fn read(stream: &mut TcpStream) -> Option<(String, String)> {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let head = head.to_ascii_lowercase();
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "))
                .map_or(0, |length| length.parse().unwrap_or_default());
            if body.len() >= length {
                return Some((head, body.to_owned()));
            }
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
}
