//! `leasehold stats`: what waits, runs and died, on one screen.

use leasehold_api::{KindView, Page};
use serde::Serialize;

use super::{
    Failure, Session, kinds,
    text::{fields, time},
};

/// All kinds together.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
struct Total {
    waiting: u64,
    ready: u64,
    leased: u64,
    dead_letters: u64,
}

#[derive(Debug, Serialize)]
struct Stats {
    total: Total,
    kinds: Vec<KindView>,
}

/// Runs the command.
pub async fn run(session: &Session) -> Result<(), Failure> {
    let kinds = session.client.kinds().await?.items;
    let stats = Stats { total: total(&kinds), kinds };
    session.output.show(&stats, shown)
}

fn total(kinds: &[KindView]) -> Total {
    let sum = |state: &str| kinds.iter().filter_map(|kind| kind.depth.get(state)).sum();
    Total {
        waiting: sum("waiting"),
        ready: sum("ready"),
        leased: sum("leased"),
        dead_letters: kinds.iter().map(|kind| kind.dead_letters).sum(),
    }
}

fn shown(stats: &Stats) -> String {
    let Total { waiting, ready, leased, dead_letters } = stats.total;
    let unserved = stats.kinds.iter().filter(|kind| kind.waiting_for_handler).count();
    let oldest = stats.kinds.iter().filter_map(|kind| kind.oldest_ready_at).min();
    let head = fields([
        ("Jobs", format!("{ready} ready, {leased} running, {waiting} waiting")),
        ("Oldest ready", time(oldest)),
        ("Dead letters", format!("{dead_letters} open")),
        (
            "Unserved",
            if unserved == 0 { String::new() } else { format!("{unserved} kinds have jobs and no live version") },
        ),
    ]);
    let page = Page { items: stats.kinds.clone(), next_cursor: None };
    format!("{head}\n\n{}", kinds::listed(&page))
}
