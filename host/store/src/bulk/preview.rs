//! What a bulk replay would do as things stand: how many dead letters match, which would be refused and why, and what
//! has been applied already. It changes nothing.

use std::{collections::BTreeMap, sync::Arc};

use leasehold_domain::{DeadLetterId, Digest, HandlerVersion, TimestampMs, replay::live_target};
use rusqlite::Connection;

use super::{
    select::{BULK_MEMBERS_MAX, BulkSettings, Matched, matching},
    token::{PREVIEW_VALID_MS, Seen},
};
use crate::{
    Store, StoreError, handlers,
    keys::Keys,
    replay::{Decision, decide},
};

/// How many dead letters a refusal names as its examples.
const EXAMPLES_MAX: usize = 5;

/// What became of a request for a preview.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Previewed {
    /// This is what would be done.
    Seen(Box<Preview>),
    /// More dead letters match than a bulk replay may have.
    TooMany,
}

/// What a bulk replay would do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Preview {
    /// How many open dead letters match.
    pub matching: u64,
    /// How many of them would go through.
    pub replayable: u64,
    /// The version that they would run on, if it is live.
    pub target: Option<(HandlerVersion, Digest)>,
    /// How many died of each cause.
    pub by_cause: BTreeMap<String, u64>,
    /// How many died of each error class.
    pub by_class: BTreeMap<String, u64>,
    /// How many died on each version; those that died before any was chosen are not among them.
    pub by_version: BTreeMap<String, u64>,
    /// The others, by the reason for which they would be refused now.
    pub refusals: Vec<RefusalGroup>,
    /// How many have steps that were applied: those are not run again.
    pub with_applied_steps: u64,
    /// How many have steps in doubt.
    pub with_steps_in_doubt: u64,
    /// What to start it with, and until when; absent when nothing would go through.
    pub token: Option<(String, TimestampMs)>,
}

/// Dead letters that would be refused for one reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusalGroup {
    /// The stable code.
    pub code: String,
    /// How many.
    pub count: u64,
    /// What is said of the first of them, which says what would make it go through.
    pub detail: String,
    /// The first few.
    pub examples: Vec<DeadLetterId>,
}

impl Store {
    /// Shows what a bulk replay would do.
    pub async fn preview_bulk_replay(&self, settings: BulkSettings) -> Result<Previewed, StoreError> {
        let keys = Arc::clone(&self.shared.keys);
        self.ask(move |connection| preview(connection, keys.get()?, &settings)).await
    }
}

fn preview(connection: &Connection, keys: &Keys, settings: &BulkSettings) -> Result<Previewed, StoreError> {
    let matched = matching(connection, &settings.selection)?;
    if matched.len() > BULK_MEMBERS_MAX {
        return Ok(Previewed::TooMany);
    }
    let candidates = handlers::candidates(connection, settings.handler.as_str(), &settings.damaged)?;
    let target = live_target(&candidates, settings.version.as_ref());
    let mut preview = Preview { matching: matched.len() as u64, ..Preview::default() };
    for letter in &matched {
        preview.count(connection, letter)?;
        let refusal = match (&target, letter.waits_in) {
            (Err(refusal), _) => Some((refusal.code().to_owned(), refusal.to_string())),
            (Ok(_), Some(bulk)) => Some(waiting_elsewhere(bulk)),
            (Ok(target), None) => {
                let request = settings.replay_of(DeadLetterId(letter.id), target.version.clone());
                match decide(connection, keys, &request, &candidates)? {
                    Decision::Go { .. } => None,
                    Decision::No(answer) => answer.refusal(DeadLetterId(letter.id)),
                }
            }
        };
        match refusal {
            None => preview.replayable += 1,
            Some((code, detail)) => preview.refuse(DeadLetterId(letter.id), code, detail),
        }
    }
    if let (Ok(target), Some(last)) = (&target, matched.last()) {
        preview.target = Some((target.version.clone(), target.digest));
        if preview.replayable > 0 {
            let expires_at_ms = settings.now_ms + PREVIEW_VALID_MS;
            let seen = Seen { expires_at_ms, through: last.id, count: preview.matching, target: target.id };
            preview.token = Some((seen.token(keys, settings)?, expires_at_ms));
        }
    }
    Ok(Previewed::Seen(Box::new(preview)))
}

fn waiting_elsewhere(bulk: i64) -> (String, String) {
    let detail =
        format!("it waits for its turn in bulk replay {bulk}, which is running; stop that one to take it over");
    ("in_bulk_replay".to_owned(), detail)
}

impl Preview {
    fn count(&mut self, connection: &Connection, letter: &Matched) -> Result<(), StoreError> {
        *self.by_cause.entry(letter.cause.clone()).or_default() += 1;
        *self.by_class.entry(letter.error_class.clone()).or_default() += 1;
        if let Some(version) = &letter.version {
            *self.by_version.entry(version.clone()).or_default() += 1;
        }
        self.with_applied_steps += u64::from(has_step(connection, letter.job, "applied")?);
        self.with_steps_in_doubt += u64::from(has_step(connection, letter.job, "begun")?);
        Ok(())
    }

    fn refuse(&mut self, id: DeadLetterId, code: String, detail: String) {
        match self.refusals.iter_mut().find(|group| group.code == code) {
            Some(group) => {
                group.count += 1;
                if group.examples.len() < EXAMPLES_MAX {
                    group.examples.push(id);
                }
            }
            None => self.refusals.push(RefusalGroup { code, count: 1, detail, examples: vec![id] }),
        }
    }
}

fn has_step(connection: &Connection, job: i64, state: &str) -> Result<bool, StoreError> {
    Ok(connection
        .prepare_cached("SELECT 1 FROM steps WHERE job_id = ?1 AND state = ?2")?
        .exists(rusqlite::params![job, state])?)
}
