//! Due jobs are leased and their attempts numbered and counted, in one transaction. It never leases a job whose
//! attempts are used up, and it never decides how many may run: the caller took its permits before.

use std::sync::Arc;

use leasehold_domain::{
    AttemptNumber, FencingToken, Fit, HandlerName, JobId, Kind, Lane, MemoryRoom, ReplayId, TimestampMs,
    verdict::SUSPECT_AFTER,
};
use rusqlite::{Connection, params};

use crate::{
    Store, StoreError,
    keys::Keys,
    lanes::{self, LanesOfKind},
    rows::{Extras, Standing},
    seal::Purpose,
    serving::{RunOn, Serving, bound_version, serving},
    transaction::Transaction,
    writer::Urgency,
};

/// How many due jobs a claim makes ready at the most.
const PROMOTE_BATCH: usize = 1_000;
/// How many bytes of payloads a claim takes in at the most, but for what its last job has beyond that. They are read in one
/// transaction and opened at once, which no lease should have to wait for.
const PAYLOADS_MAX_BYTES: usize = 4 << 20;
/// How many heads of a kind with lanes a claim looks at, at least.
const LANE_HEADS: usize = 256;
/// How many times a claim looks for more when blocked lanes took the place of candidates.
const ROUNDS: usize = 8;

/// What a claim takes.
#[derive(Debug, Clone)]
pub struct ClaimRequest {
    /// The queue's time.
    pub now_ms: TimestampMs,
    /// How many jobs at the most.
    pub max: usize,
    /// The memory that their attempts may take together.
    pub memory: MemoryRoom,
    /// The kinds that have room.
    pub kinds: Vec<KindClaim>,
    /// Whether it goes behind what waits already: made because jobs are on their way in, it leases them in the transaction
    /// that puts them in. Otherwise it goes before, so that a flood of enqueues does not keep back what is there.
    pub waits_its_turn: bool,
}

/// One kind that has room for further attempts.
#[derive(Debug, Clone)]
pub struct KindClaim {
    /// The kind.
    pub kind: Kind,
    /// Its handler, whose current version serves it.
    pub handler: HandlerName,
    /// How many jobs of the kind at the most.
    pub max: usize,
    /// The memory that each of its attempts may take, in bytes.
    pub memory_bytes: u64,
    /// The cap on attempts.
    pub attempts_max: u32,
    /// How long the lease holds at first.
    pub visibility_timeout_ms: i64,
    /// How far heartbeats may extend it: the attempt's deadline and the time to write its result.
    pub lease_max_ms: i64,
    /// How many attempts of one lane may run.
    pub lane_concurrency: Option<u32>,
    /// Whether lanes of the kind may be cooling down.
    pub cooldown: bool,
    /// Only jobs of replays, which are bound to versions of their own, since the handler's current version can't run.
    pub bound_only: bool,
}

/// The replay that an attempt belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayInfo {
    /// The replay.
    pub id: ReplayId,
    /// 1 for the first replay of the job.
    pub number: u32,
    /// Who asked for it.
    pub actor: String,
    /// When.
    pub at_ms: TimestampMs,
}

/// What a claim found.
#[derive(Debug, Clone)]
pub struct Claim {
    /// The leased jobs.
    pub jobs: Vec<Claimed>,
    /// How many jobs had no attempt left under a cap that was lowered; their leases have run out, for the reaper.
    pub used_up: usize,
    /// Whether jobs of blocked lanes took up the whole claim, so that others may stand behind them.
    pub cut_short: bool,
}

/// A leased job.
#[derive(Debug, Clone)]
pub struct Claimed {
    /// The fencing token.
    pub token: FencingToken,
    /// The kind.
    pub kind: Kind,
    /// The lane.
    pub lane: Option<Lane>,
    /// How many attempts have counted, this one included.
    pub attempts_used: u32,
    /// How many times running the host has given the attempt back.
    pub releases_running: u32,
    /// How many unclean stops in a row it was running at before this attempt.
    pub unclean_stops: u32,
    /// When the job was enqueued.
    pub enqueued_at_ms: TimestampMs,
    /// When it became visible.
    pub visible_at_ms: TimestampMs,
    /// When the lease runs out unless it is extended.
    pub lease_expires_at_ms: TimestampMs,
    /// When the lease was taken.
    pub leased_at_ms: TimestampMs,
    /// The payload's media type.
    pub content_type: String,
    /// The version to run on.
    pub run_on: RunOn,
    /// The replay that this attempt belongs to.
    pub replay: Option<ReplayInfo>,
    /// What was sealed, or why it does not open.
    pub contents: Result<Arc<Contents>, StoreError>,
}

/// What was sealed of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contents {
    /// The payload as sent.
    pub payload: Vec<u8>,
    /// The key.
    pub key: String,
    /// Names and values that travel with the job.
    pub metadata: Vec<(String, String)>,
}

impl Contents {
    pub(crate) fn open(keys: &Keys, job: i64, payload: &[u8], extras: &[u8]) -> Result<Self, StoreError> {
        let extras = Extras::open(keys, job, extras)?;
        let payload = std::mem::take(&mut *keys.sealer.open(Purpose::Payload, job, payload)?);
        Ok(Self { payload, key: extras.key, metadata: extras.metadata })
    }
}

/// A leased row, still sealed.
struct LeasedRow {
    token: FencingToken,
    kind: String,
    lane: Option<String>,
    attempts_used: u32,
    releases_running: u32,
    unclean_stops: u32,
    enqueued_at_ms: TimestampMs,
    visible_at_ms: TimestampMs,
    lease_expires_at_ms: TimestampMs,
    leased_at_ms: TimestampMs,
    content_type: String,
    payload_sealed: Vec<u8>,
    extras_sealed: Vec<u8>,
    run_on: RunOn,
    replay: Option<ReplayInfo>,
}

struct Candidate {
    place: i64,
    id: i64,
    lane: Option<String>,
    attempts_used: u32,
    is_suspect: bool,
    bound_version_id: Option<i64>,
    /// Which of the request's kinds it is of.
    kind: usize,
}

impl Store {
    /// Leases due jobs, the first in line of all the kinds that have room and a current version.
    pub async fn claim(&self, request: ClaimRequest) -> Result<Claim, StoreError> {
        self.note_time(request.now_ms);
        let keys = self.shared.keys.get()?;
        let urgency = if request.waits_its_turn { Urgency::Usual } else { Urgency::Lease };
        let Taken { rows, used_up, cut_short } =
            self.shared.writer.call(urgency, move |transaction| claim(transaction, &request)).await?;
        if !rows.is_empty() {
            fail::fail_point!("claim.leased");
        }
        let jobs = rows.into_iter().map(|row| open_row(keys, row)).collect::<Result<_, _>>()?;
        Ok(Claim { jobs, used_up, cut_short })
    }
}

fn open_row(keys: &Keys, row: LeasedRow) -> Result<Claimed, StoreError> {
    let unexpected = |error: leasehold_domain::NameError| StoreError::Unexpected(error.to_string());
    Ok(Claimed {
        contents: Contents::open(keys, row.token.job.0, &row.payload_sealed, &row.extras_sealed).map(Arc::new),
        token: row.token,
        kind: Kind::new(row.kind).map_err(unexpected)?,
        lane: row.lane.map(Lane::new).transpose().map_err(unexpected)?,
        attempts_used: row.attempts_used,
        releases_running: row.releases_running,
        unclean_stops: row.unclean_stops,
        enqueued_at_ms: row.enqueued_at_ms,
        visible_at_ms: row.visible_at_ms,
        lease_expires_at_ms: row.lease_expires_at_ms,
        leased_at_ms: row.leased_at_ms,
        content_type: row.content_type,
        run_on: row.run_on,
        replay: row.replay,
    })
}

/// What a claim took, still sealed.
struct Taken {
    rows: Vec<LeasedRow>,
    used_up: usize,
    cut_short: bool,
}

fn claim(transaction: &Transaction<'_>, request: &ClaimRequest) -> Result<Taken, StoreError> {
    promote_due(transaction, request.now_ms)?;
    lanes::end_cooldowns(transaction, request.now_ms)?;
    let serving: Vec<_> = request
        .kinds
        .iter()
        .map(|kind| serving(transaction, &kind.handler, kind.bound_only))
        .collect::<Result<_, _>>()?;
    let mut room: Vec<usize> = request.kinds.iter().map(|kind| kind.max).collect();
    let mut memory = request.memory;
    let mut lanes: Vec<_> = request.kinds.iter().map(LanesOfKind::new).collect();
    let mut taken = Taken { rows: Vec::new(), used_up: 0, cut_short: false };
    let mut payloads_bytes = 0;
    for _ in 0..ROUNDS {
        let mut has_moved = false;
        for candidate in first_in_line(transaction, request, &serving, &room)? {
            let kind = &request.kinds[candidate.kind];
            if room[candidate.kind] == 0 || taken.rows.len() == request.max {
                continue;
            }
            let lanes = &mut lanes[candidate.kind];
            match lease(transaction, request.now_ms, kind, lanes, &serving[candidate.kind], memory, &candidate)? {
                Leased::Taken(row) => {
                    room[candidate.kind] -= 1;
                    memory.take(kind.memory_bytes);
                    payloads_bytes += row.payload_sealed.len();
                    taken.rows.push(*row);
                    if payloads_bytes >= PAYLOADS_MAX_BYTES {
                        return Ok(taken);
                    }
                }
                Leased::UsedUp => taken.used_up += 1,
                Leased::LaneBlocked => {}
                Leased::AnotherSuspectRuns => continue,
                Leased::NoMemory => {
                    // Within a claim there is only ever less of it.
                    room[candidate.kind] = 0;
                    continue;
                }
                Leased::KeepsItsPlace => return Ok(taken),
            }
            has_moved = true;
        }
        if !has_moved || taken.rows.len() == request.max {
            return Ok(taken);
        }
    }
    Ok(Taken { cut_short: true, ..taken })
}

/// What became of a candidate.
enum Leased {
    Taken(Box<LeasedRow>),
    LaneBlocked,
    AnotherSuspectRuns,
    UsedUp,
    /// Its attempt does not fit; those behind it may.
    NoMemory,
    /// Its attempt does not fit, and nothing behind it is leased before it.
    KeepsItsPlace,
}

/// Makes due jobs ready, in bounded batches, so that the index of claimable jobs holds only what can be claimed.
pub(crate) fn promote_due(transaction: &Transaction<'_>, now_ms: TimestampMs) -> Result<usize, StoreError> {
    let due: Vec<(i64, String)> = transaction
        .prepare_cached(
            "SELECT id, kind FROM jobs WHERE state = 0 AND held = 0 AND run_at_wall IS NULL AND visible_at <= ?1
             ORDER BY visible_at",
        )?
        .query_map([now_ms], |row| Ok((row.get(0)?, row.get(1)?)))?
        .take(PROMOTE_BATCH)
        .collect::<Result<_, _>>()?;
    for (id, kind) in &due {
        transaction.prepare_cached("UPDATE jobs SET state = 1 WHERE id = ?1")?.execute([id])?;
        transaction.moved(kind, Standing::Waiting, Standing::Ready);
    }
    Ok(due.len())
}

/// The heads of all kinds that have room, merged by place in line.
fn first_in_line(
    connection: &Connection,
    request: &ClaimRequest,
    serving: &[Serving],
    room: &[usize],
) -> Result<Vec<Candidate>, StoreError> {
    let suspects_may_run = !a_suspect_runs(connection)?;
    let mut candidates = Vec::new();
    for (index, kind) in request.kinds.iter().enumerate() {
        if room[index] == 0 {
            continue;
        }
        // Of a kind with lanes some heads may be blocked; with more of them at hand, a backlog of one lane is out of the
        // way in few transactions.
        let least = if has_lanes(kind) { LANE_HEADS } else { 0 };
        let sql = match (&serving[index], suspects_may_run) {
            (Serving::Current(_), true) => HEADS,
            (Serving::Current(_), false) => HEADS_UNSUSPECTED,
            (Serving::BoundOnly, true) => BOUND_HEADS,
            (Serving::BoundOnly, false) => BOUND_HEADS_UNSUSPECTED,
            (Serving::Nothing, _) => continue,
        };
        candidates.extend(heads(connection, index, kind.kind.as_str(), sql, room[index].max(least))?);
    }
    candidates.sort_by_key(|candidate| (candidate.place, candidate.id));
    Ok(candidates)
}

// Neither the number of stops nor that of heads is a parameter: with the one compared with the condition of an index, or the
// other as a limit, SQLite would prepare the statement anew for each value.
const _: () = assert!(SUSPECT_AFTER == 2);
const HEADS: &str = "SELECT place, id, lane, attempts_used, bound_version_id, unclean_stops >= 2 FROM jobs
    WHERE state = 1 AND kind = ?1 ORDER BY place, id";
const HEADS_UNSUSPECTED: &str = "SELECT place, id, lane, attempts_used, bound_version_id, 0 FROM jobs
    WHERE state = 1 AND kind = ?1 AND unclean_stops < 2 ORDER BY place, id";
const BOUND_HEADS: &str = "SELECT place, id, lane, attempts_used, bound_version_id, unclean_stops >= 2 FROM jobs
    WHERE state = 1 AND bound_version_id IS NOT NULL AND kind = ?1 ORDER BY place, id";
const BOUND_HEADS_UNSUSPECTED: &str = "SELECT place, id, lane, attempts_used, bound_version_id, 0 FROM jobs
    WHERE state = 1 AND bound_version_id IS NOT NULL AND kind = ?1 AND unclean_stops < 2
    ORDER BY place, id";

/// The first ready jobs of one of the request's kinds.
fn heads(
    connection: &Connection,
    kind: usize,
    name: &str,
    sql: &str,
    max: usize,
) -> Result<Vec<Candidate>, StoreError> {
    let mut statement = connection.prepare_cached(sql)?;
    let rows = statement.query_map([name], |row| {
        Ok(Candidate {
            place: row.get(0)?,
            id: row.get(1)?,
            lane: row.get(2)?,
            attempts_used: row.get(3)?,
            bound_version_id: row.get(4)?,
            is_suspect: row.get(5)?,
            kind,
        })
    })?;
    Ok(rows.take(max).collect::<Result<_, _>>()?)
}

/// Suspects run one at a time beside the rest: the next unclean stop then tells which of them it was.
fn a_suspect_runs(connection: &Connection) -> Result<bool, StoreError> {
    // The index of suspects is partial, so its condition stands here as it stands there.
    Ok(connection.prepare_cached("SELECT 1 FROM jobs WHERE unclean_stops >= 2 AND state = 2")?.exists([])?)
}

fn has_lanes(kind: &KindClaim) -> bool {
    kind.lane_concurrency.is_some() || kind.cooldown
}

/// Leases one candidate, or moves it out of the way.
fn lease(
    transaction: &Transaction<'_>,
    now_ms: TimestampMs,
    kind: &KindClaim,
    lanes: &mut LanesOfKind,
    serving: &Serving,
    memory: MemoryRoom,
    candidate: &Candidate,
) -> Result<Leased, StoreError> {
    if has_lanes(kind) && lanes.is_blocked(transaction, candidate.lane.as_deref(), now_ms)? {
        lanes::hold(transaction, candidate.id)?;
        return Ok(Leased::LaneBlocked);
    }
    if candidate.is_suspect && a_suspect_runs(transaction)? {
        return Ok(Leased::AnotherSuspectRuns);
    }
    if candidate.attempts_used >= kind.attempts_max {
        hand_to_reaper(transaction, candidate.id, now_ms)?;
        transaction.moved(kind.kind.as_str(), Standing::Ready, Standing::Leased);
        lanes.leased(candidate.lane.as_deref());
        return Ok(Leased::UsedUp);
    }
    match memory.fit(kind.memory_bytes) {
        Fit::Fits => {}
        Fit::MayBeOvertaken => return Ok(Leased::NoMemory),
        Fit::KeepsItsPlace => return Ok(Leased::KeepsItsPlace),
    }
    let run_on = match (candidate.bound_version_id, serving) {
        (None, Serving::Current(current)) => current.clone(),
        (None, _) => return Err(StoreError::Unexpected(format!("job {} has no version to run on", candidate.id))),
        (Some(id), _) => bound_version(transaction, id)?
            .ok_or_else(|| StoreError::Unexpected(format!("a replay bound to version {id}, which is not stored")))?,
    };
    let row = take_lease(transaction, now_ms, kind, candidate.id, run_on)?;
    transaction.moved(kind.kind.as_str(), Standing::Ready, Standing::Leased);
    lanes.leased(candidate.lane.as_deref());
    record_attempt(transaction, now_ms, &row)?;
    Ok(Leased::Taken(Box::new(row)))
}

/// A job whose attempts are used up is never run again. Its lease is one that has run out already, so that the reaper
/// decides about it like about any other. This happens when the configured cap was lowered.
fn hand_to_reaper(connection: &Connection, id: i64, now_ms: TimestampMs) -> Result<(), StoreError> {
    connection
        .prepare_cached(
            "UPDATE jobs SET state = 2, lease_expires_at = ?2, deadline_at = ?2 WHERE id = ?1 AND state = 1",
        )?
        .execute([id, now_ms])?;
    Ok(())
}

/// The attempt is counted in the transaction that takes the lease: whatever crashes the process under it has used the
/// attempt up.
fn take_lease(
    connection: &Connection,
    now_ms: TimestampMs,
    kind: &KindClaim,
    id: i64,
    run_on: RunOn,
) -> Result<LeasedRow, StoreError> {
    let expires_at_ms = now_ms + kind.visibility_timeout_ms;
    connection
        .prepare_cached(
            "UPDATE jobs SET state = 2, attempt = attempt + 1, attempts_used = attempts_used + 1,
                             lease_expires_at = ?2, deadline_at = ?3, version_id = ?4
             WHERE id = ?1 AND state = 1",
        )?
        .execute([id, expires_at_ms, now_ms + kind.lease_max_ms, run_on.id.0])?;
    // Read afterwards and not returned by the update, which would keep what it returns in a table of its own.
    Ok(connection
        .prepare_cached(
            "SELECT attempt, kind, lane, attempts_used, releases_running, enqueued_at, visible_at, content_type,
                    payload_sealed, extras_sealed, replay_id, unclean_stops
             FROM jobs WHERE id = ?1 AND state = 2",
        )?
        .query_row([id], |row| {
            Ok(LeasedRow {
                token: FencingToken { job: JobId(id), attempt: AttemptNumber(row.get(0)?) },
                kind: row.get(1)?,
                lane: row.get(2)?,
                attempts_used: row.get(3)?,
                releases_running: row.get(4)?,
                enqueued_at_ms: row.get(5)?,
                visible_at_ms: row.get(6)?,
                lease_expires_at_ms: expires_at_ms,
                leased_at_ms: now_ms,
                content_type: row.get(7)?,
                payload_sealed: row.get(8)?,
                extras_sealed: row.get(9)?,
                unclean_stops: row.get(11)?,
                replay: row.get::<_, Option<i64>>(10)?.map(|id| replay_info(connection, id)).transpose()?,
                run_on,
            })
        })?)
}

fn replay_info(connection: &Connection, id: i64) -> rusqlite::Result<ReplayInfo> {
    connection.prepare_cached("SELECT number, actor, at FROM replays WHERE id = ?1")?.query_row([id], |row| {
        Ok(ReplayInfo { id: ReplayId(id), number: row.get(0)?, actor: row.get(1)?, at_ms: row.get(2)? })
    })
}

fn record_attempt(connection: &Connection, now_ms: TimestampMs, row: &LeasedRow) -> Result<(), StoreError> {
    connection
        .prepare_cached(
            "INSERT INTO attempts (job_id, number, leased_at, version, digest, replay_id)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?
        .execute(params![
            row.token.job.0,
            row.token.attempt.0,
            now_ms,
            row.run_on.version.to_string(),
            row.run_on.digest.as_bytes(),
            row.replay.as_ref().map(|replay| replay.id.0),
        ])?;
    Ok(())
}
