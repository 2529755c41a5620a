//! `leasehold serve`: reads the configuration, sets the log up and runs the daemon until a signal ends it. What is wrong
//! with the configuration is said before anything starts.

use super::{Failure, GlobalOptions, log};
use crate::config::Config;

/// The environment variable that arms crash points, in builds that have them.
const CRASH_POINTS: &str = "LEASEHOLD_CRASH_POINTS";

/// Runs the command.
pub fn run(options: &GlobalOptions) -> Result<(), Failure> {
    let config = Config::load(&options.config)?;
    log::set_up(&config);
    crate::panics::abort_on_panic();
    arm_crash_points()?;
    let failed = |code: &'static str, message: String| Failure::Failed { code, message };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .thread_name("leasehold-control")
        // One, since nothing long is done on it. Two handed each other the next step of every job, and woke each other up
        // for that.
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(|error| failed("io", format!("the threads can't be started: {error}")))?;
    runtime.block_on(crate::serve(config)).map_err(|error| failed(error.code(), error.to_string()))
}

fn arm_crash_points() -> Result<(), Failure> {
    let Ok(specification) = std::env::var(CRASH_POINTS) else { return Ok(()) };
    leasehold_store::arm_crash_points(&specification)
        .map_err(|error| Failure::Usage { code: "crash_points", message: format!("{CRASH_POINTS}: {error}") })
}
