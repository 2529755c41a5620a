//! Ownership of a database: a lock file that one process holds for its life. It never waits for the other one.

use std::{
    fs::{File, OpenOptions},
    io::{Read, Seek, Write},
    path::Path,
};

use rustix::{
    fs::{FlockOperation, flock, fstatfs},
    io::Errno,
};

use crate::OpenError;

/// The lock's file in the directory of the database.
pub(crate) const LOCK_FILE: &str = "leasehold.lock";

/// The lock; released by the kernel when the process ends, however it ends.
pub(crate) struct DatabaseLock {
    _file: File,
}

/// File systems whose locks and syncs can't be relied on, by the magic number of statfs(2).
const NETWORK_FILE_SYSTEMS: [(i64, &str); 8] = [
    (0x6969, "NFS"),
    (0x517B, "SMB"),
    (0xFF53_4D42, "CIFS"),
    (0xFE53_4D42, "SMB2"),
    (0x5346_414F, "AFS"),
    (0x0102_1997, "9P"),
    (0x00C3_6400, "Ceph"),
    (0x0BD0_0BD0, "Lustre"),
];

/// Takes the lock of the database in this directory.
pub(crate) fn take(directory: &Path) -> Result<DatabaseLock, OpenError> {
    let path = directory.join(LOCK_FILE);
    let io = |error: std::io::Error| OpenError::io(&path, error);
    let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).map_err(io)?;
    refuse_network_file_system(&file, directory)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => {
            let mut owner = String::new();
            let _ = file.read_to_string(&mut owner);
            return Err(OpenError::Locked { directory: directory.display().to_string(), owner: owner.trim().into() });
        }
        Err(error) => return Err(io(error.into())),
    }
    // The number is for the message of a second daemon alone; the lock itself is the kernel's.
    let _ = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| writeln!(file, "{}", std::process::id()));
    Ok(DatabaseLock { _file: file })
}

fn refuse_network_file_system(file: &File, directory: &Path) -> Result<(), OpenError> {
    let Ok(found) = fstatfs(file) else { return Ok(()) };
    #[allow(clippy::useless_conversion, reason = "the type differs between targets")]
    let magic = i64::from(found.f_type);
    match NETWORK_FILE_SYSTEMS.iter().find(|(number, _)| *number == magic) {
        None => Ok(()),
        Some((_, name)) => {
            Err(OpenError::NetworkFileSystem { directory: directory.display().to_string(), name: (*name).into() })
        }
    }
}
