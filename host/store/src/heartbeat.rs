//! Leases are extended, one statement a beat, for exactly the attempts whose guests run in memory. It never revives a
//! lease that has run out and never extends one past its attempt's deadline.

use std::collections::HashSet;

use leasehold_domain::{FencingToken, TimestampMs};

use crate::{Store, StoreError, rows::token, writer::Urgency};

/// One lease to extend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Beat {
    /// The attempt whose guest runs.
    pub token: FencingToken,
    /// Until when the lease should hold.
    pub lease_expires_at_ms: TimestampMs,
}

impl Store {
    /// Extends leases. Answers the tokens whose leases are lost.
    pub async fn heartbeat(&self, beats: Vec<Beat>, now_ms: TimestampMs) -> Result<Vec<FencingToken>, StoreError> {
        self.note_time(now_ms);
        let rows: Vec<_> =
            beats.iter().map(|beat| (beat.token.job.0, beat.token.attempt.0, beat.lease_expires_at_ms)).collect();
        let rows = serde_json::to_string(&rows).map_err(|error| StoreError::Unexpected(error.to_string()))?;
        let extended: HashSet<FencingToken> = self
            .shared
            .writer
            .call(Urgency::Lease, move |connection| {
                let mut statement = connection.prepare_cached(
                    "UPDATE jobs SET lease_expires_at =
                         max(lease_expires_at, min(deadline_at, json_extract(beat.value, '$[2]')))
                     FROM json_each(?1) AS beat
                     WHERE jobs.id = json_extract(beat.value, '$[0]')
                       AND jobs.attempt = json_extract(beat.value, '$[1]')
                       AND jobs.state = 2 AND jobs.lease_expires_at > ?2
                     RETURNING id, attempt",
                )?;
                let ids = statement.query_map((&rows, now_ms), |row| Ok(token(row.get(0)?, row.get(1)?)))?;
                Ok(ids.collect::<Result<_, _>>()?)
            })
            .await?;
        Ok(beats.into_iter().map(|beat| beat.token).filter(|token| !extended.contains(token)).collect())
    }
}
