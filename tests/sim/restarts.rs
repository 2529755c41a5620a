//! Stops and starts: clean ones, kills, power cuts at rest and in the middle of a commit, and what a start does about the
//! leases that it finds.

use std::fs;

use leasehold_domain::{Outcome, StopReason, verdict::SUSPECT_AFTER};
use leasehold_store::Store;
use tempfile::TempDir;

use crate::{
    disk::Disk,
    world::{World, look_into, options},
};

impl World {
    /// Restarts once, or over and over with little between, as a job does that crashes its daemon.
    pub async fn restarts(&mut self) {
        self.restart().await;
        while self.random.chance(40) {
            self.check();
            self.claim(None).await;
            self.check();
            self.restart().await;
        }
    }

    async fn restart(&mut self) {
        let at_once = self.random.chance(15);
        match self.random.below(10) {
            0..=2 => self.restart_cleanly().await,
            3..=5 => self.cut_power_at_rest(),
            _ => self.kill(),
        }
        if at_once {
            self.count("restart: at once");
        }
        self.recover(at_once).await;
    }

    /// Gives back the leases of the process before.
    pub async fn recover(&mut self, at_once: bool) {
        assert!(self.store.persisted_clock_ms() <= self.now_ms, "the clock was persisted ahead of its time");
        assert!(self.store.key_problem().is_none());
        let orphaned = self.surely(async |store| store.leases().await).await;
        let open = self.model.jobs.values().filter(|job| job.has_open_attempt()).count();
        assert_eq!(orphaned.len(), open, "not the leases of the process before were found");
        self.surely(async |store| store.let_go_held_lanes().await).await;
        let beside_suspect = orphaned.iter().any(|lease| lease.unclean_stops >= SUSPECT_AFTER);
        let stopped = if at_once { Outcome::DaemonStoppedAtOnce } else { Outcome::DaemonStopped { beside_suspect } };
        for lease in orphaned {
            self.end_without_worker(&lease, &stopped, false).await;
        }
    }

    /// All guests are stopped and their leases released; then the store is closed and opened again.
    async fn restart_cleanly(&mut self) {
        for attempt in &mut self.running {
            attempt.must_end_as.get_or_insert(Outcome::Stopped(StopReason::Shutdown));
        }
        while !self.running.is_empty() {
            self.end_one().await;
        }
        self.store.close();
        // The lock goes with the last handle, so a throw-away store takes this one's place meanwhile.
        let elsewhere = tempfile::tempdir().unwrap();
        self.store = Store::open(&options(&elsewhere)).unwrap();
        self.store = self.open_surely();
        self.database = look_into(&self.directory);
        self.count("restart: clean");
    }

    /// The files as they stand are all that is left, with a torn write at the end of the log.
    fn kill(&mut self) {
        let left = tempfile::tempdir().unwrap();
        for name in ["leasehold.db", "leasehold.db-wal", "leasehold.key"] {
            fs::copy(self.directory.path().join(name), left.path().join(name)).unwrap();
        }
        let torn = usize::try_from(self.random.below(6_000)).unwrap();
        let log = left.path().join("leasehold.db-wal");
        let mut bytes = fs::read(&log).unwrap();
        bytes.extend(std::iter::repeat_n(0x5a, torn));
        fs::write(&log, bytes).unwrap();
        self.start_on(left);
        self.count("restart: kill");
    }

    /// Between two steps: everything that was answered has to be there after it.
    fn cut_power_at_rest(&mut self) {
        let left = self.disk.cut_power();
        self.start_on(left);
        self.count("power cut: at rest");
    }

    /// Starts on what a process left that is gone. Sometimes the disk fails at that as well.
    pub fn start_on(&mut self, left: TempDir) {
        self.running.clear();
        self.disk = Disk::under_directory(left.path(), self.random.bits());
        let before = std::mem::replace(&mut self.directory, left);
        if self.random.chance(25) {
            let fault = self.random_fault();
            self.disk.fail(fault);
        }
        self.store = self.open_surely();
        self.disk.heal();
        self.database = look_into(&self.directory);
        drop(before);
    }

    fn open_surely(&mut self) -> Store {
        loop {
            match Store::open(&options(&self.directory)) {
                Ok(store) => return store,
                Err(error) => {
                    assert!(self.disk.heal() > 0, "a start failed on a disk that did not: {error}");
                    self.count("fault: no start");
                }
            }
        }
    }
}
