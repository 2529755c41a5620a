//! A point of time on the wire: RFC 3339, UTC, to the millisecond. It never reads a clock.

use std::fmt;

use leasehold_domain::TimestampMs;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{KnownFormat, ObjectBuilder, RefOr, Schema, SchemaFormat, schema::Type},
};

/// A point of time, written like `2026-03-01T09:30:00.250Z`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp(jiff::Timestamp);

impl Timestamp {
    /// The time of that many milliseconds since 1970; what lies outside the years 1 to 9999 is brought to its nearest
    /// end, since an answer must not fail for a strange row.
    #[must_use]
    pub fn from_ms(timestamp_ms: TimestampMs) -> Self {
        let nearest = if timestamp_ms < 0 { jiff::Timestamp::MIN } else { jiff::Timestamp::MAX };
        Self(jiff::Timestamp::from_millisecond(timestamp_ms).unwrap_or(nearest))
    }

    /// Milliseconds since 1970.
    #[must_use]
    pub fn as_ms(self) -> TimestampMs {
        self.0.as_millisecond()
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3}", self.0)
    }
}

impl std::str::FromStr for Timestamp {
    type Err = jiff::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(|_| serde::de::Error::custom("a time is written like 2026-03-01T09:30:00Z (RFC 3339)"))
    }
}

impl PartialSchema for Timestamp {
    fn schema() -> RefOr<Schema> {
        let format = SchemaFormat::KnownFormat(KnownFormat::DateTime);
        ObjectBuilder::new().schema_type(Type::String).format(Some(format)).into()
    }
}

impl ToSchema for Timestamp {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_written_to_the_millisecond_and_read_back() {
        let time = Timestamp::from_ms(1_772_357_400_250);
        assert_eq!(time.to_string(), "2026-03-01T09:30:00.250Z");
        assert_eq!(time.to_string().parse::<Timestamp>().unwrap(), time);
        assert!(serde_json::from_str::<Timestamp>("\"tomorrow\"").is_err());
    }

    #[test]
    fn a_time_beyond_the_calendar_is_brought_to_its_end() {
        assert!(Timestamp::from_ms(i64::MAX).to_string().starts_with("9999-"));
        assert!(Timestamp::from_ms(i64::MIN).as_ms() < 0);
    }
}
