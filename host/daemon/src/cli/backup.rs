//! `leasehold backup`: a copy of the database and the stored components in a new directory, while the daemon works or not.
//! It never copies the key: whoever has both has everything.

use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use clap::Args;
use leasehold_domain::Digest;
use leasehold_store::examine;
use serde_json::json;

use super::{Failure, GlobalOptions, text};
use crate::config::{Config, DaemonConfig};

/// Copy the database and the stored components into a new directory, as they stand at one moment
///
/// The daemon may run meanwhile. The key file is not in the copy: keep it apart. To restore, put the copy in the place of
/// `data_dir`, the key file where it was, and start the daemon. Jobs that ended after the backup are in it as they were
/// then and run again.
#[derive(Debug, Args)]
pub struct BackupArguments {
    /// The directory to make; it must not exist
    directory: PathBuf,
}

/// Runs the command.
pub fn run(arguments: &BackupArguments, options: &GlobalOptions) -> Result<(), Failure> {
    options.refuse_url("backup copies what is on this machine")?;
    let daemon = Config::load(&options.config)?.daemon;
    let target = &arguments.directory;
    if target.symlink_metadata().is_ok() {
        return Err(failed(format!("{} exists; a backup is made in a new directory only", target.display())));
    }
    // Made under another name and renamed: a backup that was cut off is never taken for one.
    let partial = with_suffix(target, ".partial");
    let components = copy(&daemon, &partial).inspect_err(|_| discard(&partial))?;
    fs::rename(&partial, target).and_then(|()| sync(parent(target))).map_err(|error| unwritable(target, &error))?;
    let summary =
        json!({ "directory": target.display().to_string(), "components": components, "key_file": "not included" });
    options.output().show(&summary, |_| {
        let (target, key) = (target.display().to_string(), daemon.key_file.display().to_string());
        let (target, key) = (text::escape(&target), text::escape(&key));
        format!(
            "{target} holds the database and {components} components. The key file {key} is not in it: without it no \
             payload can be read, so keep a copy of it in another place"
        )
    })
}

/// Copies everything into a new directory, durably; answers how many components there are.
fn copy(daemon: &DaemonConfig, partial: &Path) -> Result<usize, Failure> {
    let database = daemon.data_dir.join("leasehold.db");
    if let Err(error) = fs::metadata(&database) {
        return Err(Failure::unreadable(database.display(), &error));
    }
    let handlers = partial.join("handlers");
    discard(partial);
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&handlers).map_err(|error| unwritable(partial, &error))?;
    let copied = partial.join("leasehold.db");
    examine::copy(&database, &copied).map_err(|error| failed(error.to_string()))?;
    // The database goes first: a component is stored before the row that names it, and stays.
    let components = examine::components(&copied).map_err(|error| failed(error.to_string()))?;
    for digest in &components {
        copy_component(&daemon.data_dir.join("handlers"), &handlers, *digest)?;
    }
    for directory in [&handlers, partial] {
        sync(directory).map_err(|error| unwritable(directory, &error))?;
    }
    Ok(components.len())
}

fn copy_component(from: &Path, into: &Path, digest: Digest) -> Result<(), Failure> {
    let name = format!("{digest}.wasm");
    let bytes = fs::read(from.join(&name)).map_err(|error| Failure::unreadable(from.join(&name).display(), &error))?;
    if Digest::of(&bytes) != digest {
        let damaged = from.join(&name);
        return Err(failed(format!(
            "{} does not have its digest; push the version again to put it right",
            damaged.display()
        )));
    }
    let path = into.join(&name);
    let mut options = fs::OpenOptions::new();
    let file = options.write(true).create_new(true).mode(0o600).open(&path);
    let written = file.and_then(|mut file| io::Write::write_all(&mut file, &bytes).and_then(|()| file.sync_all()));
    written.map_err(|error| unwritable(&path, &error))
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn sync(directory: &Path) -> io::Result<()> {
    fs::File::open(directory)?.sync_all()
}

/// Removes what a backup that was cut off has left, if anything.
fn discard(partial: &Path) {
    let _ = fs::remove_dir_all(partial);
}

fn failed(message: String) -> Failure {
    Failure::Failed { code: "backup_failed", message }
}

fn unwritable(path: &Path, error: &io::Error) -> Failure {
    failed(format!("{} can't be written: {error}", path.display()))
}
