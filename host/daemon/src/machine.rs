//! How much memory there is for this process: the machine's, or what its control group allows where that is less. It only
//! reads what the kernel shows (proc(5), cgroups version 2).

use std::{fs, path::Path};

const CONTROL_GROUPS: &str = "/sys/fs/cgroup";

/// The memory that this process can have at the most, in bytes; none when the kernel does not say.
pub(crate) fn memory_bytes() -> Option<u64> {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| total_of_meminfo(&text));
    let group = fs::read_to_string("/proc/self/cgroup").ok().and_then(|text| {
        let path = group_path(&text)?.to_owned();
        limit_of_group(Path::new(CONTROL_GROUPS), &path)
    });
    machine.into_iter().chain(group).min()
}

/// The line `MemTotal:       24117248 kB`.
fn total_of_meminfo(text: &str) -> Option<u64> {
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    total.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The line `0::/system.slice/leasehold.service`.
fn group_path(text: &str) -> Option<&str> {
    text.lines().find_map(|line| line.strip_prefix("0::/"))
}

/// The least of the limits of a group and of those that it is in. Within a container the root may have one too.
fn limit_of_group(root: &Path, path: &str) -> Option<u64> {
    let group = root.join(path);
    let groups = group.ancestors().take_while(|group| group.starts_with(root));
    // A group without a limit says "max".
    groups.filter_map(|group| fs::read_to_string(group.join("memory.max")).ok()?.trim().parse::<u64>().ok()).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h5_the_memory_of_this_machine_is_known() {
        assert!(memory_bytes().is_some_and(|bytes| bytes > 1 << 20), "{:?}", memory_bytes());
    }

    #[test]
    fn h5_the_total_is_read_as_the_kernel_writes_it() {
        assert_eq!(total_of_meminfo("MemTotal:       24117248 kB\nMemFree: 1 kB\n"), Some(24_117_248 << 10));
        for text in ["", "MemTotal: many", "MemTotal: 18446744073709551615 kB", "MemFree: 1 kB"] {
            assert_eq!(total_of_meminfo(text), None, "{text}");
        }
    }

    #[test]
    fn h5_the_least_limit_of_a_group_and_those_around_it_holds() {
        let root = tempfile::tempdir().unwrap();
        let group = root.path().join("a/b");
        fs::create_dir_all(&group).unwrap();
        let path = group_path("1:name=x:/y\n0::/a/b\n").unwrap();
        assert_eq!(limit_of_group(root.path(), path), None);
        fs::write(group.join("memory.max"), "max\n").unwrap();
        assert_eq!(limit_of_group(root.path(), path), None);
        fs::write(root.path().join("a/memory.max"), "4096\n").unwrap();
        fs::write(root.path().join("memory.max"), "8192\n").unwrap();
        assert_eq!(limit_of_group(root.path(), path), Some(4_096));
        assert_eq!(limit_of_group(root.path(), ""), Some(8_192));
    }
}
