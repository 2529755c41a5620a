//! How refusals come into the audit log without a flood of them filling it: the first of its kind in a minute at once,
//! those that follow as one count when the minute is over. It reads no clock and writes nothing itself.

use std::collections::BTreeMap;

use crate::TimestampMs;

const MINUTE_MS: i64 = 60_000;
/// How many kinds of refusals have a row of their own in one minute; what goes beyond shares one count.
const DISTINCT_MAX: usize = 32;

/// What was refused to whom. Refusals that are equal are counted together.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Refused {
    /// Who asked: an actor, or where the call came from when nobody knows who it was.
    pub actor: String,
    /// What was asked for.
    pub operation: String,
    /// What it was asked for of, such as a dead letter's id; absent where who asked is not let in to anything.
    pub subject: Option<String>,
    /// The stable code of the refusal.
    pub code: String,
    /// The role that was lacking, if it was a role.
    pub needed_role: Option<String>,
    /// The address that the call came from, if it came over the network.
    pub peer: Option<String>,
}

impl Refused {
    /// What stands for all refusals beyond those that have rows of their own.
    fn others() -> Self {
        Self {
            actor: "others".to_owned(),
            operation: "any".to_owned(),
            subject: None,
            code: "refused".to_owned(),
            needed_role: None,
            peer: None,
        }
    }
}

/// A row for the audit log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedRow {
    /// What was refused.
    pub refused: Refused,
    /// How often, beyond what a row before this one has told.
    pub count: u64,
}

/// The refusals of the current minute.
#[derive(Debug, Default)]
pub struct Refusals {
    minute: i64,
    /// How often each was refused in this minute beyond the first time.
    further: BTreeMap<Refused, u64>,
}

impl Refusals {
    /// Notes a refusal; answers the rows that are to be written now. In a minute these are at most `DISTINCT_MAX` first
    /// ones and as many counts, and one count more for all others.
    pub fn note(&mut self, refused: Refused, now_ms: TimestampMs) -> Vec<RefusedRow> {
        let mut rows = self.end_minute(now_ms);
        let has_room = self.further.len() < DISTINCT_MAX;
        match self.further.get_mut(&refused) {
            Some(further) => *further += 1,
            None if has_room => {
                self.further.insert(refused.clone(), 0);
                rows.push(RefusedRow { refused, count: 1 });
            }
            None => *self.further.entry(Refused::others()).or_default() += 1,
        }
        rows
    }

    /// The counts that are still to be written of a minute that is over.
    pub fn end_minute(&mut self, now_ms: TimestampMs) -> Vec<RefusedRow> {
        let minute = now_ms.div_euclid(MINUTE_MS);
        if minute == self.minute {
            return Vec::new();
        }
        self.minute = minute;
        self.end()
    }

    /// The counts that are still to be written, whether or not the minute is over.
    pub fn end(&mut self) -> Vec<RefusedRow> {
        let counted = std::mem::take(&mut self.further).into_iter().filter(|(_, further)| *further > 0);
        counted.map(|(refused, count)| RefusedRow { refused, count }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(actor: &str) -> Refused {
        Refused {
            actor: actor.to_owned(),
            operation: "Reload".to_owned(),
            subject: None,
            code: "role_required".to_owned(),
            needed_role: Some("admin".to_owned()),
            peer: None,
        }
    }

    fn told(rows: &[RefusedRow]) -> Vec<(&str, u64)> {
        rows.iter().map(|row| (row.refused.actor.as_str(), row.count)).collect()
    }

    #[test]
    fn o5_the_first_refusal_of_a_minute_is_told_at_once_and_the_rest_as_a_count() {
        let mut refusals = Refusals::default();
        assert_eq!(told(&refusals.note(refused("jo"), 60_000)), [("jo", 1)]);
        for now_ms in 60_001..60_100 {
            assert!(refusals.note(refused("jo"), now_ms).is_empty());
        }
        assert_eq!(told(&refusals.note(refused("kim"), 70_000)), [("kim", 1)]);
        assert!(refusals.end_minute(119_999).is_empty());
        assert_eq!(told(&refusals.note(refused("jo"), 120_000)), [("jo", 99), ("jo", 1)]);
        assert!(refusals.end_minute(180_000).is_empty());
    }

    #[test]
    fn o5_a_flood_of_different_refusals_makes_a_bounded_number_of_rows_and_is_counted_whole() {
        let mut refusals = Refusals::default();
        let mut rows = Vec::new();
        for number in 0..10_000 {
            rows.extend(refusals.note(refused(&format!("peer {}", number % 5_000)), 60_000));
        }
        assert!(refusals.further.len() <= DISTINCT_MAX + 1, "what is kept in memory has no bound");
        rows.extend(refusals.end());
        assert_eq!(rows.len(), 2 * DISTINCT_MAX + 1);
        assert_eq!(rows.iter().map(|row| row.count).sum::<u64>(), 10_000);
        assert_eq!(rows.iter().filter(|row| row.refused.actor == "others").count(), 1);
    }
}
