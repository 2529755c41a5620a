//! Memory and tables of one attempt, over all its instances. What was refused is remembered, since the guest itself only
//! ends with an unreachable instruction.

use leasehold_domain::grants::AttemptLimits;
use wasmtime::ResourceLimiter;

/// Component instances, memories and tables of one store; a guest built from a few modules needs a handful.
const INSTANCES_MAX: usize = 64;

/// Counts what an attempt holds.
#[derive(Debug)]
pub(crate) struct GuestLimiter {
    memory_max_bytes: usize,
    table_elements_max: usize,
    memory_bytes: usize,
    memory_peak_bytes: usize,
    table_elements: usize,
    refused: Option<Refused>,
}

/// What was refused last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Refused {
    /// How much there would have been in all.
    pub(crate) wanted: usize,
    /// How much there may be.
    pub(crate) allowed: usize,
    /// `bytes of memory` or `table elements`.
    pub(crate) unit: &'static str,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the guest asked for {} {}; {} are allowed", self.wanted, self.unit, self.allowed)
    }
}

impl GuestLimiter {
    pub(crate) fn new(limits: &AttemptLimits) -> Self {
        Self {
            memory_max_bytes: limits.memory_max_bytes,
            table_elements_max: limits.table_elements_max,
            memory_bytes: 0,
            memory_peak_bytes: 0,
            table_elements: 0,
            refused: None,
        }
    }

    /// The most memory that the attempt held.
    pub(crate) fn memory_peak_bytes(&self) -> usize {
        self.memory_peak_bytes
    }

    /// What was refused, if anything was.
    pub(crate) fn refused(&self) -> Option<Refused> {
        self.refused
    }

    fn refuse(&mut self, wanted: usize, allowed: usize, unit: &'static str) -> bool {
        self.refused = Some(Refused { wanted, allowed, unit });
        false
    }
}

impl ResourceLimiter for GuestLimiter {
    fn memory_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        let wanted = self.memory_bytes.saturating_add(desired.saturating_sub(current));
        if wanted > self.memory_max_bytes {
            return Ok(self.refuse(wanted, self.memory_max_bytes, "bytes of memory"));
        }
        // A memory's own maximum is the guest's affair; the growth fails without the host having refused anything.
        if maximum.is_none_or(|maximum| desired <= maximum) {
            self.memory_bytes = wanted;
            self.memory_peak_bytes = self.memory_peak_bytes.max(wanted);
        }
        Ok(true)
    }

    fn table_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        let wanted = self.table_elements.saturating_add(desired.saturating_sub(current));
        if wanted > self.table_elements_max {
            return Ok(self.refuse(wanted, self.table_elements_max, "table elements"));
        }
        if maximum.is_none_or(|maximum| desired <= maximum) {
            self.table_elements = wanted;
        }
        Ok(true)
    }

    fn instances(&self) -> usize {
        INSTANCES_MAX
    }

    fn memories(&self) -> usize {
        INSTANCES_MAX
    }

    fn tables(&self) -> usize {
        INSTANCES_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: AttemptLimits = AttemptLimits {
        memory_max_bytes: 300,
        table_elements_max: 10,
        output_max_bytes: 0,
        log_max_bytes: 0,
        log_lines_max: 0,
        host_calls_max: 0,
        effects_max_bytes: 0,
        response_max_bytes: 0,
    };

    #[test]
    fn h5_memory_is_limited_over_all_memories_together() {
        let mut limiter = GuestLimiter::new(&LIMITS);
        assert!(limiter.memory_growing(0, 200, None).unwrap());
        assert!(limiter.memory_growing(0, 100, None).unwrap());
        assert_eq!(limiter.refused(), None);
        assert!(!limiter.memory_growing(100, 101, None).unwrap());
        assert_eq!(limiter.refused(), Some(Refused { wanted: 301, allowed: 300, unit: "bytes of memory" }));
        assert_eq!(limiter.memory_peak_bytes(), 300);
    }

    #[test]
    fn h5_tables_are_limited_together_and_a_guests_own_maximum_is_no_refusal() {
        let mut limiter = GuestLimiter::new(&LIMITS);
        assert!(limiter.table_growing(0, 10, None).unwrap());
        assert!(!limiter.table_growing(0, 1, None).unwrap());
        let mut limiter = GuestLimiter::new(&LIMITS);
        assert!(limiter.memory_growing(0, 200, Some(100)).unwrap());
        assert_eq!((limiter.memory_peak_bytes(), limiter.refused()), (0, None));
    }
}
