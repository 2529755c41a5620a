//! What a bulk replay does next: how many of its members may go now, and what its probe decides. It never looks
//! anything up and never reads a clock.

use std::{fmt, str::FromStr};

use crate::{DurationMs, JobState, TimestampMs};

/// How far behind its rate a bulk replay may be and still catch up. What a longer standstill held up is not made up for:
/// it would come as a burst.
pub const CATCH_UP_MS: DurationMs = 1_000;
/// The fastest rate that can be asked for, in jobs a second.
pub const RATE_MAX_PER_SECOND: u32 = 10_000;

/// Where a bulk replay stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BulkState {
    /// Its members go, one after the other.
    Running,
    /// No further member goes until an operator resumes it.
    Stopped,
    /// Every member has had its turn.
    Done,
}

impl BulkState {
    /// All states.
    pub const ALL: [Self; 3] = [Self::Running, Self::Stopped, Self::Done];

    /// The state as it is stored.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Stopped => "stopped",
            Self::Done => "done",
        }
    }

    /// The state of that name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }
}

/// How it stands with trying one member before the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Probe {
    /// Nobody asked for a probe, or it ended well.
    NotNeeded,
    /// The next member that can be replayed is the probe.
    Wanted,
    /// The probe is replayed and its job has not ended.
    Out,
    /// The probe's job ended in this state.
    Ended(JobState),
}

/// A number of jobs in a span of time, such as 20 a second. Written `20/s`, `600/m` or `100/h`; a bare number is a
/// second's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Thousandths of a job in the span, so that `0.5/s` is a rate as well.
    thousandths: u64,
    unit: RateUnit,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RateUnit {
    Second,
    Minute,
    Hour,
}

impl RateUnit {
    const ALL: [Self; 3] = [Self::Second, Self::Minute, Self::Hour];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Second => "s",
            Self::Minute => "m",
            Self::Hour => "h",
        }
    }

    const fn span_ms(self) -> u64 {
        match self {
            Self::Second => 1_000,
            Self::Minute => 60_000,
            Self::Hour => 3_600_000,
        }
    }
}

/// The text is no rate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "a rate is a number of jobs above 0, with at most three decimals, a second or another span: 20, 0.5, 20/s, 600/m, \
     100/h; at most {RATE_MAX_PER_SECOND}/s"
)]
pub struct RateError;

impl FromStr for Rate {
    type Err = RateError;

    fn from_str(text: &str) -> Result<Self, RateError> {
        let (number, unit) = text.trim().split_once('/').unwrap_or((text.trim(), "s"));
        let unit = RateUnit::ALL.into_iter().find(|known| known.as_str() == unit).ok_or(RateError)?;
        let thousandths = thousandths(number).filter(|thousandths| *thousandths > 0).ok_or(RateError)?;
        let fastest = u128::from(RATE_MAX_PER_SECOND) * u128::from(unit.span_ms());
        if u128::from(thousandths) > fastest { Err(RateError) } else { Ok(Self { thousandths, unit }) }
    }
}

/// A decimal number with at most three decimals, in thousandths.
fn thousandths(number: &str) -> Option<u64> {
    let (whole, decimals) = number.split_once('.').unwrap_or((number, "0"));
    let is_digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if !is_digits(whole) || !is_digits(decimals) || decimals.len() > 3 {
        return None;
    }
    let decimals: u64 = format!("{decimals:0<3}").parse().ok()?;
    whole.parse::<u64>().ok()?.checked_mul(1_000)?.checked_add(decimals)
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, decimals) = (self.thousandths / 1_000, self.thousandths % 1_000);
        match decimals {
            0 => write!(f, "{whole}/{}", self.unit.as_str()),
            _ => write!(f, "{whole}.{}/{}", format!("{decimals:03}").trim_end_matches('0'), self.unit.as_str()),
        }
    }
}

/// How far a bulk replay has come since it began to go: at its start, when it was resumed, when the daemon started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// Since when.
    pub since_ms: TimestampMs,
    /// How many members were replayed since. One that is refused costs nobody anything, and so no time either.
    pub gone: u64,
}

impl Pace {
    /// The pace of one that begins to go now: its first member is due at once.
    #[must_use]
    pub const fn from(now_ms: TimestampMs) -> Self {
        Self { since_ms: now_ms, gone: 0 }
    }

    /// Forgives what a standstill held up.
    #[must_use]
    pub fn caught_up(self, rate: Rate, now_ms: TimestampMs) -> Self {
        if now_ms.saturating_sub(rate.due_ms(self)) > CATCH_UP_MS { Self::from(now_ms) } else { self }
    }
}

impl Rate {
    /// When the next member is due.
    fn due_ms(self, pace: Pace) -> TimestampMs {
        let span = u128::from(self.unit.span_ms()) * 1_000;
        let after_ms = (u128::from(pace.gone) * span).div_ceil(u128::from(self.thousandths));
        pace.since_ms.saturating_add(i64::try_from(after_ms).unwrap_or(i64::MAX))
    }

    /// How many members are due by now.
    fn due_count(self, pace: Pace, now_ms: TimestampMs) -> u64 {
        let elapsed_ms = u128::from(u64::try_from(now_ms.saturating_sub(pace.since_ms)).unwrap_or(0));
        let span = u128::from(self.unit.span_ms()) * 1_000;
        let earned = elapsed_ms * u128::from(self.thousandths) / span + 1;
        u64::try_from(earned).unwrap_or(u64::MAX).saturating_sub(pace.gone)
    }
}

/// What is known of a running bulk replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// How it stands with its probe.
    pub probe: Probe,
    /// Whether any member has not had its turn.
    pub has_pending: bool,
    /// How fast it goes; as fast as can be when absent.
    pub rate: Option<Rate>,
    /// How far it has come.
    pub pace: Pace,
}

/// What a running bulk replay does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// So many members may go now, at the most.
    Go(u64),
    /// No member is due before that time.
    WaitUntil(TimestampMs),
    /// The probe has to end first.
    AwaitProbe,
    /// The probe ended well, so the rest may go.
    PassProbe,
    /// The probe did not end well, so the rest may not go.
    FailProbe,
    /// Every member has had its turn.
    Finish,
}

/// Decides what a running bulk replay does now.
#[must_use]
pub fn next(standing: &Standing, now_ms: TimestampMs) -> Next {
    match standing.probe {
        Probe::Ended(JobState::Done | JobState::Suppressed) => return Next::PassProbe,
        Probe::Ended(_) => return Next::FailProbe,
        Probe::Out => return Next::AwaitProbe,
        Probe::Wanted | Probe::NotNeeded => {}
    }
    let due_count = standing.rate.map_or(u64::MAX, |rate| rate.due_count(standing.pace, now_ms));
    match (standing.has_pending, due_count, standing.rate) {
        (false, ..) => Next::Finish,
        (true, 0, Some(rate)) => Next::WaitUntil(rate.due_ms(standing.pace)),
        (true, ..) if standing.probe == Probe::Wanted => Next::Go(1),
        (true, count, _) => Next::Go(count),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rate(text: &str) -> Rate {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn standing(rate: Option<Rate>, pace: Pace) -> Standing {
        Standing { probe: Probe::NotNeeded, has_pending: true, rate, pace }
    }

    #[test]
    fn r6_a_rate_reads_as_it_is_written() {
        for (text, shown) in
            [("20", "20/s"), ("0.5", "0.5/s"), ("20/s", "20/s"), ("600/m", "600/m"), ("1.25/h", "1.25/h")]
        {
            assert_eq!(rate(text).to_string(), shown);
            assert_eq!(rate(shown), rate(text));
        }
        for text in
            ["", "0", "0.000", "-1", "1/d", "/s", "1.", ".5", "1.0001", "1e3", "NaN", "10001", "600001/m", "20/s/s"]
        {
            assert_eq!(text.parse::<Rate>(), Err(RateError), "{text:?}");
        }
        assert_eq!(rate("10000/s"), rate("10000"));
        assert_eq!(rate("0.125/h").to_string(), "0.125/h");
    }

    #[test]
    fn r6_a_state_is_stored_under_a_name_and_read_back_from_it() {
        let named = [(BulkState::Running, "running"), (BulkState::Stopped, "stopped"), (BulkState::Done, "done")];
        assert_eq!(named.map(|(state, _)| state), BulkState::ALL);
        for (state, name) in named {
            assert_eq!((state.as_str(), BulkState::parse(name)), (name, Some(state)));
        }
        assert_eq!(BulkState::parse("Running"), None);
    }

    #[test]
    fn r6_members_go_at_the_rate_the_first_one_at_once() {
        let begun = Pace::from(1_000);
        let at = |gone, now_ms| next(&standing(Some(rate("2/s")), Pace { gone, ..begun }), now_ms);
        assert_eq!(at(0, 1_000), Next::Go(1));
        assert_eq!(at(1, 1_000), Next::WaitUntil(1_500));
        assert_eq!(at(1, 1_499), Next::WaitUntil(1_500));
        assert_eq!(at(1, 1_500), Next::Go(1));
        assert_eq!(at(2, 1_900), Next::WaitUntil(2_000));
        assert_eq!(next(&standing(Some(rate("1/m")), Pace { gone: 1, ..begun }), 1_001), Next::WaitUntil(61_000));
        assert_eq!(next(&standing(None, Pace { gone: 900, ..begun }), 1_000), Next::Go(u64::MAX));
    }

    #[test]
    fn r6_what_a_standstill_held_up_does_not_come_as_a_burst() {
        let rate = rate("20/s");
        let pace = Pace { since_ms: 0, gone: 100 };
        // A little late, it catches up; an hour late, it begins anew.
        assert_eq!(pace.caught_up(rate, 5_500), pace);
        assert_eq!(pace.caught_up(rate, 6_000), pace);
        assert_eq!(pace.caught_up(rate, 6_001), Pace::from(6_001));
        assert_eq!(pace.caught_up(rate, 3_600_000), Pace::from(3_600_000));
        assert_eq!(next(&standing(Some(rate), pace.caught_up(rate, 3_600_000)), 3_600_000), Next::Go(1));
    }

    #[test]
    fn r6_the_rest_goes_only_after_a_probe_that_ended_well() {
        let with = |probe, has_pending| next(&Standing { probe, has_pending, ..standing(None, Pace::from(0)) }, 0);
        assert_eq!(with(Probe::Wanted, true), Next::Go(1));
        assert_eq!(with(Probe::Out, true), Next::AwaitProbe);
        assert_eq!(with(Probe::Out, false), Next::AwaitProbe);
        for state in JobState::ALL.into_iter().filter(|state| state.is_end()) {
            let expected = match state {
                JobState::Done | JobState::Suppressed => Next::PassProbe,
                _ => Next::FailProbe,
            };
            assert_eq!(with(Probe::Ended(state), true), expected);
        }
        assert_eq!(with(Probe::NotNeeded, false), Next::Finish);
        assert_eq!(with(Probe::Wanted, false), Next::Finish);
    }

    proptest! {
        /// Looked at whenever, it never gets ahead of its rate, and a look after any rest finds little more than what
        /// `CATCH_UP_MS` holds.
        #[test]
        fn r6_no_rate_is_ever_exceeded(
            thousandths in 1_u64..20_000_000,
            unit in prop::sample::select(&RateUnit::ALL[..]),
            rests in prop::collection::vec(0_i64..10_000_000, 1..40),
        ) {
            prop_assume!(thousandths <= 10_000 * unit.span_ms());
            let rate = Rate { thousandths, unit };
            let earned = |ms: i64| u128::try_from(ms).unwrap() * u128::from(thousandths) / (u128::from(unit.span_ms()) * 1_000);
            let (mut pace, mut now_ms, mut total) = (Pace::from(0), 0, 0_u128);
            for rest_ms in rests {
                now_ms += rest_ms;
                pace = pace.caught_up(rate, now_ms);
                if let Next::Go(count) = next(&standing(Some(rate), pace), now_ms) {
                    prop_assert!(u128::from(count) <= earned(CATCH_UP_MS) + 2);
                    pace.gone += count;
                    total += u128::from(count);
                }
                prop_assert!(total <= earned(now_ms) + 1);
                // All that was due has gone, and the time that is named is the first at which there is more.
                let Next::WaitUntil(due_ms) = next(&standing(Some(rate), pace), now_ms) else {
                    return Err(TestCaseError::fail("there was more"));
                };
                prop_assert!(due_ms > now_ms);
                prop_assert!(matches!(next(&standing(Some(rate), pace), due_ms), Next::Go(_)));
                prop_assert!(matches!(next(&standing(Some(rate), pace), due_ms - 1), Next::WaitUntil(_)));
            }
        }
    }
}
