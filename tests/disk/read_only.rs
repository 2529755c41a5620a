//! O6: a data directory that can't be written to, from the start or from some moment on.

use serde_json::json;

use crate::{
    support::{
        ConfigText, Daemon, guest,
        mounts::{Mounted, in_own_mounts, not_run},
    },
    told::{UNWRITTEN, echo, ends, get, holding_the_first, why_it_does_not_start},
};

/// The daemon does not start and says in one line that the file system is read-only.
#[track_caller]
fn assert_does_not_start(daemon: &mut Daemon) {
    let line = why_it_does_not_start(daemon);
    assert!(line.ends_with("[data_directory]"), "{line}");
    assert!(line.contains("file system is read-only") && line.contains("data_dir under [daemon]"), "{line}");
}

#[test]
fn o6_on_a_read_only_disk_nothing_starts_and_nothing_is_lost() {
    in_own_mounts("read_only::o6_on_a_read_only_disk_nothing_starts_and_nothing_is_lost", || {
        let mut daemon = Daemon::prepare(&ConfigText::default().queue("disk_reserve = 0"));
        let disk = Mounted::tmpfs(&daemon, 64);
        // Without a database there is nothing to be read either.
        disk.set_read_only(true);
        assert_does_not_start(&mut daemon);
        disk.set_read_only(false);
        daemon.run();
        daemon.push_live(&guest("misbehave@1.0.0"));
        let job = daemon.enqueue("job", &echo(), &["--delay", "1s"]);
        assert!(daemon.terminate().success());
        disk.set_read_only(true);
        assert_does_not_start(&mut daemon);
        disk.set_read_only(false);
        daemon.run();
        assert_eq!(daemon.wait(job), "done");
        daemon.database().check();
        drop(disk);
    });
}

#[test]
fn o6_a_disk_that_becomes_read_only_takes_no_jobs_and_loses_none() {
    const NAME: &str = "read_only::o6_a_disk_that_becomes_read_only_takes_no_jobs_and_loses_none";
    in_own_mounts(NAME, || {
        let server = holding_the_first(1);
        let config = ConfigText::default()
            .reaching(server.url())
            .queue("disk_reserve = 0")
            .kind("visibility_timeout = \"10m\"")
            .another_kind("later", "");
        let mut daemon = Daemon::prepare(&config);
        let image = daemon.directory().join("disk.img");
        let mounted = Mounted::make_ext4_image(&image).and_then(|()| Mounted::ext4(&daemon, &image));
        let disk = match mounted {
            Ok(disk) => disk,
            Err(why) => return not_run(NAME, &why),
        };
        daemon.run();
        daemon.push_live(&guest("misbehave@1.0.0"));
        daemon.ask(&["kinds", "pause", "later"]);
        let running = daemon.enqueue("job", &get(&server), &[]);
        let waiting: Vec<_> = (0..10).map(|_| daemon.enqueue("later", &echo(), &[])).collect();
        server.wait_for(1);
        if let Err(why) = disk.break_ext4() {
            return not_run(NAME, &why);
        }
        let refused = daemon.ask(&["enqueue", "job", "--payload", "{}"]).refusal();
        assert!(["database_io", "database_read_only"].contains(&refused.as_str()), "{refused}");
        server.let_go();
        daemon.wait_for_log(UNWRITTEN);
        assert_eq!(daemon.job(running)["state"], "leased", "what can be read is shown");
        assert!(daemon.readiness().is_err());
        daemon.kill();
        drop(disk);
        // As after the operator has seen to the disk.
        let disk = Mounted::ext4(&daemon, &image).unwrap();
        daemon.run();
        assert!(daemon.readiness().is_ok());
        daemon.ask(&["kinds", "resume", "later"]);
        for job in waiting {
            assert_eq!(daemon.wait(job), "done");
        }
        assert_eq!(daemon.wait(running), "done");
        assert_eq!(ends(&daemon, running), ["daemon_stopped", "done"]);
        assert_eq!(daemon.job(running)["attempts_used"], json!(2));
        daemon.database().check();
        drop(disk);
    });
}
