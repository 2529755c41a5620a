//! The API's Unix socket. Only whoever owns the database may take its path over, so it is bound after the database is
//! locked.

use std::{
    fs, io,
    os::unix::fs::{FileTypeExt as _, PermissionsExt as _},
    path::Path,
};

use tokio::net::UnixListener;

/// Whoever may open the socket is told who they are by the configuration, so the group may open it too.
const SOCKET_MODE: u32 = 0o660;

/// Binds the socket; one that a daemon before left behind is removed. To be called by the database's owner alone, since
/// a socket that is in use can't be told from one that is not.
pub fn bind(path: &Path) -> io::Result<UnixListener> {
    remove_stale(path)?;
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(SOCKET_MODE))?;
    Ok(listener)
}

fn remove_stale(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => fs::remove_file(path),
        Ok(_) => Err(io::Error::new(io::ErrorKind::AlreadyExists, "something that is no socket is in its place")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn o5_a_socket_left_behind_is_replaced_and_nothing_else_is() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        drop(bind(&path).unwrap());
        assert!(path.exists());
        let listener = bind(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, SOCKET_MODE);
        drop(listener);
        let file = directory.path().join("file");
        fs::write(&file, "kept").unwrap();
        assert!(bind(&file).is_err());
        assert_eq!(fs::read_to_string(&file).unwrap(), "kept");
    }
}
