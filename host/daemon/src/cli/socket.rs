//! Finds the daemon's socket by its configuration. It reads no more of the file than that, since whoever only enqueues
//! needs neither its secrets nor its validity.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde::Deserialize;

use super::{Failure, GlobalOptions};

#[derive(Debug, Default, Deserialize)]
struct Located {
    #[serde(default)]
    daemon: LocatedDaemon,
}

#[derive(Debug, Default, Deserialize)]
struct LocatedDaemon {
    data_dir: Option<PathBuf>,
    socket: Option<PathBuf>,
}

/// The socket that was named, else the configuration's.
pub fn locate(options: &GlobalOptions) -> Result<PathBuf, Failure> {
    match &options.socket {
        Some(socket) => Ok(socket.clone()),
        None => from_configuration(&options.config),
    }
}

fn from_configuration(path: &Path) -> Result<PathBuf, Failure> {
    let text = fs::read_to_string(path).map_err(|error| unreadable(path, &error))?;
    let located: Located = toml::from_str(&text).map_err(|error| Failure::Usage {
        code: "config_invalid",
        message: format!("{} is no configuration: {}", path.display(), error.message()),
    })?;
    Ok(within(path.parent().unwrap_or(Path::new("")), located.daemon))
}

/// Relative paths in the configuration are relative to its directory.
fn within(base: &Path, daemon: LocatedDaemon) -> PathBuf {
    let data_dir = daemon.data_dir.unwrap_or_else(|| "leasehold-data".into());
    match daemon.socket {
        Some(socket) => base.join(socket),
        None => base.join(data_dir).join("leasehold.sock"),
    }
}

fn unreadable(path: &Path, error: &io::Error) -> Failure {
    let message = format!(
        "the daemon's socket is not known, for {} can't be read ({error}): name the socket with --socket or \
         LEASEHOLD_SOCKET, or its configuration with --config",
        path.display()
    );
    Failure::Usage { code: "socket_unknown", message }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn o5_the_socket_is_found_where_the_daemon_makes_it() {
        for text in
            ["", "[daemon]\ndata_dir = \"d\"\n", "[daemon]\nsocket = \"/run/s\"\n", "[daemon]\nsocket = \"s\"\n"]
        {
            let path = Path::new("/etc/leasehold/config.toml");
            let located: Located = toml::from_str(text).unwrap();
            let expected = Config::parse(text, path).unwrap().daemon.socket;
            assert_eq!(within(Path::new("/etc/leasehold"), located.daemon), expected);
        }
    }
}
