//! O6: a disk on which each commit takes longer than a lease holds.

use serde_json::json;

use crate::{
    support::{ConfigText, Daemon, Server, guest},
    told::echo,
};

#[test]
fn o6_a_disk_that_is_slower_than_the_leases_loses_leases_and_applies_nothing_twice() {
    const JOBS: usize = 5;
    let server = Server::accepting();
    let config = ConfigText::default()
        .reaching(server.url())
        .kind("visibility_timeout = \"1s\"")
        .kind("heartbeat = \"200ms\"")
        .kind("attempts = 50");
    let mut daemon = Daemon::prepare(&config);
    daemon.run();
    daemon.push_live(&guest("misbehave@1.0.0"));
    let step = |number: usize| json!({ "do": "step", "name": "send", "url": server.url(), "body": number.to_string() });
    let jobs: Vec<_> = (0..JOBS).map(|number| daemon.enqueue("job", &step(number), &["--delay", "1s"])).collect();
    daemon.kill();
    // A claim, a heartbeat and a settlement each take longer than the lease that they are about.
    daemon.set_crash_points("writer.before_commit=6*off->20*sleep(1500)->off");
    daemon.run();
    for job in jobs {
        assert_eq!(daemon.wait(job), "done");
    }
    assert!(daemon.metric("leasehold_lease_expiries_total", &[]) > 0.0, "no lease was lost: {}", daemon.log());
    assert!(daemon.metric("leasehold_duplicates_applied_total", &[]).abs() < 0.1);
    let in_doubt: i64 = daemon.database().one("SELECT count(*) FROM step_runs WHERE in_doubt = 1");
    let received = server.received();
    assert!(
        received.len() <= JOBS + usize::try_from(in_doubt).unwrap(),
        "{} requests, {in_doubt} in doubt",
        received.len()
    );
    let applied: i64 = daemon.database().one("SELECT count(*) FROM steps WHERE state = 'applied'");
    assert_eq!(applied, i64::try_from(JOBS).unwrap());
    daemon.database().check();
    let after = daemon.enqueue("job", &echo(), &[]);
    assert_eq!(daemon.wait(after), "done");
}
