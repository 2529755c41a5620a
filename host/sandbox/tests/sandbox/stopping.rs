//! A guest is stopped wherever it is, and one that nobody waits for any more is stopped too.

use leasehold_domain::{Outcome, StopReason};
use serde_json::json;

use crate::support::{AMPLE, Host, Recorded, Server, grants, limits, misbehave, misbehave_with, start};

#[tokio::test]
async fn q16_a_guest_is_stopped_in_its_own_code_and_inside_a_host_call() {
    let misbehave = misbehave().await;
    for payload in [json!({"do": "loop"}), json!({"do": "sleep", "ms": 600_000})] {
        let guest = start(&misbehave, &payload, AMPLE, &Host::new());
        let stopper = guest.stopper();
        stopper.stop(StopReason::Cancelled);
        stopper.stop(StopReason::Shutdown);
        let report = guest.report().await;
        assert_eq!(report.outcome, Outcome::Stopped(StopReason::Cancelled), "{payload}");
        assert!(report.run_ms < 10_000);
    }
}

#[tokio::test]
async fn q16_a_pending_request_is_given_up_at_the_stop() {
    let server = Server::start().await;
    let misbehave = misbehave_with(&grants(server.port()), &limits()).await;
    let guest = start(&misbehave, &json!({"do": "get", "url": server.url("/hang")}), AMPLE, &Host::new());
    server.arrived(1).await;
    guest.stop(StopReason::Cancelled);
    assert_eq!(guest.report().await.outcome, Outcome::Stopped(StopReason::Cancelled));
}

#[tokio::test]
async fn q7_a_guest_that_nobody_waits_for_is_stopped() {
    let misbehave = misbehave().await;
    let host = Host::new();
    let step = json!({"do": "step", "name": "send", "inside": "loop"});
    let guest = start(&misbehave, &step, AMPLE * 100, &host);
    host.arrived(1).await;
    drop(guest);
    // The step is taken back once the guest has ended, which is long before its deadline.
    tokio::time::timeout(AMPLE, host.arrived(2)).await.expect("the guest is stopped");
    assert_eq!(host.step("send"), Recorded::Nothing);
}
