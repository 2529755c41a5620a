//! File systems of a test's own: small ones that fill up, and ones that become read-only. They are mounted in a mount
//! namespace that ends with the test, so that nothing of them is left on the machine, however the test ends.

use std::{
    env,
    ffi::OsStr,
    fs,
    io::Write as _,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use super::Daemon;

/// Set in the process that runs a test within its own namespace.
const INSIDE: &str = "LEASEHOLD_IN_OWN_MOUNTS";
/// With this set, a machine that does not let these tests mount anything fails them.
const REQUIRED: &str = "LEASEHOLD_REQUIRE_TMPFS";

/// Runs a test, named like `module::name`, in a mount namespace of its own. Where the machine allows none it says on the
/// terminal that the test did not run.
#[track_caller]
pub fn in_own_mounts(test: &str, body: impl FnOnce()) {
    if env::var_os(INSIDE).is_some() {
        return body();
    }
    if let Err(why) = can_mount() {
        return not_run(test, &why);
    }
    let arguments = ["--exact", test, "--nocapture", "--test-threads=1"].map(OsStr::new);
    let output = unshare(&env::current_exe().unwrap(), &arguments).env(INSIDE, "1").output().unwrap();
    let (said, log) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    // A name that is misspelt runs nothing, and that ends well too.
    assert!(output.status.success() && said.contains("ok. 1 passed"), "in its own mounts:\n{said}\n{log}");
    // What the test itself could not run, such as another file system, it said there.
    let _ = std::io::stderr().write_all(&output.stderr);
}

/// Says so past the harness, which keeps what a test that passes prints.
#[track_caller]
pub fn not_run(test: &str, why: &str) {
    let _ = writeln!(std::io::stderr(), "\n*** {test} DID NOT RUN: {why}\n");
    assert!(env::var_os(REQUIRED).is_none(), "{REQUIRED} is set and {test} can't run: {why}");
}

fn unshare(program: &Path, arguments: &[&OsStr]) -> Command {
    let mut command = Command::new("unshare");
    // Root needs no user namespace; others are root in one of their own, where that is allowed.
    command.arg(if rustix::process::geteuid().is_root() { "-m" } else { "-Urm" });
    command.arg(program).args(arguments);
    command
}

fn can_mount() -> Result<(), String> {
    let directory = tempfile::tempdir().unwrap();
    let arguments = ["-t", "tmpfs", "tmpfs"].map(OsStr::new);
    let output = unshare(Path::new("mount"), &[&arguments[..], &[directory.path().as_os_str()]].concat()).output();
    match output {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Err(error) => Err(format!("unshare: {error}")),
    }
}

/// A file system that is mounted until this is dropped. Declare it after the daemon that lies on it.
pub struct Mounted {
    path: PathBuf,
}

impl Mounted {
    /// Puts a file system of so many MiB in memory in the place of a daemon's data directory.
    pub fn tmpfs(daemon: &Daemon, mebibytes: u32) -> Self {
        let options = format!("size={mebibytes}m,mode=700");
        Self::under(daemon, &["-t", "tmpfs", "-o", &options, "tmpfs"]).unwrap()
    }

    /// Puts a file system of an image's in the place of a daemon's data directory, one that becomes read-only when it
    /// meets an error. Or says why there can be none.
    pub fn ext4(daemon: &Daemon, image: &Path) -> Result<Self, String> {
        Self::under(daemon, &["-t", "ext4", "-o", "loop,errors=remount-ro", image.to_str().unwrap()])
    }

    fn under(daemon: &Daemon, arguments: &[&str]) -> Result<Self, String> {
        let path = daemon.data();
        let compiled = fs::read_link(path.join("compiled")).unwrap();
        run("mount", &[arguments, &[path.to_str().unwrap()]].concat())?;
        let mounted = Self { path };
        // The file system is there from before when it is mounted again.
        let _ = symlink(compiled, mounted.path.join("compiled"));
        Ok(mounted)
    }

    /// An empty image of an ext4 file system, or why there can be none.
    pub fn make_ext4_image(image: &Path) -> Result<(), String> {
        fs::File::create(image).unwrap().set_len(64 << 20).unwrap();
        run("mkfs.ext4", &["-q", "-F", image.to_str().unwrap()])
    }

    /// Makes it read-only, or writable again. Nothing may be open for writing.
    pub fn set_read_only(&self, read_only: bool) {
        let options = if read_only { "remount,ro" } else { "remount,rw" };
        run("mount", &["-o", options, self.path.to_str().unwrap()]).unwrap();
    }

    /// Has an ext4 file system meet an error, upon which it is read-only at once, whatever is open.
    pub fn break_ext4(&self) -> Result<(), String> {
        let source = Command::new("findmnt").args(["-n", "-o", "SOURCE"]).arg(&self.path).output();
        let source = source.map_err(|error| format!("findmnt: {error}"))?.stdout;
        let source = String::from_utf8_lossy(&source).trim().to_owned();
        let device = source.rsplit('/').next().unwrap_or_default();
        let trigger = format!("/sys/fs/ext4/{device}/trigger_fs_error");
        fs::write(&trigger, "a test\n").map_err(|error| format!("{trigger}: {error}"))
    }

    /// Fills it to its last byte; answers the file that does.
    pub fn fill(&self) -> PathBuf {
        let path = self.path.join("ballast");
        let mut file = fs::File::create(&path).unwrap();
        for block in [vec![b'x'; 1 << 20], vec![b'x'; 4 << 10], vec![b'x'; 1]] {
            while file.write_all(&block).is_ok() {}
        }
        path
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = run("umount", &["-l", self.path.to_str().unwrap()]);
    }
}

fn run(program: &str, arguments: &[&str]) -> Result<(), String> {
    let output = Command::new(program).args(arguments).output().map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()) }
}
