//! The `leasehold` binary. Everything it does is the library's.

use std::process::ExitCode;

fn main() -> ExitCode {
    leasehold::cli::run()
}
