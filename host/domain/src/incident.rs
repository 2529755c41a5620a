//! What an incident decides: whether an arriving dead letter pages somebody, and which versions its dead letters may be
//! replayed onto. It never sends or stores anything.

use std::cmp::Ordering;

use crate::{HandlerVersion, IncidentId};

/// The dead letters of one kind and error class that arrived while no incident was open for them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Arrivals {
    /// How many arrived, whatever has become of them since.
    pub count: u64,
    /// How many there were at the last page; 0 before the first.
    pub paged_at: u64,
}

impl Arrivals {
    /// Counts one more. A page goes out when `page_after` of them have arrived, and again at each doubling of what the
    /// last page told.
    #[must_use]
    pub const fn one_more(self, page_after: u64) -> (Self, bool) {
        let count = self.count.saturating_add(1);
        let threshold = if self.paged_at == 0 { page_after } else { self.paged_at.saturating_mul(2) };
        let pages = count >= threshold;
        (Self { count, paged_at: if pages { count } else { self.paged_at } }, pages)
    }
}

/// An incident's word on the version that mends what its dead letters died of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fix {
    /// The incident that says so.
    pub incident: IncidentId,
    /// The first version that is fixed.
    pub fixed_in: HandlerVersion,
}

impl Fix {
    /// Whether it speaks of a dead letter that died on this version. One that died on a fixed version died of something
    /// else, or the fix is none; either way the incident says nothing of it.
    #[must_use]
    pub fn concerns(&self, died_on: Option<&HandlerVersion>) -> bool {
        died_on.is_none_or(|died_on| died_on.name != self.fixed_in.name || self.is_after(died_on))
    }

    /// Whether it lets a dead letter that it concerns be replayed onto this version. Of another handler's versions it
    /// says nothing.
    #[must_use]
    pub fn admits(&self, target: &HandlerVersion) -> bool {
        target.name != self.fixed_in.name || !self.is_after(target)
    }

    fn is_after(&self, other: &HandlerVersion) -> bool {
        // Builds of one version come in no order (Semantic Versioning 2.0.0, 10).
        self.fixed_in.version.cmp_precedence(&other.version) == Ordering::Greater
    }
}

/// The fix that a version has the furthest to go to.
#[must_use]
pub fn furthest_unmet<'a>(fixes: &'a [Fix], target: &HandlerVersion) -> Option<&'a Fix> {
    let unmet = fixes.iter().filter(|fix| !fix.admits(target));
    unmet.max_by(|left, right| left.fixed_in.version.cmp_precedence(&right.fixed_in.version))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn version(text: &str) -> HandlerVersion {
        text.parse().unwrap()
    }

    fn fix(fixed_in: &str) -> Fix {
        Fix { incident: IncidentId(1), fixed_in: version(fixed_in) }
    }

    /// The numbers of the arrivals that page.
    fn pages(page_after: u64, arrivals: u64) -> Vec<u64> {
        let mut state = Arrivals::default();
        let mut paged = Vec::new();
        for number in 1..=arrivals {
            let (next, is_paged) = state.one_more(page_after);
            state = next;
            paged.extend(is_paged.then_some(number));
        }
        paged
    }

    #[test]
    fn o2_a_page_goes_out_once_and_at_each_doubling() {
        assert_eq!(pages(1, 40), [1, 2, 4, 8, 16, 32]);
        assert_eq!(pages(3, 40), [3, 6, 12, 24]);
    }

    #[test]
    fn o2_a_threshold_that_is_lowered_pages_at_the_next_arrival() {
        let waiting = Arrivals { count: 5, paged_at: 0 };
        assert_eq!(waiting.one_more(100), (Arrivals { count: 6, paged_at: 0 }, false));
        assert_eq!(waiting.one_more(2), (Arrivals { count: 6, paged_at: 6 }, true));
    }

    proptest! {
        #[test]
        fn o2_pages_grow_with_the_logarithm_of_what_arrives(page_after in 1_u64..50, arrivals in 0_u64..5_000) {
            let paged = pages(page_after, arrivals);
            prop_assert!(paged.len() <= 14);
            prop_assert_eq!(paged.is_empty(), arrivals < page_after);
            prop_assert!(paged.windows(2).all(|pair| pair[1] == pair[0] * 2));
        }
    }

    #[test]
    fn o2_a_fix_concerns_what_died_before_it() {
        let fixed = fix("h@1.2.0");
        for (died_on, concerned) in [
            (Some("h@1.1.9"), true),
            (Some("h@1.2.0-rc.1"), true),
            (Some("other@9.0.0"), true),
            (None, true),
            (Some("h@1.2.0"), false),
            (Some("h@1.2.0+build.7"), false),
            (Some("h@2.0.0"), false),
        ] {
            assert_eq!(fixed.concerns(died_on.map(version).as_ref()), concerned, "{died_on:?}");
        }
    }

    #[test]
    fn o2_a_fix_admits_its_version_later_ones_and_those_of_other_handlers() {
        let fixed = fix("h@1.2.0");
        for (target, admitted) in
            [("h@1.1.9", false), ("h@1.2.0-rc.1", false), ("h@1.2.0", true), ("h@1.10.0", true), ("other@0.1.0", true)]
        {
            assert_eq!(fixed.admits(&version(target)), admitted, "{target}");
        }
    }

    #[test]
    fn o2_the_furthest_fix_is_the_one_that_is_named() {
        let fixes = [fix("h@1.2.0"), fix("h@1.10.0"), fix("h@1.9.0")];
        assert_eq!(furthest_unmet(&fixes, &version("h@1.1.0")), Some(&fixes[1]));
        assert_eq!(furthest_unmet(&fixes, &version("h@1.10.0")), None);
    }
}
