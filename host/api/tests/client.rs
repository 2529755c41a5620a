//! The client against sockets that behave badly.

use std::path::Path;

use leasehold_api::{Client, ClientError, DiscardRequest, EnqueueRequest};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{UnixListener, UnixStream},
    task::JoinHandle,
};

const ACCEPTED: &str = "{\"id\":7,\"duplicate\":true,\"state\":\"ready\"}";

/// Loses the first connections after reading their requests, answers the next one, and gives back what it read.
fn serve(path: &Path, lost: usize, status: &'static str, body: &'static str) -> JoinHandle<Vec<String>> {
    let listener = UnixListener::bind(path).unwrap();
    tokio::spawn(async move {
        let mut requests = Vec::new();
        while requests.len() <= lost {
            let (mut stream, _) = listener.accept().await.unwrap();
            requests.push(read_request(&mut stream).await);
            if requests.len() > lost {
                let length = body.len();
                let answer = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n{body}");
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        }
        requests
    })
}

async fn read_request(stream: &mut UnixStream) -> String {
    let mut bytes = [0; 4096];
    let read = stream.read(&mut bytes).await.unwrap();
    String::from_utf8_lossy(&bytes[..read]).into_owned()
}

fn keyed_job() -> EnqueueRequest {
    EnqueueRequest { key: Some("order-1".to_owned()), ..EnqueueRequest::new("pay") }
}

#[tokio::test]
async fn q1_an_enqueue_with_a_key_is_sent_again_when_its_answer_is_lost() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("socket");
    let server = serve(&socket, 2, "200 OK", ACCEPTED);
    let answer = Client::new(&socket).enqueue(&keyed_job()).await.unwrap();
    assert_eq!((answer.id, answer.duplicate), (7, true));
    let requests = server.await.unwrap();
    assert_eq!(requests.len(), 3);
    assert!(requests.iter().all(|request| request.contains("\"key\":\"order-1\"")));
}

#[tokio::test]
async fn q1_an_enqueue_without_a_key_is_not_sent_again() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("socket");
    let server = serve(&socket, 1, "200 OK", ACCEPTED);
    let error = Client::new(&socket).enqueue(&EnqueueRequest::new("pay")).await.unwrap_err();
    assert!(matches!(error, ClientError::Lost { attempts: 1, .. }), "{error}");
    server.abort();
}

#[tokio::test]
async fn o5_what_an_operator_does_is_not_sent_twice() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("socket");
    let server = serve(&socket, 1, "204 No Content", "");
    let discard = DiscardRequest { reason: "obsolete".to_owned() };
    let error = Client::new(&socket).discard(3, &discard).await.unwrap_err();
    assert_eq!(error.code(), "connection_lost");
    server.abort();
}

#[tokio::test]
async fn o6_without_a_daemon_the_error_says_what_to_do() {
    let error = Client::new("/nowhere/leasehold.sock").enqueue(&keyed_job()).await.unwrap_err();
    assert!(error.is_unreachable());
    assert!(error.to_string().contains("start one with `leasehold serve`"), "{error}");
}

#[tokio::test]
async fn o5_a_refusal_keeps_its_code_and_its_facts() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("socket");
    let body =
        "{\"title\":\"Forbidden\",\"status\":403,\"code\":\"role_required\",\"detail\":\"no\",\"needed\":\"admin\"}";
    let _server = serve(&socket, 0, "403 Forbidden", body);
    let ClientError::Refused(problem) = Client::new(&socket).reload().await.unwrap_err() else { panic!("no refusal") };
    assert_eq!((problem.code.as_str(), &problem.extra["needed"]), ("role_required", &"admin".into()));
}
