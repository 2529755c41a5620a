//! Figures of a process: the CPU time that it used and the memory that it has.

use std::{fs, time::Duration};

/// The CPU time of all of a process's threads so far.
pub fn cpu_time(id: u32) -> anyhow::Result<Duration> {
    let text = fs::read_to_string(format!("/proc/{id}/stat"))?;
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let ticks = |index: usize| fields.get(index).and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
    // utime and stime, in ticks of a hundredth of a second (proc(5)).
    Ok(Duration::from_millis((ticks(11) + ticks(12)) * 10))
}

/// The memory that a process has, in bytes.
pub fn resident_bytes(id: u32) -> anyhow::Result<u64> {
    let text = fs::read_to_string(format!("/proc/{id}/status"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or("");
    let kib: u64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kib << 10)
}

/// The CPU time of the calling thread so far.
#[must_use]
pub fn thread_cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}
