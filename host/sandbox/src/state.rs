//! The state of one attempt's store, and how the store is made: limits, epoch and handles bounded before any guest code
//! runs.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

use wasmtime::{Engine, Store, UpdateDeadline, component::ResourceTable};
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};
use wasmtime_wasi_config::WasiConfigVariables;
use wasmtime_wasi_http::{WasiHttpCtx, WasiHttpCtxView, WasiHttpView};

use crate::{attempt::Attempt, imports, limits::GuestLimiter, outbound::Outbound};

/// Resources that a guest holds at once: streams, requests, steps.
const HANDLES_MAX: usize = 10_000;
/// A guest writes an outgoing body in pieces of up to this size, whatever its limits are.
const CALL_LEAST_BYTES: usize = 2 << 20;
/// How many ticks pass before a guest gives way for the first time. The first of them may come at once; with two, a guest
/// that needs less than one never waits for others that do not end.
const TICKS_AT_FIRST: u64 = 2;

/// What the imports of one attempt work on.
pub(crate) struct GuestState {
    pub(crate) attempt: Arc<Attempt>,
    pub(crate) table: ResourceTable,
    pub(crate) settings: Arc<WasiConfigVariables>,
    pub(crate) limiter: GuestLimiter,
    wasi: WasiCtx,
    http: WasiHttpCtx,
    outbound: Outbound,
}

impl crate::bindings::leasehold::job::types::Host for GuestState {}

impl WasiView for GuestState {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
    }
}

impl WasiHttpView for GuestState {
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        WasiHttpCtxView { ctx: &mut self.http, table: &mut self.table, hooks: &mut self.outbound }
    }
}

/// A fresh store for one attempt.
pub(crate) fn store(engine: &Engine, attempt: &Arc<Attempt>, settings: &Arc<WasiConfigVariables>) -> Store<GuestState> {
    let mut table = ResourceTable::new();
    table.set_max_capacity(HANDLES_MAX);
    let state = GuestState {
        attempt: attempt.clone(),
        table,
        settings: settings.clone(),
        limiter: GuestLimiter::new(&attempt.limits),
        wasi: imports::wasi::context(&attempt.log),
        http: WasiHttpCtx::new(),
        outbound: Outbound::new(attempt.clone()),
    };
    let mut store = Store::new(engine, state);
    store.limiter(|state| &mut state.limiter);
    store.set_max_component_handles(HANDLES_MAX);
    store.set_hostcall_fuel(call_max_bytes(attempt));
    store.set_epoch_deadline(TICKS_AT_FIRST);
    let attempt = attempt.clone();
    store.epoch_deadline_callback(move |_| Ok(at_tick(&attempt)));
    store
}

/// How many bytes a guest hands over in one call, its result included.
fn call_max_bytes(attempt: &Attempt) -> usize {
    attempt.limits.output_max_bytes.max(attempt.limits.effects_max_bytes).max(CALL_LEAST_BYTES)
}

/// At each tick a running guest gives way to the others, or is interrupted. Giving way through the runtime's own queue
/// lets its timers and sockets be served, which a plain yield would starve.
fn at_tick(attempt: &Arc<Attempt>) -> UpdateDeadline {
    if attempt.log.is_flooded() {
        attempt.end_flooded();
    }
    if attempt.stop.ended().is_some() || Instant::now() >= attempt.deadline {
        return UpdateDeadline::Interrupt;
    }
    let attempt = attempt.clone();
    attempt.yielding.store(true, Ordering::Release);
    UpdateDeadline::YieldCustom(
        1,
        Box::pin(async move {
            tokio::task::yield_now().await;
            attempt.yielding.store(false, Ordering::Release);
        }),
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use leasehold_domain::StopReason;

    use super::*;
    use crate::stop::Ended;

    #[test]
    fn h5_a_running_guest_gives_way_until_its_deadline_or_its_stop() {
        let past = Arc::new(Attempt::for_tests(Instant::now()));
        assert!(matches!(at_tick(&past), UpdateDeadline::Interrupt));
        let running = Arc::new(Attempt::for_tests(Instant::now() + Duration::from_hours(1)));
        assert!(matches!(at_tick(&running), UpdateDeadline::YieldCustom(1, _)));
        running.stop.end(Ended::Stopped(StopReason::Cancelled));
        assert!(matches!(at_tick(&running), UpdateDeadline::Interrupt));
    }

    #[test]
    fn h5_a_guest_that_floods_its_log_is_interrupted() {
        let attempt = Arc::new(Attempt::for_tests(Instant::now() + Duration::from_hours(1)));
        while !attempt.log.is_flooded() {
            assert!(matches!(at_tick(&attempt), UpdateDeadline::YieldCustom(1, _)));
            attempt.log.write(crate::LogLevel::Info, &"one more line\n".repeat(1_000));
        }
        assert!(matches!(at_tick(&attempt), UpdateDeadline::Interrupt));
        assert!(matches!(attempt.stop.ended(), Some(Ended::ByGuest(_))));
    }
}
