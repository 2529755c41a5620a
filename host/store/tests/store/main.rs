//! The store on a real database, without a daemon: leases, order, keys and how a database is opened.
//!
//! A test's name begins with its clause of the contract. Time is a parameter, so nothing here waits for it.

mod audit;
mod bulk;
mod bulk_preview;
mod dead_letters;
mod depths;
mod effects;
mod enqueue;
mod examine;
mod handlers;
mod health;
mod held;
mod in_place;
mod incidents;
mod kinds;
mod leases;
mod memory;
mod notes;
mod opening;
mod order;
mod originals;
mod outbox;
mod queue;
mod records;
mod replays;
mod retention;
mod steps;
mod stress;
mod tokens;
mod wall_clock;
