//! Replaying a dead letter: the decision and the job's return to the queue in one transaction. The job keeps its id,
//! key, steps and attempt numbers; its allowed attempts start over.

use std::sync::Arc;

use leasehold_domain::{
    BulkReplayId, Cause, DeadLetterId, Digest, HandlerName, HandlerVersion, IncidentId, JobId, ReplayId, StepName,
    TimestampMs,
    incident::Fix,
    place::place_in_line,
    replay::{Candidate, ReplayFacts, ReplayRefusal, choose_target},
};
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde_json::json;

use crate::{
    Store, StoreError, audit, dead_letters, enqueue, handlers, incidents, keys::Keys, originals::shown_digest,
    rows::Standing, seal::Purpose, transaction::Transaction, writer::Urgency,
};

/// What an operator asks for.
#[derive(Debug, Clone)]
pub struct ReplayRequest {
    /// The dead letter.
    pub dead_letter: DeadLetterId,
    /// The handler that serves its kind.
    pub handler: HandlerName,
    /// The version to run on; the handler's current one when absent.
    pub version: Option<HandlerVersion>,
    /// Components that are missing or damaged.
    pub damaged: Vec<Digest>,
    /// Who asks, from the authenticated caller.
    pub actor: String,
    /// Why.
    pub reason: String,
    /// Why it should run on a version that the job has died on.
    pub override_reason: Option<String>,
    /// A payload in place of the original.
    pub payload: Option<Vec<u8>>,
    /// What is known of steps in doubt, by their names.
    pub resolutions: Vec<(StepName, Resolution)>,
    /// Whether steps in doubt are begun again by the kind's policy.
    pub begin_again: bool,
    /// The bulk replay that it is a part of.
    pub bulk_replay: Option<BulkReplayId>,
    /// The queue's time.
    pub now_ms: TimestampMs,
    /// How far a step of priority moves a job in line.
    pub priority_step_ms: i64,
}

/// What an operator says of a step in doubt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resolution {
    /// It was applied; later runs get this result.
    Applied(Vec<u8>),
    /// It was not applied; the next run begins it afresh.
    NotApplied,
}

impl Resolution {
    const fn as_str(&self) -> &'static str {
        match self {
            Self::Applied(_) => "applied",
            Self::NotApplied => "not_applied",
        }
    }
}

/// What became of a replay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplayAnswer {
    /// The job is back in the queue.
    Replayed {
        /// The replay.
        replay: ReplayId,
        /// The job.
        job: JobId,
        /// The version that it is bound to.
        version: HandlerVersion,
        /// That version's component.
        digest: Digest,
    },
    /// It may not be replayed as asked.
    Refused(ReplayRefusal),
    /// It was replayed or discarded before.
    NotOpen {
        /// Where it stands.
        state: String,
    },
    /// The original was not kept; a payload has to be given.
    NoOriginal,
    /// A step that was to be resolved is not in doubt.
    NotInDoubt {
        /// The step.
        step: String,
    },
    /// There is no such dead letter.
    NotFound,
}

impl ReplayAnswer {
    /// Why a dead letter was not replayed: a stable code, and words that say what would make it go through.
    #[must_use]
    pub fn refusal(&self, id: DeadLetterId) -> Option<(String, String)> {
        let (code, words) = match self {
            Self::Replayed { .. } => return None,
            Self::Refused(refusal) => (refusal.code().to_owned(), refusal.to_string()),
            Self::NotOpen { state } => dead_letters::not_open(id, state),
            Self::NotInDoubt { step } => {
                let words = format!("step {step} is not in doubt; only steps in doubt can be resolved");
                ("step_not_in_doubt".to_owned(), words)
            }
            Self::NoOriginal => {
                let words = format!(
                    "the original of dead letter {id} is not kept (keep_original of its kind, or original_retention); give \
                     the payload with the replay"
                );
                ("original_not_kept".to_owned(), words)
            }
            Self::NotFound => ("not_found".to_owned(), format!("there is no dead letter {id}")),
        };
        Some((code, words))
    }
}

struct OpenLetter {
    job: i64,
    kind: String,
    error_class: String,
    version: Option<String>,
    cause: Cause,
    state: String,
    has_original: bool,
}

/// Whether a dead letter may be replayed.
pub(crate) enum Decision {
    /// It may, onto this version.
    Go {
        /// Its job.
        job: i64,
        /// The version.
        target: Candidate,
        /// Incidents whose fix it does not have, which the operator overrides.
        overridden: Vec<IncidentId>,
        /// The payload's digests.
        digests: Digests,
    },
    /// It may not.
    No(ReplayAnswer),
}

/// The digests of a payload before and after a replay, as they are stored.
pub(crate) struct Digests {
    before: Vec<u8>,
    after: Vec<u8>,
}

impl Digests {
    fn of(connection: &Connection, keys: &Keys, job: i64, payload: Option<&[u8]>) -> Result<Self, StoreError> {
        let before: Vec<u8> = connection
            .prepare_cached("SELECT payload_digest FROM ended_jobs WHERE id = ?1")?
            .query_row([job], |row| row.get(0))?;
        let after = payload.map_or_else(|| before.clone(), |payload| enqueue::payload_digest(keys, payload).to_vec());
        Ok(Self { before, after })
    }

    /// Whether the payload is another one. Sending the same again corrects nothing.
    fn differ(&self) -> bool {
        self.before != self.after
    }
}

impl Store {
    /// Replays a dead letter or says why not.
    pub async fn replay(&self, request: ReplayRequest) -> Result<ReplayAnswer, StoreError> {
        self.note_time(request.now_ms);
        let keys = Arc::clone(&self.shared.keys);
        self.shared
            .writer
            .call(Urgency::Usual, move |transaction| {
                let answer = replay(transaction, keys.get()?, &request)?;
                fail::fail_point!("replay.inserted");
                Ok(answer)
            })
            .await
    }
}

/// Decides about a dead letter and carries the replay out, within the caller's transaction.
pub(crate) fn replay(
    transaction: &Transaction<'_>,
    keys: &Keys,
    request: &ReplayRequest,
) -> Result<ReplayAnswer, StoreError> {
    let candidates = handlers::candidates(transaction, request.handler.as_str(), &request.damaged)?;
    let (job, target, overridden, digests) = match decide(transaction, keys, request, &candidates)? {
        Decision::Go { job, target, overridden, digests } => (job, target, overridden, digests),
        Decision::No(answer) => return Ok(answer),
    };
    if let Some(step) = resolve(transaction, keys, job, request)? {
        return Ok(ReplayAnswer::NotInDoubt { step });
    }
    let payload_sealed = payload(transaction, keys, job, request)?;
    let id = record(transaction, keys, job, request, &target, &overridden, &digests)?;
    put_back(transaction, job, request, id, &target, &payload_sealed)?;
    if let Some(payload) = &request.payload {
        correct_payload(transaction, job, &digests.after, payload)?;
    }
    let keep_original = digests.differ();
    dead_letters::close(transaction, request.dead_letter, "replayed", keep_original, &request.actor, request.now_ms)?;
    Ok(ReplayAnswer::Replayed { replay: ReplayId(id), job: JobId(job), version: target.version, digest: target.digest })
}

/// Whether a dead letter may be replayed as asked, as things stand. It changes nothing.
pub(crate) fn decide(
    connection: &Connection,
    keys: &Keys,
    request: &ReplayRequest,
    candidates: &[Candidate],
) -> Result<Decision, StoreError> {
    let Some(letter) = find(connection, request.dead_letter)? else { return Ok(Decision::No(ReplayAnswer::NotFound)) };
    if letter.state != "open" {
        return Ok(Decision::No(ReplayAnswer::NotOpen { state: letter.state }));
    }
    let digests = Digests::of(connection, keys, letter.job, request.payload.as_deref())?;
    let facts = ReplayFacts {
        cause: letter.cause,
        died_on: &died_on(connection, letter.job)?,
        versions: candidates,
        asked: request.version.as_ref(),
        payload_corrected: digests.differ(),
        override_reason: request.override_reason.as_deref(),
        unresolved_steps: &unresolved_steps(connection, letter.job, request)?,
        fixes: &fixes(connection, &letter)?,
    };
    let target = match choose_target(&facts) {
        Ok(target) => target.clone(),
        Err(refusal) => return Ok(Decision::No(ReplayAnswer::Refused(refusal))),
    };
    if request.payload.is_none() && !letter.has_original {
        return Ok(Decision::No(ReplayAnswer::NoOriginal));
    }
    let unmet = facts.fixes.iter().filter(|fix| !fix.admits(&target.version));
    let overridden = unmet.map(|fix| fix.incident).collect();
    Ok(Decision::Go { job: letter.job, target, overridden, digests })
}

fn find(connection: &Connection, id: DeadLetterId) -> Result<Option<OpenLetter>, StoreError> {
    let found = connection
        .prepare_cached(
            "SELECT job_id, cause, state, payload_sealed IS NOT NULL, kind, error_class, version FROM dead_letters
             WHERE id = ?1",
        )?
        .query_row([id.0], |row| Ok(letter(row)))
        .optional()?;
    found.transpose()
}

fn letter(row: &Row<'_>) -> Result<OpenLetter, StoreError> {
    let cause: String = row.get(1)?;
    Ok(OpenLetter {
        job: row.get(0)?,
        kind: row.get(4)?,
        error_class: row.get(5)?,
        version: row.get(6)?,
        cause: Cause::parse(&cause).ok_or_else(|| StoreError::Unexpected(format!("cause {cause:?}")))?,
        state: row.get(2)?,
        has_original: row.get(3)?,
    })
}

fn died_on(connection: &Connection, job: i64) -> Result<Vec<Digest>, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT DISTINCT digest FROM dead_letters WHERE job_id = ?1 AND digest IS NOT NULL
             AND cause <> 'replay_refused'",
    )?;
    let digests = statement.query_map([job], |row| Ok(Digest::from_bytes(row.get(0)?)))?;
    Ok(digests.collect::<Result<_, _>>()?)
}

/// What incidents say of the death. Nothing ran for a refused replay, so the death before it is the one to mend.
fn fixes(connection: &Connection, letter: &OpenLetter) -> Result<Vec<Fix>, StoreError> {
    let ran = connection
        .prepare_cached(
            "SELECT error_class, version FROM dead_letters WHERE job_id = ?1 AND cause <> 'replay_refused'
             ORDER BY id DESC LIMIT 1",
        )?
        .query_row([letter.job], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let (class, version): (String, Option<String>) = match ran {
        Some(ran) => ran,
        None => (letter.error_class.clone(), letter.version.clone()),
    };
    incidents::fixes(connection, &letter.kind, &class, version.as_deref())
}

fn unresolved_steps(connection: &Connection, job: i64, request: &ReplayRequest) -> Result<Vec<String>, StoreError> {
    if request.begin_again {
        return Ok(Vec::new());
    }
    let mut statement =
        connection.prepare_cached("SELECT name FROM steps WHERE job_id = ?1 AND state = 'begun' ORDER BY name")?;
    let names = statement.query_map([job], |row| row.get::<_, String>(0))?;
    let is_resolved = |name: &String| request.resolutions.iter().any(|(step, _)| step.as_str() == name);
    let names: Vec<String> = names.collect::<Result<_, _>>()?;
    Ok(names.into_iter().filter(|name| !is_resolved(name)).collect())
}

/// Settles steps in doubt as the operator says, in the replay's own transaction. Answers a step that is not in doubt.
fn resolve(
    connection: &Connection,
    keys: &Keys,
    job: i64,
    request: &ReplayRequest,
) -> Result<Option<String>, StoreError> {
    let in_doubt = |name: &StepName| {
        connection
            .prepare_cached("SELECT 1 FROM steps WHERE job_id = ?1 AND name = ?2 AND state = 'begun'")?
            .exists(params![job, name.as_str()])
    };
    for (name, _) in &request.resolutions {
        if !in_doubt(name)? {
            return Ok(Some(name.to_string()));
        }
    }
    for (name, resolution) in &request.resolutions {
        let (state, result) = match resolution {
            Resolution::NotApplied => ("taken_back", None),
            Resolution::Applied(result) => {
                let sealed = keys.sealer.seal_named(Purpose::StepResult, job, name.as_str(), result)?;
                ("applied", Some(sealed))
            }
        };
        connection
            .prepare_cached(
                "UPDATE steps SET state = ?3, applied_at = CASE ?3 WHEN 'applied' THEN ?4 END, result_sealed = ?5
                 WHERE job_id = ?1 AND name = ?2",
            )?
            .execute(params![job, name.as_str(), state, request.now_ms, result])?;
    }
    Ok(None)
}

/// The sealed payload to replay: the corrected one, or the original.
fn payload(connection: &Connection, keys: &Keys, job: i64, request: &ReplayRequest) -> Result<Vec<u8>, StoreError> {
    match &request.payload {
        Some(payload) => keys.sealer.seal(Purpose::Payload, job, payload),
        None => Ok(connection
            .prepare_cached("SELECT payload_sealed FROM dead_letters WHERE id = ?1")?
            .query_row([request.dead_letter.0], |row| row.get(0))?),
    }
}

fn record(
    connection: &Connection,
    keys: &Keys,
    job: i64,
    request: &ReplayRequest,
    target: &Candidate,
    overridden: &[IncidentId],
    digests: &Digests,
) -> Result<i64, StoreError> {
    connection
        .prepare_cached(
            "INSERT INTO replays (dead_letter_id, job_id, number, actor, reason, override_reason, at, version_id, version,
                                  digest, payload_corrected, bulk_replay_id, payload_digest_before,
                                  payload_digest_after)
             VALUES (?1, ?2, 1 + (SELECT count(*) FROM replays WHERE job_id = ?2), ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10,
                     ?11, ?12, ?13)",
        )?
        .execute(params![
            request.dead_letter.0,
            job,
            request.actor,
            request.reason,
            request.override_reason,
            request.now_ms,
            target.id.0,
            target.version.to_string(),
            target.digest.as_bytes(),
            digests.differ(),
            request.bulk_replay.map(|bulk| bulk.0),
            digests.before,
            digests.after
        ])?;
    let id = connection.last_insert_rowid();
    let mut detail = json!({
        "replay": id, "job": job, "reason": request.reason, "override_reason": request.override_reason,
        "version": target.version, "digest": target.digest, "payload_corrected": digests.differ(),
        "incidents_overridden": overridden,
        "payload_digest_before": shown_digest(keys, job, &digests.before),
        "payload_digest_after": shown_digest(keys, job, &digests.after),
        "steps": request.resolutions.iter().map(|(name, said)| (name.to_string(), said.as_str().into()))
            .collect::<serde_json::Map<_, _>>(),
    });
    if let Some(bulk) = request.bulk_replay {
        detail["bulk_replay"] = bulk.0.into();
    }
    audit::write(
        connection,
        request.now_ms,
        &request.actor,
        "dead_letter.replay",
        &request.dead_letter.to_string(),
        &detail,
    )?;
    Ok(id)
}

fn put_back(
    transaction: &Transaction<'_>,
    job: i64,
    request: &ReplayRequest,
    replay: i64,
    target: &Candidate,
    payload_sealed: &[u8],
) -> Result<(), StoreError> {
    let (kind, priority): (String, i32) = transaction
        .prepare_cached("SELECT kind, priority FROM ended_jobs WHERE id = ?1")?
        .query_row([job], |row| Ok((row.get(0)?, row.get(1)?)))?;
    transaction
        .prepare_cached(
            "INSERT INTO jobs (id, kind, lane, state, place, visible_at, priority, attempt, bound_version_id, replay_id,
                               enqueued_at, enqueued_by, content_type, payload_bytes, payload_digest, key_digest,
                               payload_sealed, extras_sealed)
             SELECT id, kind, lane, 1, ?2, ?3, priority, attempt, ?4, ?5, enqueued_at, enqueued_by, content_type,
                    payload_bytes, payload_digest, key_digest, ?6, extras_sealed
             FROM ended_jobs WHERE id = ?1",
        )?
        .execute(params![
            job,
            place_in_line(request.now_ms, priority, request.priority_step_ms),
            request.now_ms,
            target.id.0,
            replay,
            payload_sealed
        ])?;
    transaction.prepare_cached("DELETE FROM ended_jobs WHERE id = ?1")?.execute([job])?;
    transaction.came(&kind, Standing::Ready);
    Ok(())
}

fn correct_payload(connection: &Connection, job: i64, digest: &[u8], payload: &[u8]) -> Result<(), StoreError> {
    connection
        .prepare_cached("UPDATE jobs SET payload_digest = ?2, payload_bytes = ?3 WHERE id = ?1")?
        .execute(params![job, digest, i64::try_from(payload.len()).unwrap_or(i64::MAX)])?;
    Ok(())
}
