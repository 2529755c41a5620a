//! The shim between SQLite and the system's files: every operation on a file whose directory has a `Disk` is asked of that
//! disk first. Other files go straight through. It decides nothing itself.

#![allow(
    unsafe_code,
    reason = "SQLite calls file systems through C pointers; a fault below it can't be made elsewhere"
)]

use std::{
    ffi::{CStr, c_char, c_int, c_void},
    mem::size_of,
    path::Path,
    ptr,
    sync::{Arc, Once},
};

use rusqlite::ffi;

use crate::disk::{self, Disk, Operation, Order, SECTOR_BYTES};

/// A file of the shim. The system's own file lies behind it in the same allocation, which SQLite makes.
#[repr(C)]
struct File {
    base: ffi::sqlite3_file,
    /// The disk and the file's name; null when the directory has no disk.
    under: *mut Under,
}

struct Under {
    disk: Arc<Disk>,
    name: String,
}

/// Makes the shim the file system of this process, once and before any database is opened.
pub fn register() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the system's file system is a static of SQLite's; the copy is leaked, so that it lives as long.
        unsafe {
            let system = ffi::sqlite3_vfs_find(ptr::null());
            let mut shim = *system;
            shim.szOsFile += c_int::try_from(size_of::<File>()).unwrap();
            shim.pNext = ptr::null_mut();
            shim.zName = c"faulty".as_ptr();
            shim.xOpen = Some(open);
            shim.xDelete = Some(delete);
            assert_eq!(ffi::sqlite3_vfs_register(Box::leak(Box::new(shim)), 1), ffi::SQLITE_OK);
        }
    });
}

fn system() -> *mut ffi::sqlite3_vfs {
    // SAFETY: a look-up by a static name.
    unsafe { ffi::sqlite3_vfs_find(c"unix".as_ptr()) }
}

/// The system's own file behind one of the shim.
unsafe fn behind(file: *mut ffi::sqlite3_file) -> *mut ffi::sqlite3_file {
    // SAFETY: `szOsFile` has room for both, one behind the other.
    unsafe { file.cast::<u8>().add(size_of::<File>()).cast() }
}

unsafe fn under<'a>(file: *mut ffi::sqlite3_file) -> Option<&'a Under> {
    // SAFETY: SQLite hands in files that `open` has filled in.
    unsafe { (*file.cast::<File>()).under.as_ref() }
}

/// What the file's disk says about an operation.
unsafe fn order(file: *mut ffi::sqlite3_file, operation: Operation) -> Order {
    // SAFETY: as `under`.
    unsafe { under(file) }.map_or(Order::GoOn, |under| under.disk.order(operation, &under.name))
}

/// Calls the system's method behind the shim's, or answers with what the disk ordered.
macro_rules! pass {
    ($file:ident, $method:ident ( $($argument:expr),* )) => {{
        let real = behind($file);
        ((*(*real).pMethods).$method.unwrap())(real $(, $argument)*)
    }};
    ($file:ident, $operation:expr, $method:ident ( $($argument:expr),* )) => {
        match order($file, $operation) {
            Order::GoOn => pass!($file, $method($($argument),*)),
            Order::Fail(code) | Order::FailHalfway(code) => code,
        }
    };
}

static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    // Without memory-mapped reads, which would go past the shim.
    iVersion: 2,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(check_reserved_lock),
    xFileControl: Some(control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(device_characteristics),
    xShmMap: Some(shm_map),
    xShmLock: Some(shm_lock),
    xShmBarrier: Some(shm_barrier),
    xShmUnmap: Some(shm_unmap),
    xFetch: None,
    xUnfetch: None,
};

fn under_name(name: *const c_char) -> Option<Under> {
    if name.is_null() {
        return None;
    }
    // SAFETY: SQLite's names end with a nought.
    let path = Path::new(unsafe { CStr::from_ptr(name) }.to_str().ok()?);
    Some(Under { disk: disk::under(path)?, name: path.file_name()?.to_str()?.to_owned() })
}

unsafe extern "C" fn open(
    _vfs: *mut ffi::sqlite3_vfs,
    name: ffi::sqlite3_filename,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    // SAFETY: SQLite gives `szOsFile` bytes for the file, and `pMethods` has to be null when the open fails.
    unsafe {
        (*file).pMethods = ptr::null();
        let under = under_name(name);
        if let Some(under) = &under
            && let Order::Fail(code) | Order::FailHalfway(code) = under.disk.order(Operation::Open, &under.name)
        {
            return code;
        }
        let real = behind(file);
        let code = ((*system()).xOpen.unwrap())(system(), name, real, flags, out_flags);
        if code == ffi::SQLITE_OK {
            (*file.cast::<File>()).under = under.map_or(ptr::null_mut(), |under| Box::into_raw(Box::new(under)));
            (*file).pMethods = &raw const METHODS;
        }
        code
    }
}

unsafe extern "C" fn delete(_vfs: *mut ffi::sqlite3_vfs, name: *const c_char, sync: c_int) -> c_int {
    // SAFETY: the arguments are SQLite's, passed on.
    unsafe {
        if let Some(under) = under_name(name) {
            if let Order::Fail(code) | Order::FailHalfway(code) = under.disk.order(Operation::Delete, &under.name) {
                return code;
            }
            under.disk.forget(&under.name);
        }
        ((*system()).xDelete.unwrap())(system(), name, sync)
    }
}

unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: SQLite closes a file once and does not use it after.
    unsafe {
        let code = pass!(file, xClose());
        let under = (*file.cast::<File>()).under;
        if !under.is_null() {
            drop(Box::from_raw(under));
        }
        code
    }
}

unsafe extern "C" fn read(file: *mut ffi::sqlite3_file, to: *mut c_void, bytes: c_int, at: i64) -> c_int {
    // SAFETY: the arguments are SQLite's, passed on.
    unsafe { pass!(file, Operation::Read, xRead(to, bytes, at)) }
}

unsafe fn size_of_file(file: *mut ffi::sqlite3_file) -> u64 {
    let mut bytes = 0;
    // SAFETY: the file is open.
    unsafe { pass!(file, xFileSize(&raw mut bytes)) };
    u64::try_from(bytes).unwrap()
}

/// Notes what the sectors of a range hold now, before it is changed.
unsafe fn note_change(file: *mut ffi::sqlite3_file, from: u64, end: u64) {
    // SAFETY: the file is open, and the buffer has a sector's room.
    unsafe {
        let Some(under) = under(file) else { return };
        let bytes = size_of_file(file);
        let read = |sector: u64| {
            let at = sector * SECTOR_BYTES;
            let length = usize::try_from(bytes.saturating_sub(at).min(SECTOR_BYTES)).unwrap();
            let mut before = vec![0_u8; length];
            if length > 0 {
                let wanted = c_int::try_from(length).unwrap();
                pass!(file, xRead(before.as_mut_ptr().cast(), wanted, i64::try_from(at).unwrap()));
            }
            before
        };
        under.disk.note_change(&under.name, from / SECTOR_BYTES..end.div_ceil(SECTOR_BYTES), bytes, read);
    }
}

unsafe extern "C" fn write(file: *mut ffi::sqlite3_file, from: *const c_void, bytes: c_int, at: i64) -> c_int {
    // SAFETY: the arguments are SQLite's, passed on; half of a buffer is within it.
    unsafe {
        let (bytes, code) = match order(file, Operation::Write) {
            Order::GoOn => (bytes, ffi::SQLITE_OK),
            Order::FailHalfway(code) => (bytes / 2, code),
            Order::Fail(code) => return code,
        };
        let start = u64::try_from(at).unwrap();
        note_change(file, start, start + u64::try_from(bytes).unwrap());
        let written = pass!(file, xWrite(from, bytes, at));
        if written == ffi::SQLITE_OK { code } else { written }
    }
}

unsafe extern "C" fn truncate(file: *mut ffi::sqlite3_file, bytes: i64) -> c_int {
    // SAFETY: the arguments are SQLite's, passed on.
    unsafe {
        if let Order::Fail(code) | Order::FailHalfway(code) = order(file, Operation::Truncate) {
            return code;
        }
        note_change(file, u64::try_from(bytes).unwrap(), size_of_file(file));
        if let Some(under) = under(file) {
            under.disk.note_cut(&under.name);
        }
        pass!(file, xTruncate(bytes))
    }
}

unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, flags: c_int) -> c_int {
    // SAFETY: the arguments are SQLite's, passed on.
    unsafe {
        let Some(under) = under(file) else { return pass!(file, xSync(flags)) };
        match under.disk.order(Operation::Sync, &under.name) {
            Order::GoOn => {
                under.disk.forget(&under.name);
                ffi::SQLITE_OK
            }
            Order::Fail(code) | Order::FailHalfway(code) => code,
        }
    }
}

unsafe extern "C" fn file_size(file: *mut ffi::sqlite3_file, bytes: *mut i64) -> c_int {
    // SAFETY: the arguments are SQLite's, passed on.
    unsafe { pass!(file, xFileSize(bytes)) }
}

unsafe extern "C" fn lock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    // SAFETY: the arguments are SQLite's, passed on.
    unsafe { pass!(file, Operation::Lock, xLock(level)) }
}

unsafe extern "C" fn unlock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    // SAFETY: the arguments are SQLite's, passed on.
    unsafe { pass!(file, xUnlock(level)) }
}

unsafe extern "C" fn check_reserved_lock(file: *mut ffi::sqlite3_file, found: *mut c_int) -> c_int {
    // SAFETY: the arguments are SQLite's, passed on.
    unsafe { pass!(file, xCheckReservedLock(found)) }
}

unsafe extern "C" fn control(file: *mut ffi::sqlite3_file, what: c_int, argument: *mut c_void) -> c_int {
    // SAFETY: the arguments are SQLite's, passed on.
    unsafe {
        // Nothing else that SQLite tells a file system of a Unix can fail there.
        if what == ffi::SQLITE_FCNTL_SIZE_HINT
            && let Order::Fail(code) | Order::FailHalfway(code) = order(file, Operation::Control)
        {
            return code;
        }
        pass!(file, xFileControl(what, argument))
    }
}

unsafe extern "C" fn sector_size(file: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: the argument is SQLite's, passed on.
    unsafe { pass!(file, xSectorSize()) }
}

unsafe extern "C" fn device_characteristics(file: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: the argument is SQLite's, passed on.
    unsafe { pass!(file, xDeviceCharacteristics()) }
}

unsafe extern "C" fn shm_map(
    file: *mut ffi::sqlite3_file,
    region: c_int,
    bytes: c_int,
    extend: c_int,
    to: *mut *mut c_void,
) -> c_int {
    // SAFETY: the arguments are SQLite's, passed on.
    unsafe { pass!(file, xShmMap(region, bytes, extend, to)) }
}

unsafe extern "C" fn shm_lock(file: *mut ffi::sqlite3_file, offset: c_int, count: c_int, flags: c_int) -> c_int {
    // SAFETY: the arguments are SQLite's, passed on.
    unsafe {
        // To let a lock go never fails.
        if flags & ffi::SQLITE_SHM_UNLOCK != 0 {
            return pass!(file, xShmLock(offset, count, flags));
        }
        pass!(file, Operation::SharedLock, xShmLock(offset, count, flags))
    }
}

unsafe extern "C" fn shm_barrier(file: *mut ffi::sqlite3_file) {
    // SAFETY: the argument is SQLite's, passed on.
    unsafe { pass!(file, xShmBarrier()) }
}

unsafe extern "C" fn shm_unmap(file: *mut ffi::sqlite3_file, delete: c_int) -> c_int {
    // SAFETY: the arguments are SQLite's, passed on.
    unsafe { pass!(file, xShmUnmap(delete)) }
}
