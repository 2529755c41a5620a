//! The one engine: its configuration, the pool that is derived from the number of slots, and the thread that ticks the
//! epoch by which running guests are interrupted.

use std::{thread, time::Duration};

use wasmtime::{
    Config, Enabled, Engine, InstanceAllocationStrategy, OptLevel, PoolingAllocationConfig, WasmBacktraceDetails,
};

use crate::{SandboxConfig, SandboxError};

/// How often a running guest is looked at.
const EPOCH_TICK: Duration = Duration::from_millis(1);
/// Places beyond the slots: one for instantiating on trial, the others for rehearsals, which never take a job's place.
const SPARE_SLOTS: usize = 1 + REHEARSALS_MAX;
/// How many rehearsals may run at once beside the jobs.
pub const REHEARSALS_MAX: usize = 2;
/// A component that was built with adapters has a handful of core instances, one composed of several has more.
const CORE_INSTANCES_PER_GUEST: u32 = 16;
const MEMORIES_PER_GUEST: u32 = 4;
const TABLES_PER_GUEST: u32 = 8;
/// What stays mapped between two guests of the same slot; beyond it a reset costs system calls.
const KEEP_RESIDENT_BYTES: usize = 1 << 20;
/// The fiber's stack also holds what the host's functions need.
const HOST_STACK_BYTES: usize = 1536 << 10;
/// More slots than this would not fit the address space.
const SLOTS_MAX: usize = 4096;

/// The pool's limits, all derived from the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PoolLimits {
    slots: usize,
    guests: u32,
    memory_max_bytes: usize,
    stack_max_bytes: usize,
}

impl PoolLimits {
    pub(crate) fn of(config: &SandboxConfig) -> Result<Self, SandboxError> {
        let check = |key, value: usize, least: usize, most: usize| {
            let allowed = format!("{least} to {most}");
            if (least..=most).contains(&value) { Ok(value) } else { Err(SandboxError::Config { key, value, allowed }) }
        };
        let slots = check("slots", config.slots, 1, SLOTS_MAX)?;
        let guests = u32::try_from(slots + SPARE_SLOTS).unwrap_or(u32::MAX);
        Ok(Self {
            slots,
            guests,
            memory_max_bytes: check("memory_max_bytes", config.memory_max_bytes, 64 << 10, 4 << 30)?,
            stack_max_bytes: check("stack_max_bytes", config.stack_max_bytes, 64 << 10, 64 << 20)?,
        })
    }

    pub(crate) fn slots(&self) -> usize {
        self.slots
    }

    fn pooling(&self, pagemap_scan: Enabled) -> PoolingAllocationConfig {
        let mut pool = PoolingAllocationConfig::new();
        pool.total_component_instances(self.guests)
            .total_core_instances(self.guests * CORE_INSTANCES_PER_GUEST)
            .total_memories(self.guests * MEMORIES_PER_GUEST)
            .total_tables(self.guests * TABLES_PER_GUEST)
            .total_stacks(self.guests)
            .max_core_instances_per_component(CORE_INSTANCES_PER_GUEST)
            .max_memories_per_component(MEMORIES_PER_GUEST)
            .max_tables_per_component(TABLES_PER_GUEST)
            .max_memory_size(self.memory_max_bytes)
            .max_unused_warm_slots(self.guests)
            .linear_memory_keep_resident(KEEP_RESIDENT_BYTES)
            .table_keep_resident(4096)
            .pagemap_scan(pagemap_scan);
        pool
    }
}

impl std::fmt::Display for PoolLimits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} slots: {} component instances, {} core instances, {} memories of at most {} KiB, {} tables, {} stacks \
             of {} KiB",
            self.slots,
            self.guests,
            self.guests * CORE_INSTANCES_PER_GUEST,
            self.guests * MEMORIES_PER_GUEST,
            self.memory_max_bytes >> 10,
            self.guests * TABLES_PER_GUEST,
            self.guests,
            self.stack_max_bytes >> 10,
        )
    }
}

/// Builds the engine and starts its epoch.
pub(crate) fn start(limits: &PoolLimits) -> Result<Engine, SandboxError> {
    // `Auto` uses the kernel's pagemap scan where there is one; without it a reset only costs more.
    let mut config = Config::new();
    config
        .wasm_component_model(true)
        .cranelift_opt_level(OptLevel::Speed)
        .memory_init_cow(true)
        .epoch_interruption(true)
        // Shared memories are not limited by a store's limiter, and waiting on one would block a thread.
        .wasm_threads(false)
        // Line tables are parsed outside of any deadline; the frames' names say enough.
        .wasm_backtrace_details(WasmBacktraceDetails::Disable)
        .max_wasm_stack(limits.stack_max_bytes)
        .async_stack_size(limits.stack_max_bytes + HOST_STACK_BYTES)
        .allocation_strategy(InstanceAllocationStrategy::Pooling(limits.pooling(Enabled::Auto)));
    let engine = Engine::new(&config)
        .map_err(|error| SandboxError::Engine { pool: limits.to_string(), message: format!("{error:#}") })?;
    tick(&engine)?;
    Ok(engine)
}

/// Ticks for as long as the engine lives.
fn tick(engine: &Engine) -> Result<(), SandboxError> {
    let engine = engine.weak();
    thread::Builder::new()
        .name("leasehold-epoch".into())
        .spawn(move || {
            while let Some(engine) = engine.upgrade() {
                engine.increment_epoch();
                drop(engine);
                thread::sleep(EPOCH_TICK);
            }
        })
        .map(drop)
        .map_err(|source| SandboxError::Threads { what: "the epoch's thread", source })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(slots: usize) -> SandboxConfig {
        SandboxConfig {
            slots,
            memory_max_bytes: 64 << 20,
            stack_max_bytes: 512 << 10,
            component_max_bytes: 1 << 20,
            compiled_directory: "unused".into(),
        }
    }

    #[test]
    fn h5_the_pool_is_derived_from_the_slots_and_says_so() {
        let limits = PoolLimits::of(&config(8)).unwrap();
        assert_eq!(
            limits.to_string(),
            "8 slots: 11 component instances, 176 core instances, 44 memories of at most 65536 KiB, 88 tables, 11 \
             stacks of 512 KiB"
        );
    }

    #[test]
    fn o4_a_number_out_of_range_is_named_with_what_is_allowed() {
        let error = PoolLimits::of(&config(0)).unwrap_err();
        assert_eq!(error.to_string(), "[sandbox] slots is 0; allowed is 1 to 4096");
    }
}
