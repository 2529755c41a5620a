//! What several transitions share: how states and sealed parts stand in a row. It never moves a job.

use leasehold_domain::{AttemptNumber, FencingToken, JobId, JobState};
use rusqlite::Connection;
use serde::{Deserialize, Serialize};

use crate::{StoreError, keys::Keys, random::Random, seal::Purpose};

/// Where a job stands that has not ended, by the number that its row has for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Not visible yet.
    Waiting = 0,
    /// Visible: ready, or held back by its lane.
    Ready = 1,
    /// Leased.
    Leased = 2,
}

impl Standing {
    /// Where a row stands. The row of a held job says that it waits; to whoever asks it is ready, since it is due.
    pub(crate) const fn of(state: i64, held: bool) -> Self {
        match (state, held) {
            (2, _) => Self::Leased,
            (1, _) | (_, true) => Self::Ready,
            _ => Self::Waiting,
        }
    }
}

impl From<Standing> for JobState {
    fn from(standing: Standing) -> Self {
        match standing {
            Standing::Leased => Self::Leased,
            Standing::Ready => Self::Ready,
            Standing::Waiting => Self::Waiting,
        }
    }
}

/// The state of a row of `ended_jobs`.
pub(crate) fn ended_state(text: &str) -> Result<JobState, StoreError> {
    JobState::parse(text).ok_or_else(|| StoreError::Unexpected(format!("job state {text:?}")))
}

/// A job's key and metadata, sealed together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Extras {
    pub(crate) key: String,
    #[serde(default)]
    pub(crate) metadata: Vec<(String, String)>,
}

impl Extras {
    pub(crate) fn seal(&self, keys: &Keys, random: &mut Random, job: i64) -> Result<Vec<u8>, StoreError> {
        let text = serde_json::to_vec(self).map_err(|error| StoreError::Unexpected(error.to_string()))?;
        keys.sealer.seal_with(random, Purpose::Extras, job, "", &text)
    }

    pub(crate) fn open(keys: &Keys, job: i64, sealed: &[u8]) -> Result<Self, StoreError> {
        let text = keys.sealer.open(Purpose::Extras, job, sealed)?;
        serde_json::from_slice(&text).map_err(|error| StoreError::Unexpected(error.to_string()))
    }
}

/// Whether this token holds the job's lease at this time.
pub(crate) fn lease_is_live(connection: &Connection, token: FencingToken, now_ms: i64) -> Result<bool, StoreError> {
    Ok(connection
        .prepare_cached("SELECT 1 FROM jobs WHERE id = ?1 AND attempt = ?2 AND state = 2 AND lease_expires_at > ?3")?
        .exists((token.job.0, token.attempt.0, now_ms))?)
}

/// The token of a row.
pub(crate) fn token(job: i64, attempt: u32) -> FencingToken {
    FencingToken { job: JobId(job), attempt: AttemptNumber(attempt) }
}
