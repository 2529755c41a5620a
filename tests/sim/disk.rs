//! A disk that fails and loses power. It lies under SQLite (`vfs.rs`) and remembers, for each file of one directory, what
//! its sectors held when it was last synced: after a power cut each sector that was written since holds either what was
//! written or what was there before. It never syncs for real, so a schedule costs no waiting.

use std::{
    collections::BTreeMap,
    ffi::c_int,
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use rusqlite::ffi;
use tempfile::TempDir;

use crate::{random::Random, vfs};

/// What a disk writes whole.
pub const SECTOR_BYTES: u64 = 512;

/// Far longer than any commit takes.
const PATIENCE: Duration = Duration::from_mins(1);

/// What SQLite asks of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    Open,
    Read,
    Write,
    Sync,
    Truncate,
    Delete,
    Lock,
    SharedLock,
    Control,
}

/// Something that will go wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// With what.
    pub operation: Operation,
    /// How many such operations go well before.
    pub after: u32,
    /// How many fail then.
    pub times: u32,
    /// With which of SQLite's codes.
    pub code: c_int,
}

/// What is done with an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    GoOn,
    /// Nothing of it is done.
    Fail(c_int),
    /// The first half of what is to be written is, and the rest is not.
    FailHalfway(c_int),
}

/// What the sectors that were written since a file's last sync held before.
#[derive(Debug, Default)]
struct Unsynced {
    before: BTreeMap<u64, Vec<u8>>,
    bytes_before: u64,
    has_changed: bool,
    /// Whether it was made shorter. A file system does that whole or not at all, and before what is written afterwards.
    was_cut: bool,
}

#[derive(Default)]
struct State {
    files: BTreeMap<String, Unsynced>,
    counts: BTreeMap<(Operation, String), u64>,
    fault: Option<Fault>,
    failed: u32,
    cut: Option<Cut>,
    /// What the power cut left.
    left: Option<TempDir>,
    hold: Hold,
}

/// When the power is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// Before the change after this many more.
    AfterChanges(u64),
    /// When all of a commit is written and nothing of it is synced.
    BeforeSync,
}

impl Cut {
    /// Whether it comes before this operation; else what is left of the wait.
    const fn comes(&mut self, operation: Operation) -> bool {
        match self {
            Self::BeforeSync => matches!(operation, Operation::Sync),
            Self::AfterChanges(0) => true,
            Self::AfterChanges(left) => {
                *left -= 1;
                false
            }
        }
    }
}

/// Whether the next sync waits until it is let go.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Hold {
    #[default]
    Not,
    Next,
    Waiting,
}

/// The disk of one directory.
pub struct Disk {
    directory: PathBuf,
    state: Mutex<State>,
    changed: Condvar,
    random: Mutex<Random>,
}

static DISKS: Mutex<Vec<(PathBuf, Weak<Disk>)>> = Mutex::new(Vec::new());

/// The disk under a file, if its directory has one.
pub fn under(file: &Path) -> Option<Arc<Disk>> {
    let disks = DISKS.lock().unwrap_or_else(PoisonError::into_inner);
    let (_, disk) = disks.iter().find(|(directory, _)| Some(directory.as_path()) == file.parent())?;
    disk.upgrade()
}

impl Disk {
    /// Puts a disk under a directory in which no database is open yet.
    pub fn under_directory(directory: &Path, seed: u64) -> Arc<Self> {
        vfs::register();
        let disk = Arc::new(Self {
            directory: directory.to_owned(),
            state: Mutex::default(),
            changed: Condvar::new(),
            random: Mutex::new(Random::new(seed)),
        });
        let mut disks = DISKS.lock().unwrap_or_else(PoisonError::into_inner);
        disks.retain(|(_, disk)| disk.strong_count() > 0);
        disks.push((directory.to_owned(), Arc::downgrade(&disk)));
        disk
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets something go wrong from now on.
    pub fn fail(&self, fault: Fault) {
        let mut state = self.lock();
        state.fault = Some(fault);
        state.failed = 0;
    }

    /// Nothing goes wrong any more. Answers how many operations have failed.
    pub fn heal(&self) -> u32 {
        let mut state = self.lock();
        state.fault = None;
        std::mem::take(&mut state.failed)
    }

    /// Cuts the power at a moment to come. What is running does not notice: it goes on with the files as they are, and
    /// `left` has what a start after the cut would find.
    pub fn cut_power_at(&self, cut: Cut) {
        let mut state = self.lock();
        state.cut = Some(cut);
        state.left = None;
    }

    /// What the power cut left, if it came. There will be none any more.
    pub fn left(&self) -> Option<TempDir> {
        let mut state = self.lock();
        state.cut = None;
        state.left.take()
    }

    /// Cuts the power now.
    pub fn cut_power(&self) -> TempDir {
        self.leave(&self.lock())
    }

    /// The next sync waits until `let_go`.
    pub fn hold_next_sync(&self) {
        self.lock().hold = Hold::Next;
    }

    /// Waits until a sync waits.
    pub fn wait_until_held(&self) {
        let is_coming = |state: &mut State| state.hold != Hold::Waiting;
        let waited = self.changed.wait_timeout_while(self.lock(), PATIENCE, is_coming);
        let (state, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        drop(state);
        assert!(!timeout.timed_out(), "nothing was synced, although something was committed");
    }

    /// Lets the sync that waits go on.
    pub fn let_go(&self) {
        self.lock().hold = Hold::Not;
        self.changed.notify_all();
    }

    /// How many operations of a kind a file has seen.
    pub fn count(&self, operation: Operation, file: &str) -> u64 {
        self.lock().counts.get(&(operation, file.to_owned())).copied().unwrap_or(0)
    }

    /// Asked before each operation.
    pub fn order(&self, operation: Operation, file: &str) -> Order {
        let mut state = self.lock();
        *state.counts.entry((operation, file.to_owned())).or_default() += 1;
        if operation == Operation::Sync && state.hold == Hold::Next {
            state.hold = Hold::Waiting;
            self.changed.notify_all();
            let is_held = |state: &mut State| state.hold == Hold::Waiting;
            state = self.changed.wait_while(state, is_held).unwrap_or_else(PoisonError::into_inner);
        }
        let is_change =
            matches!(operation, Operation::Write | Operation::Sync | Operation::Truncate | Operation::Delete);
        if is_change && state.cut.as_mut().is_some_and(|cut| cut.comes(operation)) {
            state.cut = None;
            state.left = Some(self.leave(&state));
        }
        state.order(operation)
    }

    /// Notes what sectors held that are about to be changed. `read` answers what the file holds of them.
    pub fn note_change(&self, file: &str, sectors: std::ops::Range<u64>, bytes: u64, read: impl Fn(u64) -> Vec<u8>) {
        let mut state = self.lock();
        let unsynced = state.files.entry(file.to_owned()).or_default();
        if !unsynced.has_changed {
            unsynced.has_changed = true;
            unsynced.bytes_before = bytes;
        }
        for sector in sectors {
            unsynced.before.entry(sector).or_insert_with(|| read(sector));
        }
    }

    /// Notes that a file is about to be made shorter; what is gone by it was noted as a change.
    pub fn note_cut(&self, file: &str) {
        if let Some(unsynced) = self.lock().files.get_mut(file) {
            unsynced.was_cut = true;
        }
    }

    /// A file was synced or is gone: what it holds is what it will hold.
    pub fn forget(&self, file: &str) {
        self.lock().files.remove(file);
    }

    /// The files as a power cut leaves them, in a directory of their own.
    fn leave(&self, state: &State) -> TempDir {
        let left = tempfile::tempdir().unwrap();
        for entry in fs::read_dir(&self.directory).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            // Shared memory does not outlive its processes.
            if name.ends_with("-shm") {
                continue;
            }
            let mut bytes = fs::read(entry.path()).unwrap();
            if let Some(unsynced) = state.files.get(&name) {
                let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
                unsynced.undo_some(&mut bytes, &mut random);
            }
            fs::write(left.path().join(name), bytes).unwrap();
        }
        left
    }
}

impl State {
    fn order(&mut self, operation: Operation) -> Order {
        let Some(fault) = self.fault.as_mut().filter(|fault| fault.operation == operation) else { return Order::GoOn };
        if fault.after > 0 {
            fault.after -= 1;
            return Order::GoOn;
        }
        if fault.times == 0 {
            return Order::GoOn;
        }
        fault.times -= 1;
        self.failed += 1;
        // A disk that is full often takes the beginning of a write.
        let is_halfway =
            operation == Operation::Write && fault.code == ffi::SQLITE_FULL && fault.times.is_multiple_of(2);
        if is_halfway { Order::FailHalfway(fault.code) } else { Order::Fail(fault.code) }
    }
}

impl Unsynced {
    /// Takes back all, none or some of what was written since the last sync, sector by sector.
    fn undo_some(&self, bytes: &mut Vec<u8>, random: &mut Random) {
        let was_cut = self.was_cut && random.chance(50);
        let percent = if self.was_cut && !was_cut { 100 } else { random.pick(&[0, 20, 50, 80, 100]) };
        let bytes_now = bytes.len();
        let mut kept_up_to = 0;
        for (sector, before) in &self.before {
            let from = usize::try_from(sector * SECTOR_BYTES).unwrap();
            let end = from + usize::try_from(SECTOR_BYTES).unwrap();
            if !random.chance(percent) {
                kept_up_to = kept_up_to.max(end.min(bytes_now));
                continue;
            }
            // What stood there before a cut is gone with it.
            let before = if was_cut { &[][..] } else { before };
            if bytes.len() < from + before.len() {
                bytes.resize(from + before.len(), 0);
            }
            let end = end.min(bytes.len());
            if from < end {
                bytes[from..end].fill(0);
            }
            bytes[from..from + before.len()].copy_from_slice(before);
        }
        // Its length is written down on its own: a file can have grown before what it grew by is there.
        if !self.was_cut && random.chance(50) {
            let length = usize::try_from(self.bytes_before).unwrap().max(kept_up_to);
            bytes.truncate(length);
        }
    }
}
