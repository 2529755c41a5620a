//! The memory that attempts may take together: whether one more fits, and who waits when it does not. It never measures
//! anything; what an attempt takes is what its handler may use at the most.

/// What is left of the memory of all attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryRoom {
    free_bytes: u64,
    largest_running_bytes: u64,
}

/// Whether an attempt may begin, as far as memory goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fit {
    /// It may.
    Fits,
    /// It waits for the end of an attempt that takes as much; those behind it may begin before it.
    MayBeOvertaken,
    /// It waits, and nothing behind it begins before it: small attempts could take what becomes free for ever.
    KeepsItsPlace,
}

impl MemoryRoom {
    /// Room for everything.
    pub const UNLIMITED: Self = Self { free_bytes: u64::MAX, largest_running_bytes: 0 };

    /// What running attempts leave of `total_bytes`. After the total was lowered they may hold more than it.
    #[must_use]
    pub fn left_by(running_bytes: impl IntoIterator<Item = u64>, total_bytes: u64) -> Self {
        let mut room = Self { free_bytes: total_bytes, largest_running_bytes: 0 };
        running_bytes.into_iter().for_each(|bytes| room.take(bytes));
        room
    }

    /// Whether an attempt that takes so much may begin. One that does not fit is overtaken only while one runs whose end
    /// makes room for it.
    #[must_use]
    pub const fn fit(&self, bytes: u64) -> Fit {
        if bytes <= self.free_bytes {
            Fit::Fits
        } else if bytes <= self.largest_running_bytes {
            Fit::MayBeOvertaken
        } else {
            Fit::KeepsItsPlace
        }
    }

    /// An attempt begins.
    pub fn take(&mut self, bytes: u64) {
        self.free_bytes = self.free_bytes.saturating_sub(bytes);
        self.largest_running_bytes = self.largest_running_bytes.max(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h5_what_fits_begins_and_takes_its_part() {
        let mut room = MemoryRoom::left_by([30, 20], 100);
        assert_eq!(room.fit(50), Fit::Fits);
        room.take(50);
        assert_eq!(room.fit(1), Fit::MayBeOvertaken);
        assert_eq!(room.fit(0), Fit::Fits);
        assert_eq!(MemoryRoom::UNLIMITED.fit(u64::MAX), Fit::Fits);
    }

    #[test]
    fn h5_what_does_not_fit_is_overtaken_only_while_the_end_of_another_makes_room_for_it() {
        let small_ones_run = MemoryRoom::left_by([20, 20, 20], 100);
        assert_eq!(small_ones_run.fit(60), Fit::KeepsItsPlace);
        let one_as_large_runs = MemoryRoom::left_by([20, 60], 100);
        assert_eq!(one_as_large_runs.fit(60), Fit::MayBeOvertaken);
        assert_eq!(one_as_large_runs.fit(61), Fit::KeepsItsPlace);
    }

    #[test]
    fn h10_a_total_that_was_lowered_below_what_runs_leaves_nothing() {
        assert_eq!(MemoryRoom::left_by([60, 60], 100).fit(1), Fit::MayBeOvertaken);
    }
}
