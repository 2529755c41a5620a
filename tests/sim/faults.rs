//! Steps in which the disk fails or the power is cut. A call that was answered with an error has changed nothing, and one
//! that was answered with success is there after a power cut; of one that was not answered, all is there or nothing.

use std::{
    collections::hash_map::DefaultHasher,
    ffi::c_int,
    hash::{Hash, Hasher},
    pin::Pin,
    task::Poll,
};

use leasehold_domain::Effect;
use leasehold_store::{EnqueueAnswer, EnqueueJob, Settled, Store, StoreError};
use rusqlite::ffi;

use crate::{
    checkers::{ROWS, hash_value},
    disk::{Cut, Fault, Operation},
    model::{Model, PRIORITY_STEP_MS},
    settling::End,
    world::World,
};

/// What a call can be answered with while the disk fails.
const FAILURES: [&str; 6] =
    ["database_busy", "database_corrupt", "database_error", "database_io", "disk_full", "database_unexpected"];

/// What else a step may change.
const BESIDE_JOBS: [&str; 4] = [
    "SELECT kind, lane, until FROM lane_cooldowns",
    "SELECT id, state, current FROM handler_versions",
    "SELECT id FROM stored_values",
    "SELECT id FROM audit",
];

/// Faults that a disk has, and for how long at most: what is busy for ever is waited for, for seconds.
const FAULTS: [(Operation, c_int, u32); 14] = [
    (Operation::Write, ffi::SQLITE_FULL, u32::MAX),
    (Operation::Write, ffi::SQLITE_FULL, u32::MAX),
    (Operation::Write, ffi::SQLITE_IOERR_WRITE, u32::MAX),
    (Operation::Write, ffi::SQLITE_IOERR_WRITE, u32::MAX),
    (Operation::Sync, ffi::SQLITE_IOERR_FSYNC, u32::MAX),
    (Operation::Sync, ffi::SQLITE_IOERR_FSYNC, u32::MAX),
    (Operation::Read, ffi::SQLITE_IOERR_READ, u32::MAX),
    (Operation::Truncate, ffi::SQLITE_IOERR_TRUNCATE, u32::MAX),
    (Operation::Delete, ffi::SQLITE_IOERR_DELETE, u32::MAX),
    (Operation::Control, ffi::SQLITE_IOERR_TRUNCATE, u32::MAX),
    (Operation::Open, ffi::SQLITE_CANTOPEN, u32::MAX),
    (Operation::SharedLock, ffi::SQLITE_BUSY, 2),
    (Operation::SharedLock, ffi::SQLITE_IOERR_SHMLOCK, u32::MAX),
    (Operation::Lock, ffi::SQLITE_IOERR_LOCK, u32::MAX),
];

impl World {
    /// Calls until it goes well. What failed is tried again on a disk that is whole, as those who depend on it do.
    pub async fn surely<T>(&mut self, call: impl AsyncFn(&Store) -> Result<T, StoreError>) -> T {
        loop {
            match call(&self.store).await {
                Ok(answer) => return answer,
                Err(error) => {
                    assert!(self.disk.heal() > 0, "a call failed on a disk that did not: {error}");
                    assert!(FAILURES.contains(&error.code()), "{} ({error})", error.code());
                    self.count("fault: answered");
                }
            }
        }
    }

    pub fn random_fault(&mut self) -> Fault {
        let (operation, code, times_max) = self.random.pick(&FAULTS);
        let times = self.random.pick(&[1, 2, u32::MAX]).min(times_max);
        Fault { operation, after: u32::try_from(self.random.below(8)).unwrap(), times, code }
    }

    fn random_cut(&mut self) -> Cut {
        if self.random.chance(40) { Cut::BeforeSync } else { Cut::AfterChanges(self.random.below(20)) }
    }

    /// A step on a disk that fails.
    pub async fn step_with_fault(&mut self, what: u64) {
        let fault = self.random_fault();
        self.disk.fail(fault);
        let answered = self.happened.get("fault: answered").copied();
        self.do_step(what).await;
        if self.disk.heal() > 0 && self.happened.get("fault: answered").copied() == answered {
            self.count("fault: survived");
        }
    }

    /// A step in whose middle the power is cut. The step goes on, so that its answer is known: it is there whole or not at
    /// all.
    pub async fn step_with_power_cut(&mut self, what: u64) {
        let is_one_transaction = matches!(what, 0..=12 | 21..=78 | 87 | 89..=94 | 96);
        if !is_one_transaction {
            return self.do_step(what).await;
        }
        let (model, before) = (self.model.clone(), self.witness());
        let cut = self.random_cut();
        self.disk.cut_power_at(cut);
        self.do_step(what).await;
        let Some(left) = self.disk.left() else { return };
        self.start_on(left);
        if self.witness() == before {
            self.undo(model);
        } else {
            self.count("power cut: after the commit");
        }
        self.check();
        self.recover(false).await;
    }

    /// The step never was.
    fn undo(&mut self, model: Model) {
        self.model = model;
        self.touched.clear();
        self.count("power cut: before the commit");
    }

    /// A digest of everything that a step may change.
    fn witness(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for sql in ROWS.iter().chain(&BESIDE_JOBS) {
            let mut statement = self.database.prepare_cached(sql).unwrap();
            let columns = statement.column_count();
            let mut rows = statement.query([]).unwrap();
            while let Some(row) = rows.next().unwrap() {
                (0..columns).for_each(|column| hash_value(row.get_ref(column).unwrap(), &mut hasher));
            }
            sql.hash(&mut hasher);
        }
        hasher.finish()
    }

    /// Several calls that wait together and become one transaction, in whose middle the power may be cut.
    pub async fn gather(&mut self, whole: bool) {
        let ends = self.some_ends();
        let batches: Vec<Vec<EnqueueJob>> = (0..self.random.between(1, 3)).map(|_| self.some_jobs()).collect();
        let cut = self.random_cut();
        let (settled, enqueued) = self.run_together(&ends, &batches, (!whole).then_some(cut)).await;
        let left = self.disk.left();
        let is_cut = left.is_some();
        if let Some(left) = left {
            self.start_on(left);
        }
        // In the order in which they were called. What is late changes nothing, wherever the cut came.
        let is_late = |settled: &Settled| *settled == Settled::LeaseLost;
        let timely = ends.iter().zip(&settled).filter(|(_, settled)| !is_late(settled));
        let mut kept: Vec<_> = timely.map(|(end, _)| !self.is_open(end)).collect();
        // The jobs first, so that those which the ends enqueue are the only ones that are not known.
        kept.extend(batches.into_iter().zip(enqueued).map(|(jobs, answers)| self.note_batch(jobs, &answers)));
        for (end, settled) in ends.iter().zip(settled) {
            if is_late(&settled) || !self.is_open(end) {
                self.note_settled(end, settled);
            }
        }
        if !is_cut {
            assert!(kept.iter().all(|kept| *kept), "a call that was answered is not there");
            return self.count("gathered");
        }
        // They were run in the order in which they came.
        assert!(
            kept.is_sorted_by(|earlier, later| earlier >= later),
            "a later call is there without an earlier: {kept:?}"
        );
        self.count(if kept.first() == Some(&true) { "gathered: kept" } else { "gathered: lost" });
        self.check();
        self.recover(false).await;
    }

    fn some_jobs(&mut self) -> Vec<EnqueueJob> {
        let jobs = (0..self.random.between(1, 3)).map(|_| EnqueueJob { key: None, ..self.random_job() });
        jobs.collect()
    }

    /// Ends of attempts that make nothing real beside their own job.
    fn some_ends(&mut self) -> Vec<End> {
        let mut ends = Vec::new();
        let is_plain = |model: &Model, id: i64| {
            let job = model.jobs.get(&id);
            job.is_some_and(|job| !job.kept.iter().any(|effect| matches!(effect, Effect::Enqueue(_))))
        };
        for _ in 0..self.random.between(0, 3) {
            let plain = (0..self.running.len()).filter(|at| is_plain(&self.model, self.running[*at].token.job.0));
            let Some(at) = plain.max() else { break };
            let attempt = self.running.swap_remove(at);
            let (facts, outcome) = self.chosen_end(&attempt);
            ends.push(self.end_of(&attempt.kind, &facts, &outcome, Vec::new(), false));
        }
        ends
    }

    async fn run_together(
        &mut self,
        ends: &[End],
        batches: &[Vec<EnqueueJob>],
        cut: Option<Cut>,
    ) -> (Vec<Settled>, Vec<Vec<EnqueueAnswer>>) {
        let (store, disk, now_ms) = (self.store.clone(), self.disk.clone(), self.now_ms);
        disk.hold_next_sync();
        let held = store.record_act("sim", "sim.hold", "", serde_json::json!({}), now_ms);
        let settles: Vec<_> = ends.iter().map(|end| store.settle(end.settlement.clone())).collect();
        let enqueues: Vec<_> =
            batches.iter().map(|jobs| store.enqueue(jobs.clone(), "sim", now_ms, PRIORITY_STEP_MS, u64::MAX)).collect();
        let let_go = async {
            if let Some(cut) = cut {
                disk.cut_power_at(cut);
            }
            disk.let_go();
        };
        let wait = async { disk.wait_until_held() };
        let (held, (), settled, answers, ()) = tokio::join!(held, wait, all(settles), all(enqueues), let_go);
        held.unwrap();
        (settled.into_iter().map(Result::unwrap).collect(), answers.into_iter().map(Result::unwrap).collect())
    }

    fn is_open(&self, end: &End) -> bool {
        let token = end.settlement.token;
        let sql = format!(
            "SELECT job_id FROM attempts WHERE job_id = {} AND number = {} AND ended_at IS NULL",
            token.job, token.attempt
        );
        !self.all::<i64>(&sql).is_empty()
    }

    /// Notes the jobs of one call if they are there; answers whether they are.
    fn note_batch(&mut self, jobs: Vec<EnqueueJob>, answers: &[EnqueueAnswer]) -> bool {
        let new = self.new_ids();
        let is_there =
            |answer: &EnqueueAnswer| matches!(answer, EnqueueAnswer::Enqueued { id, .. } if new.contains(&id.0));
        let there = answers.iter().filter(|answer| is_there(answer)).count();
        assert!(there == 0 || there == jobs.len(), "a part of a call is there");
        if there == 0 {
            return false;
        }
        for (job, answer) in jobs.into_iter().zip(answers) {
            self.note_enqueued(job, answer);
        }
        true
    }
}

/// Runs futures together, begun in their order.
async fn all<F: Future>(futures: Vec<F>) -> Vec<F::Output> {
    let mut futures: Vec<Pin<Box<F>>> = futures.into_iter().map(Box::pin).collect();
    let mut answers: Vec<Option<F::Output>> = futures.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        for (future, answer) in futures.iter_mut().zip(&mut answers).filter(|(_, answer)| answer.is_none()) {
            if let Poll::Ready(ready) = future.as_mut().poll(context) {
                *answer = Some(ready);
            }
        }
        if answers.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    answers.into_iter().flatten().collect()
}
