//! The `leasehold` binary. Everything it does is the library's.

use std::process::ExitCode;

/// Attempts allocate on one thread what another frees, which the system's allocator does under locks.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    leasehold::cli::run()
}
