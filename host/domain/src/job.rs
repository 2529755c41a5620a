//! A job's states and the causes of its death. Nothing here moves a job: `verdict` decides and the store does.

use serde::{Deserialize, Serialize};

/// Where a job stands. Only what differs in behaviour is a state: a retry is a waiting job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// Not visible yet: delayed, or backing off.
    Waiting,
    /// Can be leased.
    Ready,
    /// One worker holds it.
    Leased,
    /// Ended well.
    Done,
    /// Ended with nothing to be done, for a reason that is kept.
    Suppressed,
    /// In the dead letters.
    Dead,
    /// Ended by whoever cancelled it.
    Cancelled,
    /// A dead letter that an operator discarded.
    Discarded,
}

impl JobState {
    /// All states, in the order of a job's life.
    pub const ALL: [Self; 8] = [
        Self::Waiting,
        Self::Ready,
        Self::Leased,
        Self::Done,
        Self::Suppressed,
        Self::Dead,
        Self::Cancelled,
        Self::Discarded,
    ];

    /// The state as it is stored and shown.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Ready => "ready",
            Self::Leased => "leased",
            Self::Done => "done",
            Self::Suppressed => "suppressed",
            Self::Dead => "dead",
            Self::Cancelled => "cancelled",
            Self::Discarded => "discarded",
        }
    }

    /// The state of that name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }

    /// Whether nothing further happens to the job by itself.
    #[must_use]
    pub const fn is_end(self) -> bool {
        !matches!(self, Self::Waiting | Self::Ready | Self::Leased)
    }
}

/// Why a job died.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// A defect of the handler or the payload.
    Poison,
    /// Downstream refused for good.
    Rejected,
    /// Downstream failures, rate limits or lease expiries outlasted the cap.
    Exhausted,
    /// The daemon stopped under the job while it was a suspect.
    Crashed,
    /// A step is in doubt and the kind's policy is to ask an operator.
    InDoubt,
    /// The version that the replay was bound to was not live when the job was leased.
    ReplayRefused,
}

impl Cause {
    /// All causes.
    pub const ALL: [Self; 6] =
        [Self::Poison, Self::Rejected, Self::Exhausted, Self::Crashed, Self::InDoubt, Self::ReplayRefused];

    /// The cause as it is stored and shown.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Poison => "poison",
            Self::Rejected => "rejected",
            Self::Exhausted => "exhausted",
            Self::Crashed => "crashed",
            Self::InDoubt => "in_doubt",
            Self::ReplayRefused => "replay_refused",
        }
    }

    /// The cause of that name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|cause| cause.as_str() == text)
    }

    /// Whether the cause blames the handler's code, so that a replay wants another version.
    #[must_use]
    pub const fn blames_handler(self) -> bool {
        matches!(self, Self::Poison | Self::Crashed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q1_a_state_is_stored_under_a_name_and_read_back_from_it_and_says_whether_it_is_an_end() {
        let named = [
            (JobState::Waiting, "waiting", false),
            (JobState::Ready, "ready", false),
            (JobState::Leased, "leased", false),
            (JobState::Done, "done", true),
            (JobState::Suppressed, "suppressed", true),
            (JobState::Dead, "dead", true),
            (JobState::Cancelled, "cancelled", true),
            (JobState::Discarded, "discarded", true),
        ];
        assert_eq!(named.map(|(state, ..)| state), JobState::ALL);
        for (state, name, is_end) in named {
            assert_eq!((state.as_str(), JobState::parse(name), state.is_end()), (name, Some(state), is_end));
            assert_eq!(serde_json::to_value(state).unwrap(), name, "what is stored and what is sent differ");
        }
        assert_eq!(JobState::parse("Ready"), None);
    }

    #[test]
    fn d1_a_cause_is_stored_under_a_name_and_read_back_from_it_and_says_whether_it_blames_the_handler() {
        let named = [
            (Cause::Poison, "poison", true),
            (Cause::Rejected, "rejected", false),
            (Cause::Exhausted, "exhausted", false),
            (Cause::Crashed, "crashed", true),
            (Cause::InDoubt, "in_doubt", false),
            (Cause::ReplayRefused, "replay_refused", false),
        ];
        assert_eq!(named.map(|(cause, ..)| cause), Cause::ALL);
        for (cause, name, blames_handler) in named {
            assert_eq!((cause.as_str(), Cause::parse(name)), (name, Some(cause)));
            assert_eq!(cause.blames_handler(), blames_handler, "{name}");
            assert_eq!(serde_json::to_value(cause).unwrap(), name, "what is stored and what is sent differ");
        }
        assert_eq!(Cause::parse("Poison"), None);
    }
}
