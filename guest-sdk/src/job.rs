//! A job as its handler sees it, and how its payload is read. It never repeats a payload's values in an error.

use serde::de::DeserializeOwned;

use crate::Failure;

/// One attempt at a job.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Job<T> {
    /// The job's number in the queue.
    pub id: u64,
    /// The job's type.
    pub kind: String,
    /// The job's stable idempotency key.
    pub key: String,
    /// What the job shares a rate limit with: a customer, a host.
    pub lane: Option<String>,
    /// The number of this attempt. It never goes back and may have gaps.
    pub attempt: u32,
    /// How many attempts have counted against the cap, this one included.
    pub attempts_used: u32,
    /// The cap.
    pub attempts_max: u32,
    /// When the job was enqueued, in milliseconds since 1970.
    pub enqueued_at_ms: u64,
    /// When the host will stop this attempt, in milliseconds since 1970.
    pub deadline_ms: u64,
    /// The payload's media type, as the enqueuer gave it.
    pub content_type: String,
    /// What the job is about.
    pub payload: T,
    /// What the enqueuer attached to the job.
    pub metadata: Vec<(String, String)>,
    /// Present when this attempt belongs to a replay.
    pub replay: Option<Replay>,
}

impl<T> Job<T> {
    /// The same job with another payload.
    pub(crate) fn with_payload<U>(self, payload: U) -> Job<U> {
        Job {
            id: self.id,
            kind: self.kind,
            key: self.key,
            lane: self.lane,
            attempt: self.attempt,
            attempts_used: self.attempts_used,
            attempts_max: self.attempts_max,
            enqueued_at_ms: self.enqueued_at_ms,
            deadline_ms: self.deadline_ms,
            content_type: self.content_type,
            payload,
            metadata: self.metadata,
            replay: self.replay,
        }
    }
}

impl Job<Vec<u8>> {
    /// The job with its payload read as the handler wants it.
    pub(crate) fn parsed<T: Payload>(mut self) -> Result<Job<T>, Failure> {
        let payload = T::from_bytes(std::mem::take(&mut self.payload))?;
        Ok(self.with_payload(payload))
    }
}

/// Who replayed the job's dead letter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replay {
    /// 1 for the first replay of the job.
    pub number: u32,
    /// The authenticated caller that asked for it.
    pub actor: String,
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
}

/// What a handler can take as its payload: anything that serde reads from JSON, or [`Raw`] bytes.
pub trait Payload: Sized {
    /// Reads the payload, or says why it can't be read.
    fn from_bytes(bytes: Vec<u8>) -> Result<Self, Failure>;
}

/// A payload taken as it stands, whatever it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Raw(pub Vec<u8>);

impl Payload for Raw {
    fn from_bytes(bytes: Vec<u8>) -> Result<Self, Failure> {
        Ok(Self(bytes))
    }
}

impl<T: DeserializeOwned> Payload for T {
    fn from_bytes(bytes: Vec<u8>) -> Result<Self, Failure> {
        serde_json::from_slice(&bytes)
            .map_err(|error| Failure::poison("payload.invalid", without_values(&error.to_string())))
    }
}

/// Takes the offending value out of serde's words, since it comes from the payload: what was found and what was expected,
/// with line and column, is enough to find the place.
fn without_values(message: &str) -> String {
    for (opening, value_starts) in
        [("invalid type: ", [" \"", " `"]), ("invalid value: ", [" \"", " `"]), ("unknown variant", [" `"; 2])]
    {
        let Some(rest) = message.strip_prefix(opening) else { continue };
        let start = value_starts.iter().filter_map(|start| rest.find(start)).min();
        // A value may itself hold the words that follow it, so the end is looked for from the right.
        let end = rest.rfind(", expected ");
        if let (Some(start), Some(end)) = (start, end)
            && start < end
        {
            return format!("{opening}{}{}", &rest[..start], &rest[end..]);
        }
    }
    message.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, serde::Deserialize)]
    struct Order {
        #[allow(dead_code, reason = "only whether it can be read matters here")]
        amount: u32,
    }

    #[derive(Debug, serde::Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Colour {
        Red,
        Green,
    }

    fn message_of<T: Payload + std::fmt::Debug>(text: &str) -> String {
        match T::from_bytes(text.as_bytes().to_vec()).expect_err("the payload must be refused") {
            Failure::Poison(problem) => {
                assert_eq!(problem.class, "payload.invalid");
                problem.message
            }
            other => panic!("not poison: {other:?}"),
        }
    }

    #[test]
    fn h5_an_unreadable_payload_names_its_place_and_no_value() {
        assert_eq!(
            message_of::<Order>(r#"{"amount": "alice@example.com, expected 1"}"#),
            "invalid type: string, expected u32 at line 1 column 42"
        );
        assert_eq!(
            message_of::<Order>(r#"{"amount": -5}"#),
            "invalid value: integer, expected u32 at line 1 column 13"
        );
        assert_eq!(message_of::<Colour>(r#""alice""#), "unknown variant, expected `red` or `green` at line 1 column 7");
        assert_eq!(message_of::<Order>("{}"), "missing field `amount` at line 1 column 2");
        assert_eq!(message_of::<Order>("{\n\"amount\": "), "EOF while parsing a value at line 2 column 10");
    }

    #[test]
    fn a_readable_payload_is_read() {
        assert!(matches!(Colour::from_bytes(b"\"red\"".to_vec()), Ok(Colour::Red)));
        assert!(matches!(Colour::from_bytes(b"\"green\"".to_vec()), Ok(Colour::Green)));
    }

    #[test]
    fn raw_bytes_are_taken_as_they_stand() {
        assert_eq!(Raw::from_bytes(vec![0xff, 0]), Ok(Raw(vec![0xff, 0])));
    }
}
