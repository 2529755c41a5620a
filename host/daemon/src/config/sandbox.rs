//! The section `[sandbox]`: how many guests run at once and what one attempt, and all of them, may use. It never knows
//! wasmtime.

use std::collections::BTreeMap;

use leasehold_domain::{HandlerName, grants::AttemptLimits};

use super::{HandlerConfig, reader::Section, units::size_text};
use crate::machine;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// The sandbox's size and the limits of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxSettings {
    /// How many guests run at once; all pools are sized by it.
    pub slots: u32,
    /// The memory that all attempts together may have, in bytes. Each takes its handler's `memory_max` of it.
    pub memory_total_max_bytes: u64,
    /// The largest stack of a guest, in bytes.
    pub stack_max_bytes: usize,
    /// The largest component that is stored, in bytes.
    pub component_max_bytes: usize,
    /// The bounds of one attempt; a handler's own may be lower.
    pub limits: AttemptLimits,
}

impl SandboxSettings {
    pub(super) fn read(section: &Section<'_>) -> Self {
        let slots = section.number("slots", 64, &(1..=1_000));
        let limits = read_limits(section, &DEFAULT_LIMITS, &MOST_LIMITS);
        let settings = Self {
            slots,
            memory_total_max_bytes: read_memory_total(section, slots, limits.memory_max_bytes as u64),
            stack_max_bytes: section.size_bytes("stack_max", 512 * KIB, &(64 << 10..=8 << 20)),
            component_max_bytes: section.size_bytes("component_max", 32 * MIB, &(1 << 10..=256 << 20)),
            limits,
        };
        section.refuse_unknown();
        settings
    }

    /// A handler whose attempts take more than there is for all of them would never run.
    pub(super) fn check_handlers(&self, section: &Section<'_>, handlers: &BTreeMap<HandlerName, HandlerConfig>) {
        let total_bytes = self.memory_total_max_bytes;
        for (name, handler) in handlers {
            let memory_bytes = handler.limits.memory_max_bytes as u64;
            if memory_bytes > total_bytes {
                let (memory, total) = (size_text(memory_bytes), size_text(total_bytes));
                let message = format!(
                    "{total} is below what one attempt of handler {name} may use, {memory}; raise this to at least \
                     {memory}, or lower memory_max under [handlers.{name}.limits] or [sandbox]"
                );
                section.error("memory_total_max", message);
            }
        }
    }
}

/// The memory of all attempts together, as it is written or as the machine allows.
fn read_memory_total(section: &Section<'_>, slots: u32, memory_max_bytes: u64) -> u64 {
    let written = section.entry("memory_total_max").filter(|entry| !entry.is_text("auto"));
    let written = written.and_then(|entry| entry.size_bytes_or(&(64 << 10..=1 << 40), ", or \"auto\""));
    written.unwrap_or_else(|| default_memory_total(slots, memory_max_bytes, machine::memory_bytes()))
}

/// What all slots could use, or half of the machine's memory where that is less; but always enough for one attempt.
fn default_memory_total(slots: u32, memory_max_bytes: u64, machine_bytes: Option<u64>) -> u64 {
    let all_slots = u64::from(slots).saturating_mul(memory_max_bytes);
    all_slots.min(machine_bytes.map_or(u64::MAX, |bytes| bytes / 2).max(memory_max_bytes))
}

const DEFAULT_LIMITS: AttemptLimits = AttemptLimits {
    memory_max_bytes: 64 * MIB,
    table_elements_max: 20_000,
    output_max_bytes: 256 * KIB,
    log_max_bytes: 64 * KIB,
    log_lines_max: 1_000,
    host_calls_max: 10_000,
    effects_max_bytes: MIB,
    response_max_bytes: 4 * MIB,
};

/// The most that can be configured.
const MOST_LIMITS: AttemptLimits = AttemptLimits {
    memory_max_bytes: 4_096 * MIB,
    table_elements_max: 1_000_000,
    output_max_bytes: 64 * MIB,
    log_max_bytes: 16 * MIB,
    log_lines_max: 1_000_000,
    host_calls_max: 10_000_000,
    effects_max_bytes: 64 * MIB,
    response_max_bytes: 256 * MIB,
};

/// Reads the bounds of an attempt, none above `most`; what is absent is as in `default`.
pub(super) fn read_limits(section: &Section<'_>, default: &AttemptLimits, most: &AttemptLimits) -> AttemptLimits {
    let size = |name, default_bytes, most_bytes: usize, least_bytes| {
        section.size_bytes(name, default_bytes, &(least_bytes..=most_bytes as u64))
    };
    let number = |name, default, most| section.number(name, default, &(0..=most));
    AttemptLimits {
        memory_max_bytes: size("memory_max", default.memory_max_bytes, most.memory_max_bytes, 64 << 10),
        table_elements_max: number("table_elements_max", default.table_elements_max, most.table_elements_max),
        output_max_bytes: size("output_max", default.output_max_bytes, most.output_max_bytes, 0),
        log_max_bytes: size("log_max", default.log_max_bytes, most.log_max_bytes, 0),
        log_lines_max: number("log_lines_max", default.log_lines_max, most.log_lines_max),
        host_calls_max: number("host_calls_max", default.host_calls_max, most.host_calls_max),
        effects_max_bytes: size("effects_max", default.effects_max_bytes, most.effects_max_bytes, 0),
        response_max_bytes: size("response_max", default.response_max_bytes, most.response_max_bytes, 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h5_by_default_attempts_share_half_of_the_machine_or_what_all_slots_could_use() {
        let mib = |count: u64| count << 20;
        assert_eq!(default_memory_total(64, mib(64), Some(mib(16_384))), mib(4_096));
        assert_eq!(default_memory_total(64, mib(64), Some(mib(2_048))), mib(1_024));
        assert_eq!(default_memory_total(64, mib(64), None), mib(4_096));
        // One attempt always fits, however small the machine.
        assert_eq!(default_memory_total(64, mib(64), Some(mib(100))), mib(64));
    }
}
