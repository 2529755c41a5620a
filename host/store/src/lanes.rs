//! Lanes: what holds a due job back while others of its kind go on, and what lets it go again.
//!
//! A claim that meets a due job of a blocked lane moves it out of the index of claimable jobs, once; so a lane's backlog
//! costs other lanes nothing. It comes back when an attempt of its lane ends or the lane's cooldown does. Held jobs
//! exist only while their lane has a leased job or a cooldown.

use std::collections::HashMap;

use leasehold_domain::{Kind, TimestampMs};
use rusqlite::{Connection, OptionalExtension, params};

use crate::{KindClaim, Store, StoreError, writer::Urgency};

/// Of how many lanes one transaction lets jobs go. A claim that ends more cooldowns leaves them to the next one, which is
/// due at once.
const LANES_BATCH: usize = 16;
/// How many held jobs of a lane are let go at once; each of them that ends lets the next one go.
const RELEASE_BATCH: usize = 256;

/// The lanes of one kind while one transaction leases jobs of it.
pub(crate) struct LanesOfKind {
    kind: Kind,
    limit: Option<u32>,
    /// How many leases each lane has; read when it is asked for first.
    leases: Option<HashMap<String, u32>>,
}

impl LanesOfKind {
    pub(crate) fn new(claim: &KindClaim) -> Self {
        Self { kind: claim.kind.clone(), limit: claim.lane_concurrency, leases: None }
    }

    /// Whether a lane takes no further attempt now.
    pub(crate) fn is_blocked(
        &mut self,
        connection: &Connection,
        lane: Option<&str>,
        now_ms: TimestampMs,
    ) -> Result<bool, StoreError> {
        if is_cooling_down(connection, self.kind.as_str(), lane, now_ms)? {
            return Ok(true);
        }
        let (Some(limit), Some(lane)) = (self.limit, lane) else { return Ok(false) };
        let leases = match &mut self.leases {
            Some(leases) => leases,
            unread => unread.insert(leases_by_lane(connection, self.kind.as_str())?),
        };
        Ok(leases.get(lane).is_some_and(|leases| *leases >= limit))
    }

    /// A job of the lane was leased.
    pub(crate) fn leased(&mut self, lane: Option<&str>) {
        if let (Some(leases), Some(lane)) = (&mut self.leases, lane) {
            *leases.entry(lane.to_owned()).or_default() += 1;
        }
    }
}

/// There are few leases at once, so all of them are looked at rather than kept in an index for it.
fn leases_by_lane(connection: &Connection, kind: &str) -> Result<HashMap<String, u32>, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT lane FROM jobs INDEXED BY jobs_leased WHERE state = 2 AND kind = ?1 AND lane IS NOT NULL",
    )?;
    let mut leases = HashMap::new();
    for lane in statement.query_map([kind], |row| row.get(0))? {
        *leases.entry(lane?).or_default() += 1;
    }
    Ok(leases)
}

/// Jobs without a lane share one cooldown: the lane of the empty name.
fn is_cooling_down(
    connection: &Connection,
    kind: &str,
    lane: Option<&str>,
    now_ms: TimestampMs,
) -> Result<bool, StoreError> {
    Ok(connection
        .prepare_cached("SELECT 1 FROM lane_cooldowns WHERE kind = ?1 AND lane = ?2 AND until > ?3")?
        .exists(params![kind, lane.unwrap_or(""), now_ms])?)
}

pub(crate) fn hold(connection: &Connection, id: i64) -> Result<(), StoreError> {
    connection.prepare_cached("UPDATE jobs SET state = 0, held = 1 WHERE id = ?1 AND state = 1")?.execute([id])?;
    Ok(())
}

/// Lets go the first held jobs of a lane. A job that is let go and can't run must not keep back one that could, so two
/// sorts come on top of the count: suspects, which may have to wait for a suspect of another lane, and as many replays,
/// which may be all that runs while there is no current version. What was let go in vain is held again.
pub(crate) fn let_go(connection: &Connection, kind: &str, lane: Option<&str>, count: usize) -> Result<(), StoreError> {
    // Most lanes hold nothing back; the end of an attempt costs those no more than a look.
    if !connection.prepare_cached(HOLDS)?.exists(params![kind, lane])? {
        return Ok(());
    }
    for (sort, max) in [(SUSPECTS, usize::MAX), (REPLAYS, count), (ALL, count)] {
        let ids: Vec<i64> = connection
            .prepare_cached(sort)?
            .query_map(params![kind, lane], |row| row.get(0))?
            .take(max)
            .collect::<Result<_, _>>()?;
        for id in ids {
            connection.prepare_cached("UPDATE jobs SET state = 1, held = 0 WHERE id = ?1")?.execute([id])?;
        }
    }
    Ok(())
}

const HOLDS: &str = "SELECT 1 FROM jobs INDEXED BY jobs_held WHERE held = 1 AND kind = ?1 AND lane IS ?2";
// Told which indexes to take: a lane can have a long backlog, and there are few suspects and replays.
const SUSPECTS: &str = "SELECT id FROM jobs INDEXED BY jobs_suspects
    WHERE unclean_stops >= 2 AND held = 1 AND kind = ?1 AND lane IS ?2";
const REPLAYS: &str = "SELECT id FROM jobs INDEXED BY jobs_held_bound
    WHERE held = 1 AND bound_version_id IS NOT NULL AND kind = ?1 AND lane IS ?2 ORDER BY place, id";
const ALL: &str = "SELECT id FROM jobs INDEXED BY jobs_held
    WHERE held = 1 AND kind = ?1 AND lane IS ?2 ORDER BY place, id";

/// Holds back a lane until a time; a cooldown that lasts longer stays.
pub(crate) fn cool_down(
    connection: &Connection,
    kind: &str,
    lane: Option<&str>,
    until_ms: TimestampMs,
) -> Result<(), StoreError> {
    connection
        .prepare_cached(
            "INSERT INTO lane_cooldowns (kind, lane, until) VALUES (?1, ?2, ?3)
             ON CONFLICT (kind, lane) DO UPDATE SET until = max(until, excluded.until)",
        )?
        .execute(params![kind, lane.unwrap_or(""), until_ms])?;
    Ok(())
}

/// Ends the cooldowns whose time has come.
pub(crate) fn end_cooldowns(connection: &Connection, now_ms: TimestampMs) -> Result<(), StoreError> {
    for _ in 0..LANES_BATCH {
        let Some((kind, lane)) = first_ended(connection, now_ms)? else { break };
        connection
            .prepare_cached("DELETE FROM lane_cooldowns WHERE kind = ?1 AND lane = ?2")?
            .execute([&kind, &lane])?;
        let_go(connection, &kind, Some(lane.as_str()).filter(|lane| !lane.is_empty()), RELEASE_BATCH)?;
    }
    Ok(())
}

fn first_ended(connection: &Connection, now_ms: TimestampMs) -> Result<Option<(String, String)>, StoreError> {
    Ok(connection
        .prepare_cached("SELECT kind, lane FROM lane_cooldowns WHERE until <= ?1 ORDER BY until LIMIT 1")?
        .query_row([now_ms], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?)
}

impl Store {
    /// Lets go the first held jobs of every lane. At a start nothing is leased, so nothing else would; after a changed
    /// limit it lets a lane use it. Lanes that were let go of stay so when it fails at a later one.
    pub async fn let_go_held_lanes(&self) -> Result<(), StoreError> {
        let held: Vec<(String, Option<String>)> = self
            .ask_for_daemon(|connection| {
                let mut statement = connection.prepare_cached("SELECT DISTINCT kind, lane FROM jobs WHERE held = 1")?;
                let lanes = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
                Ok(lanes.collect::<Result<_, _>>()?)
            })
            .await?;
        for lanes in held.chunks(LANES_BATCH) {
            let lanes = lanes.to_vec();
            self.shared
                .writer
                .call(Urgency::Usual, move |connection| {
                    lanes.iter().try_for_each(|(kind, lane)| let_go(connection, kind, lane.as_deref(), RELEASE_BATCH))
                })
                .await?;
        }
        Ok(())
    }
}
