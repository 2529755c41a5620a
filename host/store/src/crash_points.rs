//! Named points at which a test stops or kills the daemon. Without the feature that arms them they are nothing.

use std::sync::atomic::{AtomicU32, Ordering};

/// Arms crash points from a specification such as `settle.before_commit=kill;heartbeat.send=return`.
///
/// `kill` sends this process SIGKILL when it first comes to the point, `kill@3` at the third time. Any other action is
/// one of the `fail` crate: `return` takes the point's way out, `pause` waits there. Answers what is wrong with a
/// specification, or that this build has no crash points.
pub fn arm_crash_points(specification: &str) -> Result<(), String> {
    if !fail::has_failpoints() && !specification.trim().is_empty() {
        return Err("this build has no crash points; build it with the feature crash-points".to_owned());
    }
    for entry in specification.split(';').filter(|entry| !entry.trim().is_empty()) {
        let (name, action) =
            entry.split_once('=').ok_or_else(|| format!("{entry:?} is not of the form point=action"))?;
        arm(name.trim(), action.trim())?;
    }
    Ok(())
}

fn arm(name: &str, action: &str) -> Result<(), String> {
    match action.strip_prefix("kill") {
        Some("") => arm_kill(name, 1),
        Some(times) => {
            let times = times.strip_prefix('@').and_then(|times| times.parse().ok());
            arm_kill(name, times.ok_or_else(|| format!("{action:?} is neither kill nor kill@N"))?)
        }
        None => fail::cfg(name, action),
    }
}

fn arm_kill(name: &str, times: u32) -> Result<(), String> {
    let passed = AtomicU32::new(0);
    fail::cfg_callback(name, move || {
        if passed.fetch_add(1, Ordering::SeqCst) + 1 == times {
            // The kill is the kernel's: nothing of this process runs after it, just as with a power cut.
            let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        }
    })
}
