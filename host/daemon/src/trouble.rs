//! How often a fault that lasts is told: at its first failure, then at each doubling, and once when it is over. So a log
//! says that it lasts and is not flooded by it. It counts one kind of work and never decides what is done about a fault.

use leasehold_store::StoreError;

/// The failures of one piece of work since it last went well.
#[derive(Debug, Default)]
pub(crate) struct Trouble {
    failures: u32,
}

impl Trouble {
    /// Notes how a try ended, and tells it when it is worth a line.
    pub(crate) fn note<T>(&mut self, what: &str, tried: &Result<T, StoreError>) {
        match tried {
            Ok(_) if self.failures > 0 => {
                tracing::info!(failures = self.failures, "{what} goes on again");
                self.failures = 0;
            }
            Ok(_) => {}
            // Told where it was found, and there is nothing to be tried again.
            Err(error) if error.is_damage() => {}
            Err(error) => {
                if self.is_worth_a_line() {
                    tracing::error!(code = error.code(), %error, failures = self.failures, "{what} failed; it is tried again");
                }
            }
        }
    }

    /// Counts a failure; whether it is the first one or the next doubling.
    fn is_worth_a_line(&mut self) -> bool {
        self.failures = self.failures.saturating_add(1);
        self.failures.is_power_of_two()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn o6_a_fault_that_lasts_is_told_at_each_doubling() {
        let mut trouble = Trouble::default();
        let told = (0..1_000).filter(|_| trouble.is_worth_a_line()).count();
        assert_eq!(told, 10);
        trouble.note("work", &Ok(()));
        assert!(trouble.is_worth_a_line(), "another fault is another one");
    }
}
