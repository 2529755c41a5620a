//! O5: the whole table of who may ask for what, over the socket and with a token.

use leasehold_api::{Operation, Role};
use serde_json::json;

use crate::{
    access::{acting_as, become_actor},
    raw_http::{RawAnswer, over_socket, over_tcp, tcp_address},
    support::{ConfigText, Daemon},
    tokens::token,
};

/// Who may ask for an operation, said here once more: what the daemon's own table says is what is tested.
fn needed(operation: Operation) -> Option<Role> {
    match operation {
        // Open to whoever is known; a job of another's is for those who view.
        Operation::ShowJob | Operation::WaitForJob | Operation::Health | Operation::Readiness | Operation::OpenApi => {
            None
        }
        Operation::EnqueueJob | Operation::EnqueueBatch => Some(Role::Enqueue),
        Operation::ListJobs
        | Operation::ListDeadLetters
        | Operation::ShowDeadLetter
        | Operation::ListHandlers
        | Operation::ShowHandler
        | Operation::ListKinds
        | Operation::PreviewBulkReplay
        | Operation::ListBulkReplays
        | Operation::ShowBulkReplay
        | Operation::ListBulkReplayMembers
        | Operation::WaitForBulkReplay
        | Operation::GroupDeadLetters
        | Operation::ListIncidents
        | Operation::ShowIncident
        | Operation::ListAlerts
        | Operation::ListPages
        | Operation::Metrics => Some(Role::View),
        Operation::CancelJob
        | Operation::ReplayDeadLetter
        | Operation::DiscardDeadLetter
        | Operation::RehearseDeadLetter
        | Operation::StartBulkReplay
        | Operation::StopBulkReplay
        | Operation::ResumeBulkReplay
        | Operation::OpenIncident
        | Operation::EditIncident
        | Operation::CloseIncident
        | Operation::ActivateHandler
        | Operation::RetireHandler
        | Operation::PauseKind
        | Operation::ResumeKind
        | Operation::ListAudit => Some(Role::Operate),
        Operation::PushHandler
        | Operation::PushSelfNamedHandler
        | Operation::Reload
        | Operation::RevealDeadLetter
        | Operation::AddToken
        | Operation::ListTokens
        | Operation::RevokeToken => Some(Role::Admin),
    }
}

fn may(role: Role, needed: Option<Role>) -> bool {
    match (role, needed) {
        (_, None) | (Role::Admin, _) => true,
        (Role::Operate, Some(needed)) => needed != Role::Admin,
        (Role::View, Some(needed)) => needed == Role::View,
        (Role::Enqueue, Some(needed)) => needed == Role::Enqueue,
    }
}

/// Asks for the operation on nothing that is there, through one of the two ways in.
fn ask(operation: Operation, send: &dyn Fn(&str, &str, &[&str]) -> RawAnswer) -> RawAnswer {
    let route = operation.route();
    let content_type = format!("content-type: {}", route.takes.media_type().unwrap_or("application/json"));
    send(route.method.as_str(), &operation.path_to(&["4711"]), &[&content_type])
}

#[track_caller]
fn check(role: Role, way: &str, send: &dyn Fn(&str, &str, &[&str]) -> RawAnswer) {
    for operation in Operation::ALL {
        let (answer, needed) = (ask(operation, send), needed(operation));
        let context = format!("{operation:?} as {role} {way}: {answer:?}");
        if may(role, needed) {
            assert!(!matches!(answer.status, 401 | 403), "{context}");
            assert!(answer.status < 500 && answer.status != 405 && answer.status != 415, "{context}");
        } else {
            assert_eq!((answer.status, answer.code()), (403, json!("role_required")), "{context}");
            assert_eq!(answer.json()["needed_role"], needed.unwrap().as_str(), "{context}");
        }
    }
}

fn on_tcp_as(role: Role) -> ConfigText {
    acting_as("ops", role.as_str()).more("[api]\nlisten = \"127.0.0.1:0\"")
}

#[test]
fn o5_each_role_may_ask_for_what_it_says_and_no_more_whatever_the_way_in() {
    let daemon = Daemon::start(&on_tcp_as(Role::Admin));
    let address = tcp_address(&daemon);
    let host = format!("host: {address}");
    for role in Role::ALL {
        let bearer = format!("authorization: Bearer {}", token(&daemon, role.as_str(), role.as_str(), &[]));
        check(role, "with a token over TCP", &|method, path, headers| {
            over_tcp(&address, method, path, &[&[&*host, &*bearer], headers].concat(), b"{}")
        });
        // On the socket a token goes before its user, who is an admin here.
        check(role, "with a token over the socket", &|method, path, headers| {
            over_socket(&daemon, method, path, &[&["host: a", &*bearer], headers].concat(), b"{}")
        });
    }
    for (reloads, role) in (1..).zip(Role::ALL) {
        become_actor(&daemon, &on_tcp_as(role), reloads);
        check(role, "as a user on the socket", &|method, path, headers| {
            over_socket(&daemon, method, path, &[&["host: a"], headers].concat(), b"{}")
        });
    }
}

#[test]
fn o5_without_a_token_nothing_is_told_over_tcp() {
    let daemon = Daemon::start(&on_tcp_as(Role::Admin));
    let address = tcp_address(&daemon);
    let host = format!("host: {address}");
    for operation in Operation::ALL {
        let answer = ask(operation, &|method, path, headers| {
            over_tcp(&address, method, path, &[&[&*host], headers].concat(), b"{}")
        });
        assert_eq!((answer.status, answer.code()), (401, json!("unauthenticated")), "{operation:?}");
    }
    // Nor what is there and what is not.
    for (method, path) in [("GET", "/"), ("GET", "/nothing"), ("DELETE", "/v1/jobs"), ("OPTIONS", "/v1/jobs")] {
        let answer = over_tcp(&address, method, path, &[&host], b"");
        assert_eq!((answer.status, answer.code()), (401, json!("unauthenticated")), "{method} {path}");
    }
}

#[test]
fn o5_who_is_refused_hears_why_whatever_they_send_along() {
    let daemon = Daemon::start(&on_tcp_as(Role::View));
    let address = tcp_address(&daemon);
    let component = vec![0; 8 << 20];
    let headers = ["host: a", "content-type: application/wasm"];
    let refused = over_socket(&daemon, "PUT", "/v1/handlers/a@1.0.0", &headers, &component);
    assert_eq!((refused.status, refused.code()), (403, json!("role_required")));
    let host = format!("host: {address}");
    let refused = over_tcp(&address, "PUT", "/v1/handlers/a@1.0.0", &[&host, headers[1]], &component);
    assert_eq!((refused.status, refused.code()), (401, json!("unauthenticated")));
    become_actor(&daemon, &on_tcp_as(Role::Admin), 1);
    let malformed = over_socket(&daemon, "PUT", "/v1/handlers/no-version", &headers, &component);
    assert_eq!((malformed.status, malformed.code()), (400, json!("malformed")));
}
