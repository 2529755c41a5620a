//! Replays as they are recorded and shown. It never replays anything.

use leasehold_domain::{BulkReplayId, DeadLetterId, Digest, JobId, ReplayId, TimestampMs};
use rusqlite::Connection;

use crate::{StoreError, keys::Keys, originals::shown_digest};

/// A replay as it is recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayRecord {
    /// Its id.
    pub id: ReplayId,
    /// The dead letter that was replayed.
    pub dead_letter: DeadLetterId,
    /// 1 for the first replay of the job.
    pub number: u32,
    /// Who asked for it.
    pub actor: String,
    /// Why.
    pub reason: String,
    /// Why it ran on a version that the job had died on.
    pub override_reason: Option<String>,
    /// When.
    pub at_ms: TimestampMs,
    /// The version that it was bound to.
    pub version: String,
    /// That version's component.
    pub digest: Digest,
    /// Whether the payload was corrected with it.
    pub payload_corrected: bool,
    /// The bulk replay that it was a part of.
    pub bulk_replay: Option<BulkReplayId>,
    /// The digests of the payload that had died and of the one that was replayed, comparable within the job alone. Absent
    /// without the sealing key, and in replays from before they were kept.
    pub payload_digests: Option<(String, String)>,
    /// The state that the job ended in.
    pub result: Option<String>,
    /// When it ended.
    pub ended_at_ms: Option<TimestampMs>,
}

fn shown_digests(
    keys: Option<&Keys>,
    job: JobId,
    before: Option<Vec<u8>>,
    after: Option<Vec<u8>>,
) -> Option<(String, String)> {
    let keys = keys?;
    Some((shown_digest(keys, job.0, &before?), shown_digest(keys, job.0, &after?)))
}

pub(crate) fn replays_of(
    connection: &Connection,
    keys: Option<&Keys>,
    job: JobId,
) -> Result<Vec<ReplayRecord>, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT id, dead_letter_id, number, actor, reason, override_reason, at, version, digest, payload_corrected,
                result, ended_at, bulk_replay_id, payload_digest_before, payload_digest_after
         FROM replays WHERE job_id = ?1 ORDER BY id",
    )?;
    let rows = statement.query_map([job.0], |row| {
        Ok(ReplayRecord {
            id: ReplayId(row.get(0)?),
            dead_letter: DeadLetterId(row.get(1)?),
            number: row.get(2)?,
            actor: row.get(3)?,
            reason: row.get(4)?,
            override_reason: row.get(5)?,
            at_ms: row.get(6)?,
            version: row.get(7)?,
            digest: Digest::from_bytes(row.get(8)?),
            payload_corrected: row.get(9)?,
            payload_digests: shown_digests(keys, job, row.get(13)?, row.get(14)?),
            result: row.get(10)?,
            ended_at_ms: row.get(11)?,
            bulk_replay: row.get::<_, Option<i64>>(12)?.map(BulkReplayId),
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}
