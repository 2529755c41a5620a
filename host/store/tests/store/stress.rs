//! Q3 under load: many claimants, a reaper, late workers and a clock that all of them move, checked at every step against
//! what each of them holds.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicI64, Ordering},
    },
};

use leasehold_domain::JobId;
use leasehold_store::{Beat, Claimed, Settled, Settlement};

use crate::queue::{Queue, VISIBILITY_MS, complete, job, kind, retry, settlement};

const JOBS: i64 = 60;
const WORKERS: u32 = 8;
const ROUNDS: u32 = 120;

/// What the workers know to hold.
#[derive(Default)]
struct Held {
    /// Each held job's attempt, and until when its lease holds for certain.
    leases: HashMap<JobId, (u32, i64)>,
    /// The last attempt of each job that anybody was given.
    last_attempts: HashMap<JobId, u32>,
}

struct Load {
    queue: Queue,
    now_ms: AtomicI64,
    held: Mutex<Held>,
    done: AtomicI64,
}

impl Load {
    /// The clock goes on by a little each time that somebody looks.
    fn look_at_the_clock(&self) -> i64 {
        self.now_ms.fetch_add(7, Ordering::SeqCst)
    }

    fn took(&self, claimed: &Claimed, now_ms: i64) {
        let mut held = self.held.lock().unwrap();
        let (job, attempt) = (claimed.token.job, claimed.token.attempt.0);
        if let Some((other, until_ms)) = held.leases.insert(job, (attempt, claimed.lease_expires_at_ms)) {
            assert!(
                until_ms <= now_ms,
                "job {job} was leased at {now_ms} while attempt {other} held it until {until_ms}"
            );
        }
        let before = held.last_attempts.insert(job, attempt).unwrap_or(0);
        assert!(attempt > before, "job {job} got attempt {attempt} after {before}");
    }

    /// Gives up what is held, before the settlement that lets it go.
    fn gives_up(&self, claimed: &Claimed) {
        let mut held = self.held.lock().unwrap();
        if held.leases.get(&claimed.token.job).is_some_and(|(attempt, _)| *attempt == claimed.token.attempt.0) {
            held.leases.remove(&claimed.token.job);
        }
    }

    fn extended(&self, claimed: &Claimed, until_ms: i64) {
        let mut held = self.held.lock().unwrap();
        if let Some((attempt, until)) = held.leases.get_mut(&claimed.token.job)
            && *attempt == claimed.token.attempt.0
        {
            *until = until_ms;
        }
    }

    async fn end(&self, claimed: &Claimed, fate: u32) {
        let now_ms = self.look_at_the_clock();
        match fate % 10 {
            0 => {
                self.gives_up(claimed);
                if self.queue.settle(settlement(claimed, complete(), now_ms)).await != Settled::LeaseLost {
                    self.done.fetch_add(1, Ordering::SeqCst);
                    let last = self.held.lock().unwrap().last_attempts[&claimed.token.job];
                    assert_eq!(last, claimed.token.attempt.0, "an old token ended job {}", claimed.token.job);
                }
            }
            1..=3 => {
                self.gives_up(claimed);
                self.queue.settle(settlement(claimed, retry(now_ms + 5), now_ms)).await;
            }
            4..=6 => {
                let beat = Beat { token: claimed.token, lease_expires_at_ms: now_ms + VISIBILITY_MS };
                if self.queue.store.heartbeat(vec![beat], now_ms).await.unwrap().is_empty() {
                    self.extended(claimed, beat.lease_expires_at_ms);
                }
            }
            // The worker is gone; the reaper finds its lease.
            _ => {}
        }
    }

    async fn reap(&self) {
        let now_ms = self.look_at_the_clock();
        for lease in self.queue.store.expired_leases(now_ms, 10).await.unwrap() {
            let claimed = self.queue.store.contents(lease.token).await.unwrap();
            let Some(_) = claimed else { continue };
            let now_ms = self.look_at_the_clock();
            let settlement = Settlement {
                token: lease.token,
                now_ms,
                verdict: retry(now_ms),
                only_if_expired: true,
                ..template(lease.token)
            };
            self.queue.settle(settlement).await;
        }
    }
}

fn template(token: leasehold_domain::FencingToken) -> Settlement {
    Settlement {
        token,
        now_ms: 0,
        verdict: complete(),
        attempt: leasehold_store::AttemptRecordText { ended_as: "expired", ..Default::default() },
        effects: Vec::new(),
        dead_letter: None,
        only_if_expired: false,
        priority_step_ms: 1,
        unclean_stops: 0,
    }
}

async fn work(load: Arc<Load>, worker: u32) {
    let mut late = Vec::new();
    for round in 0..ROUNDS {
        let now_ms = load.look_at_the_clock();
        let cap = leasehold_store::KindClaim { attempts_max: u32::MAX, ..kind("k") };
        let claim = load.queue.claim(vec![cap], 3, now_ms).await;
        for claimed in claim.jobs {
            load.took(&claimed, now_ms);
            let fate =
                round.wrapping_mul(7).wrapping_add(worker.wrapping_mul(13)).wrapping_add(claimed.token.attempt.0);
            load.end(&claimed, fate).await;
            if fate % 10 > 6 {
                late.push(claimed);
            }
        }
        // A worker that was thought gone comes back with its result, long after.
        if round % 10 == 9 {
            for claimed in late.drain(..) {
                load.end(&claimed, 0).await;
            }
        }
        load.reap().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn q3_no_job_ever_has_two_live_leases() {
    let queue = Queue::new().await;
    queue.enqueue((0..JOBS).map(|_| job("k")).collect(), 0).await;
    let load = Arc::new(Load { queue, now_ms: AtomicI64::new(1), held: Mutex::default(), done: AtomicI64::new(0) });
    let workers: Vec<_> = (0..WORKERS).map(|worker| tokio::spawn(work(Arc::clone(&load), worker))).collect();
    for worker in workers {
        worker.await.unwrap();
    }
    let queue = &load.queue;
    assert_eq!(queue.number("SELECT count(*) FROM ended_jobs WHERE state = 'done'"), load.done.load(Ordering::SeqCst));
    assert_eq!(queue.number("SELECT (SELECT count(*) FROM jobs) + (SELECT count(*) FROM ended_jobs)"), JOBS);
    let gaps = "SELECT count(*) FROM (SELECT 1 FROM attempts GROUP BY job_id HAVING count(*) <> max(number))";
    assert_eq!(queue.number(gaps), 0);
    let open =
        "SELECT count(*) FROM attempts a LEFT JOIN jobs j ON j.id = a.job_id AND j.attempt = a.number AND j.state = 2
                WHERE a.ended_at IS NULL AND j.id IS NULL";
    assert_eq!(queue.number(open), 0);
    let overlaps = "SELECT count(*) FROM attempts a JOIN attempts b ON b.job_id = a.job_id AND b.number = a.number + 1
                    WHERE a.ended_at IS NULL OR b.leased_at < a.ended_at";
    assert_eq!(queue.number(overlaps), 0);
    assert!(queue.number("SELECT count(*) FROM attempts") > 2 * JOBS, "the load was too light to tell");
    assert!(queue.number("SELECT count(*) FROM attempts WHERE ended_as = 'expired'") > 0, "nothing ever expired");
}
