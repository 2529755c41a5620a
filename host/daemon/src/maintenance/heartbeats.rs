//! Extends the leases of the attempts that run in memory, one statement a beat. A guest does nothing for it, and can do
//! nothing against it: this runs on threads that no guest has.

use std::sync::{Arc, Mutex, PoisonError};

use leasehold_store::Beat;

use crate::{
    alerts::{Alert, Met},
    attempt,
    daemon::Daemon,
    metrics,
    trouble::Trouble,
};

/// The longest sleep; only a safeguard, since whatever brings a beat nearer rings.
const SLEEP_MAX_MS: i64 = 60_000;

/// Beats until the daemon's end.
pub(crate) async fn run(daemon: Arc<Daemon>) {
    let trouble = Arc::<Mutex<Trouble>>::default();
    loop {
        let now_ms = daemon.now_ms();
        let due = daemon.running.due(now_ms);
        for token in due.ran_out {
            attempt::lose_lease(&daemon, token);
        }
        if daemon.running.len() == 0 {
            // Nothing is left whose lease could not be extended.
            daemon.alerts.clear(Alert::LeasesNotExtended, "");
        }
        if !due.beats.is_empty() {
            // On a task of its own, so that a slow write never hides another lease that runs out.
            tokio::spawn(beat(Arc::clone(&daemon), Arc::clone(&trouble), due.beats, now_ms));
        }
        let next_at_ms = due.next_at_ms.unwrap_or(i64::MAX).clamp(now_ms, now_ms + SLEEP_MAX_MS);
        tokio::select! {
            () = daemon.running.changed.notified() => {}
            () = tokio::time::sleep_until(daemon.clock.instant_at(next_at_ms).into()) => {}
        }
    }
}

async fn beat(daemon: Arc<Daemon>, trouble: Arc<Mutex<Trouble>>, beats: Vec<Beat>, due_ms: i64) {
    fail::fail_point!("heartbeat.send", |_| ());
    let beaten = daemon.store.heartbeat(beats.clone(), daemon.now_ms()).await;
    trouble.lock().unwrap_or_else(PoisonError::into_inner).note("extending leases", &beaten);
    match beaten {
        Ok(lost) => {
            let now_ms = daemon.now_ms();
            daemon.alerts.clear(Alert::LeasesNotExtended, "");
            metrics::heartbeat(now_ms - due_ms);
            let (lost_beats, extended): (Vec<_>, Vec<_>) =
                beats.into_iter().partition(|beat| lost.contains(&beat.token));
            daemon.running.beaten(&extended, true, now_ms);
            daemon.running.beaten(&lost_beats, false, now_ms);
            for beat in lost_beats {
                attempt::lose_lease(&daemon, beat.token);
            }
        }
        Err(error) => {
            let met = Met::new(Alert::LeasesNotExtended, error.code(), error.to_string());
            daemon.alerts.raise(met, daemon.now_ms());
            daemon.running.beaten(&beats, false, daemon.now_ms());
        }
    }
}
