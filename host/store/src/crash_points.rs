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

#[cfg(test)]
mod tests {
    use std::{
        os::unix::process::ExitStatusExt as _,
        process::{Command, Stdio},
    };

    use super::*;

    #[test]
    fn o6_crash_points_are_refused_by_a_build_without_them_and_an_empty_specification_is_not() {
        assert_eq!(arm_crash_points(""), Ok(()));
        assert_eq!(arm_crash_points(" "), Ok(()));
        // Other crates of a build that is tested as a whole may have them.
        assert_eq!(arm_crash_points("tests.nowhere=off").is_ok(), fail::has_failpoints());
    }

    #[test]
    fn o6_a_crash_point_is_armed_under_its_name_and_a_wrong_action_is_told() {
        let armed = |name: &str| fail::list().into_iter().find(|(armed, _)| armed == name).map(|(_, action)| action);
        for (name, action, expected) in
            [("tests.a", "kill", "callback"), ("tests.b", "kill@3", "callback"), ("tests.c", "return", "return")]
        {
            assert_eq!(arm(name, action), Ok(()));
            assert_eq!(armed(name).as_deref(), Some(expected));
        }
        for wrong in ["kill@", "kill@often", "killed"] {
            assert_eq!(arm("tests.d", wrong), Err(format!("{wrong:?} is neither kill nor kill@N")));
        }
        assert_eq!(armed("tests.d"), None);
    }

    #[test]
    fn o6_a_crash_point_kills_its_process_when_it_comes_there_for_the_time_it_names() {
        const PASSES: &str = "TESTS_CRASH_POINT_PASSES";
        // This test runs itself once more, in a process that may be killed.
        if let Ok(passes) = std::env::var(PASSES) {
            arm("tests.killed", "kill@3").unwrap();
            for _ in 0..passes.parse().unwrap() {
                fail::eval("tests.killed", |_| ());
            }
            return;
        }
        let name = std::thread::current().name().unwrap().to_owned();
        let ended_by = |passes: &str| {
            let mut child = Command::new(std::env::current_exe().unwrap());
            let status = child.args(["--exact", &name]).env(PASSES, passes).stdout(Stdio::null()).status().unwrap();
            (status.success(), status.signal())
        };
        assert_eq!(ended_by("2"), (true, None));
        assert_eq!(ended_by("3"), (false, Some(9)));
    }
}
