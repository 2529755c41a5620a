//! The section `[sandbox]`: how many guests run at once and what one attempt may use. It never knows wasmtime.

use leasehold_domain::grants::AttemptLimits;

use super::reader::Section;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// The sandbox's size and the limits of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxSettings {
    /// How many guests run at once; all pools are sized by it.
    pub slots: u32,
    /// The largest stack of a guest, in bytes.
    pub stack_max_bytes: usize,
    /// The largest component that is stored, in bytes.
    pub component_max_bytes: usize,
    /// The bounds of one attempt; a handler's own may be lower.
    pub limits: AttemptLimits,
}

impl SandboxSettings {
    pub(super) fn read(section: &Section<'_>) -> Self {
        let settings = Self {
            slots: section.number("slots", 64, &(1..=1_000)),
            stack_max_bytes: section.size_bytes("stack_max", 512 * KIB, &(64 << 10..=8 << 20)),
            component_max_bytes: section.size_bytes("component_max", 32 * MIB, &(1 << 10..=256 << 20)),
            limits: read_limits(section, &DEFAULT_LIMITS, &MOST_LIMITS),
        };
        section.refuse_unknown();
        settings
    }
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
