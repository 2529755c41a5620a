//! O6 and Q11: a disk that is full, read-only, failing, slow or damaged, and what other programs do to the files.
//!
//! A test's name begins with its clause of the contract. Every test runs the real binary on real files, and real file
//! systems that fill up or fail. Where the machine allows no mounts of a test's own, those that need one say on the
//! terminal that they did not run; `LEASEHOLD_REQUIRE_TMPFS=1` has them fail in that case.

#[path = "../support/mod.rs"]
mod support;

mod artefacts;
mod damage;
mod full;
mod locked;
mod read_only;
mod slow;
mod told;
mod verdicts;
