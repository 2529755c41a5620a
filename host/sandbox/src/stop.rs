//! The switch that ends an attempt from outside its guest. It only says that the attempt has ended and why: the epoch's
//! callback stops a guest that runs, `invoke` one that waits in the host.

use std::sync::{Arc, OnceLock};

use leasehold_domain::{Outcome, StopReason};
use tokio::sync::Notify;

/// Why the host ended an attempt. It also travels as the trap out of an import.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Ended {
    /// Somebody stopped it.
    #[error("the host stopped the guest ({0:?})")]
    Stopped(StopReason),
    /// The guest did what ends an attempt; the outcome says what.
    #[error("the host ended the attempt")]
    ByGuest(Box<Outcome>),
}

/// Set once; the first reason counts.
#[derive(Debug, Default)]
pub(crate) struct StopSwitch {
    ended: OnceLock<Ended>,
    notify: Notify,
}

impl StopSwitch {
    /// Ends the attempt, unless it has ended.
    pub(crate) fn end(&self, why: Ended) {
        if self.ended.set(why).is_ok() {
            self.notify.notify_waiters();
        }
    }

    /// Why the attempt has ended, if it has.
    pub(crate) fn ended(&self) -> Option<&Ended> {
        self.ended.get()
    }

    /// Waits until the attempt has ended.
    pub(crate) async fn wait(&self) -> Ended {
        loop {
            // The waiter is enrolled before the switch is read, so that no end falls between the two.
            let mut notified = std::pin::pin!(self.notify.notified());
            notified.as_mut().enable();
            if let Some(ended) = self.ended() {
                return ended.clone();
            }
            notified.await;
        }
    }
}

/// Stops one running guest.
#[derive(Debug, Clone)]
pub struct Stopper(pub(crate) Arc<StopSwitch>);

impl Stopper {
    /// Stops the guest at its next interruption point, also inside a host call. The first reason counts; a guest that
    /// has ended is left alone.
    pub fn stop(&self, reason: StopReason) {
        self.0.end(Ended::Stopped(reason));
    }
}
