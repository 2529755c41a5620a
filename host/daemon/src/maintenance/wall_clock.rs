//! Lets jobs go whose wall time has come, wherever the wall clock was stepped meanwhile, and wakes what sleeps by a timer
//! when the machine was suspended, since timers stand still then and the queue's clock does not.
//!
//! It looks at the clocks once a second, which is a few readings and no question to the queue. A notice of the kernel's
//! about a stepped clock would be sooner by less than that, and tells nothing of a suspend.

use std::{sync::Arc, time::Duration};

use leasehold_domain::TimestampMs;
use leasehold_store::StoreError;

use crate::{
    clock::{suspended_ms, wall_ms},
    daemon::Daemon,
    trouble::Trouble,
};

/// How often the clocks are looked at: how late a step or a suspend is noticed.
const LOOK: Duration = Duration::from_secs(1);
/// A suspend that is shorter is none: the two clocks are not read at the same moment.
const SUSPEND_MIN_MS: i64 = 500;

/// Lets scheduled jobs go until the daemon's end.
pub(crate) async fn run(daemon: Arc<Daemon>) {
    let mut trouble = Trouble::default();
    loop {
        let waited_for = let_due_go(&daemon).await;
        trouble.note("letting jobs go whose time has come", &waited_for);
        let Ok(waited_for) = waited_for else {
            tokio::time::sleep(LOOK).await;
            continue;
        };
        // The queue is asked again when another job was scheduled or the wall shows the time of the first one.
        while waited_for.is_none_or(|run_at_ms| run_at_ms > wall_ms()) {
            tokio::select! {
                () = daemon.scheduled.notified() => break,
                () = tokio::time::sleep(time_to_next(waited_for, wall_ms())) => {}
            }
        }
    }
}

/// Lets go what is due by the wall; answers the wall time that is waited for next.
async fn let_due_go(daemon: &Daemon) -> Result<Option<TimestampMs>, StoreError> {
    let wall_ms = wall_ms();
    let first_ms = daemon.store.next_wall_ms().await?;
    if first_ms.is_none_or(|run_at_ms| run_at_ms > wall_ms) {
        return Ok(first_ms);
    }
    while daemon.store.reach_wall_time(wall_ms, daemon.now_ms()).await? {}
    daemon.claimable.notify_one();
    daemon.store.next_wall_ms().await
}

/// How long to sleep: to the next job's time, and never longer than a look may be late.
fn time_to_next(waited_for: Option<TimestampMs>, wall_ms: TimestampMs) -> Duration {
    let left_ms = waited_for.map(|run_at_ms| u64::try_from(run_at_ms - wall_ms).unwrap_or(0));
    left_ms.map_or(LOOK, |left_ms| LOOK.min(Duration::from_millis(left_ms)))
}

/// Watches for suspends until the daemon's end. After one, whoever sleeps until a time of the queue's clock looks again.
pub(crate) async fn watch_for_suspends(daemon: Arc<Daemon>) {
    let mut before_ms = suspended_ms();
    let mut looks = tokio::time::interval(LOOK);
    loop {
        looks.tick().await;
        let by_ms = suspended_ms() - before_ms;
        if by_ms > SUSPEND_MIN_MS {
            tracing::info!(by_ms, "the machine was suspended; leases and delays are looked at");
            daemon.running.changed.notify_one();
            daemon.next_reap.ring();
            daemon.claimable.notify_one();
        }
        before_ms += by_ms;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q14_the_wall_is_looked_at_in_time_and_at_least_each_second() {
        assert_eq!(time_to_next(None, 5_000), LOOK);
        assert_eq!(time_to_next(Some(5_250), 5_000), Duration::from_millis(250));
        assert_eq!(time_to_next(Some(90_000), 5_000), LOOK);
        // Stepped back by a day: still each second, since it may be stepped forward again.
        assert_eq!(time_to_next(Some(90_000), 5_000 - 86_400_000), LOOK);
        assert_eq!(time_to_next(Some(4_000), 5_000), Duration::ZERO);
    }
}
