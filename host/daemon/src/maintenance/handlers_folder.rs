//! Watches a folder for components: one that is put there is stored, and goes live where the configuration says so. What
//! can't be stored is reported once, in one line, and looked at again when it changes. It never removes or changes a file.

use std::{
    collections::HashMap,
    fs,
    io::{self, Read as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use leasehold_domain::{Digest, HandlerVersion};
use notify::{
    Event, EventKind, RecursiveMode, Watcher as _,
    event::{AccessKind, AccessMode, CreateKind, ModifyKind, RenameMode},
};
use tokio::sync::mpsc;

use crate::{blocking::off_thread, daemon::Daemon};

/// Who is named in the audit log.
const ACTOR: &str = "handlers folder";

/// Why a file was not taken in.
#[derive(Debug, thiserror::Error)]
enum FolderError {
    #[error("it is empty")]
    Empty,
    #[error("it is {bytes} bytes long; at most {max_bytes} are allowed (component_max under [sandbox])")]
    Huge { bytes: u64, max_bytes: usize },
    #[error("it can't be read: {0}")]
    Unreadable(#[from] io::Error),
    #[error("it carries no name and version, and its name is not of the form name@1.2.3.wasm")]
    Nameless,
    #[error("{0}")]
    Handler(#[from] crate::HandlerError),
}

impl FolderError {
    fn code(&self) -> &'static str {
        match self {
            Self::Empty => "component_empty",
            Self::Huge { .. } => "component_too_large",
            Self::Unreadable(_) => "file_unreadable",
            Self::Nameless => "component_without_identity",
            Self::Handler(error) => error.code(),
        }
    }
}

/// What is known of the folder's files.
struct Folder {
    daemon: Arc<Daemon>,
    path: PathBuf,
    /// The bytes that were taken in, by file.
    taken: HashMap<PathBuf, Digest>,
    /// What was reported last, by file, so that it is said once.
    reported: HashMap<PathBuf, String>,
}

/// Watches a folder until the daemon's end. The folder is made when it is missing at the start; one that is removed later
/// is watched again when it is back.
pub(crate) async fn run(daemon: Arc<Daemon>, path: PathBuf) {
    let watched = async {
        fs::create_dir_all(&path)?;
        // Events name their files by absolute paths.
        let path = std::path::absolute(&path)?;
        loop {
            watch(&daemon, &path).await?;
            tracing::warn!(folder = %path.display(), "the handlers folder is gone; it is watched again when it is back");
            until_back(&path).await?;
        }
    };
    let ended: notify::Result<std::convert::Infallible> = watched.await;
    let Err(error) = ended;
    tracing::error!(folder = %path.display(), %error, "the handlers folder can't be watched; push components instead");
}

type Events = mpsc::UnboundedReceiver<notify::Result<Event>>;

/// Begins to watch a folder. Its events end with the watcher.
fn begin(path: &Path) -> notify::Result<(impl notify::Watcher, Events)> {
    let (sender, events) = mpsc::unbounded_channel();
    // Whoever watches holds the receiver, so that an event that can't be sent is one too late.
    let mut watcher = notify::recommended_watcher(move |event| drop(sender.send(event)))?;
    watcher.watch(path, RecursiveMode::NonRecursive)?;
    Ok((watcher, events))
}

/// Takes in what is put into a folder, until the folder itself is gone.
async fn watch(daemon: &Arc<Daemon>, path: &Path) -> notify::Result<()> {
    let (_watcher, mut events) = begin(path)?;
    let mut folder =
        Folder { daemon: Arc::clone(daemon), path: path.to_owned(), taken: HashMap::new(), reported: HashMap::new() };
    folder.scan().await;
    tracing::info!(folder = %path.display(), "the handlers folder is watched");
    while let Some(event) = events.recv().await {
        if event.as_ref().is_ok_and(|event| is_gone(event) && event.paths.iter().any(|gone| gone == path)) {
            break;
        }
        folder.notice(event).await;
    }
    Ok(())
}

/// Waits until a folder that was removed is there again. It is not made here: whoever removed it may be about to.
async fn until_back(path: &Path) -> notify::Result<()> {
    let (_watcher, mut events) = begin(path.parent().unwrap_or(path))?;
    while !path.is_dir() && events.recv().await.is_some() {}
    Ok(())
}

impl Folder {
    /// Looks at all files, at the start and when events were lost.
    async fn scan(&mut self) {
        let folder = self.path.clone();
        let look = move || fs::read_dir(folder).map(|entries| entries.flatten().map(|entry| entry.path()).collect());
        let mut paths: Vec<_> = off_thread(look).await.unwrap_or_default();
        paths.sort();
        for path in paths {
            self.consider(&path).await;
        }
    }

    async fn notice(&mut self, event: notify::Result<Event>) {
        match event {
            Ok(event) if event.need_rescan() => self.scan().await,
            Ok(event) if is_gone(&event) => event.paths.iter().for_each(|path| self.forget(path)),
            Ok(event) => {
                for path in event.paths.iter().filter(|path| may_be_whole(event.kind, path)) {
                    self.consider(path).await;
                }
            }
            Err(error) => {
                tracing::error!(folder = %self.path.display(), %error, "the handlers folder was not watched for a moment");
            }
        }
    }

    fn forget(&mut self, path: &Path) {
        self.taken.remove(path);
        self.reported.remove(path);
    }

    /// Takes a file in, if it is a component that is not taken in yet.
    async fn consider(&mut self, path: &Path) {
        if !is_component_file(path) {
            return;
        }
        match self.take(path).await {
            Ok(()) => {
                self.reported.remove(path);
            }
            Err(FolderError::Unreadable(error)) if error.kind() == io::ErrorKind::NotFound => self.forget(path),
            Err(error) => self.report(path, &error),
        }
    }

    /// The bytes decide, never the file's size and time: a file can be replaced by another of the same.
    async fn take(&mut self, path: &Path) -> Result<(), FolderError> {
        let max_bytes = self.daemon.config().sandbox.component_max_bytes;
        let file = path.to_owned();
        let (bytes, digest) = off_thread(move || read(&file, max_bytes)).await?;
        if self.taken.get(path) == Some(&digest) {
            return Ok(());
        }
        let (name, version) = self.identity(path, bytes.clone()).await?;
        let pushed = self.daemon.push_handler(bytes, Some(&name), Some(&version), ACTOR).await?;
        if !pushed.same {
            tracing::info!(file = %path.display(), version = %pushed.version, "a component from the handlers folder is stored");
        }
        if self.goes_live(&pushed.version, pushed.same).await {
            self.daemon.activate_handler(&pushed.version, false, ACTOR).await?;
        }
        self.taken.insert(path.to_owned(), digest);
        Ok(())
    }

    /// The component's own name and version, else those of the file's name.
    async fn identity(&self, path: &Path, bytes: Bytes) -> Result<(String, String), FolderError> {
        let (own, _) = self.daemon.inspect(bytes).await?;
        if let (Some(name), Some(version)) = (own.name, own.version) {
            return Ok((name, version));
        }
        let stem = path.file_stem().and_then(|stem| stem.to_str()).ok_or(FolderError::Nameless)?;
        let named: HandlerVersion = stem.parse().map_err(|_| FolderError::Nameless)?;
        Ok((named.name.to_string(), named.version.to_string()))
    }

    /// A version that was stored before, and retired since, does not come back by lying in the folder.
    async fn goes_live(&self, version: &HandlerVersion, stored_before: bool) -> bool {
        let config = self.daemon.config();
        if !config.handlers.get(&version.name).is_some_and(|handler| handler.activate_from_folder) {
            return false;
        }
        if !stored_before {
            return true;
        }
        let row = self.daemon.store.version(version).await.ok().flatten();
        row.is_some_and(|row| row.activated_at_ms.is_none())
    }

    fn report(&mut self, path: &Path, error: &FolderError) {
        let text = error.to_string();
        if self.reported.get(path) != Some(&text) {
            tracing::error!(file = %path.display(), code = error.code(), %error, "a file in the handlers folder can't be taken in; it is looked at again when it changes");
            self.reported.insert(path.to_owned(), text);
        }
    }
}

/// Whether what an event names is no longer where it was.
fn is_gone(event: &Event) -> bool {
    matches!(event.kind, EventKind::Remove(_) | EventKind::Modify(ModifyKind::Name(RenameMode::From)))
}

/// Whether a file can have become whole by this event. While it is being written it is left alone.
fn may_be_whole(kind: EventKind, path: &Path) -> bool {
    match kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write))
        | EventKind::Modify(ModifyKind::Name(RenameMode::To | RenameMode::Both)) => true,
        EventKind::Create(CreateKind::File | CreateKind::Other | CreateKind::Any) => is_link(path),
        _ => false,
    }
}

/// A link, of either kind, is there at once; nobody writes it and closes it.
fn is_link(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_symlink() || metadata.nlink() > 1)
}

fn is_component_file(path: &Path) -> bool {
    let is_hidden = path.file_name().and_then(|name| name.to_str()).is_none_or(|name| name.starts_with('.'));
    !is_hidden && path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("wasm"))
}

fn read(path: &Path, max_bytes: usize) -> Result<(Bytes, Digest), FolderError> {
    let size_bytes = fs::metadata(path)?.len();
    if size_bytes == 0 {
        return Err(FolderError::Empty);
    }
    let mut bytes = Vec::new();
    if size_bytes <= max_bytes as u64 {
        // It may grow meanwhile.
        fs::File::open(path)?.take(max_bytes as u64 + 1).read_to_end(&mut bytes)?;
    }
    let size_bytes = size_bytes.max(bytes.len() as u64);
    if size_bytes > max_bytes as u64 {
        return Err(FolderError::Huge { bytes: size_bytes, max_bytes });
    }
    let digest = Digest::of(&bytes);
    Ok((bytes.into(), digest))
}
