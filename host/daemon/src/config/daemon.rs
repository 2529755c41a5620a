//! The section `[daemon]`: where the daemon's files are and how it ends and logs. It never creates a file.

use std::path::{Path, PathBuf};

use leasehold_domain::DurationMs;

use super::reader::Section;

/// The longest path that an address of a Unix socket holds (`sun_path` less its closing zero, unix(7)).
const SOCKET_PATH_MAX_BYTES: usize = 107;

/// The daemon's files and manners.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DaemonConfig {
    /// The directory of the database and the stored handlers.
    pub data_dir: PathBuf,
    /// The socket of the API.
    pub socket: PathBuf,
    /// The file of the key that seals payloads.
    pub key_file: PathBuf,
    /// A folder whose components are stored, if one is watched.
    pub handlers_folder: Option<PathBuf>,
    /// How long running attempts may go on after SIGTERM.
    pub shutdown_grace_ms: DurationMs,
    /// How the daemon's log is written.
    pub log_format: LogFormat,
}

/// How the daemon's log is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// Lines for people.
    Text,
    /// A JSON object on each line.
    Json,
}

impl DaemonConfig {
    pub(super) fn read(section: &Section<'_>, base: &Path) -> Self {
        let path = |name: &str| section.text(name).map(|text| base.join(text));
        let data_dir = path("data_dir").unwrap_or_else(|| base.join("leasehold-data"));
        let config = Self {
            socket: path("socket").unwrap_or_else(|| data_dir.join("leasehold.sock")),
            key_file: path("key_file").unwrap_or_else(|| data_dir.join("leasehold.key")),
            handlers_folder: section
                .text("handlers_folder")
                .filter(|text| !text.is_empty())
                .map(|text| base.join(text)),
            shutdown_grace_ms: section.duration_ms("shutdown_grace", 20_000, &(0..=3_600_000)),
            log_format: section.choice(
                "log_format",
                LogFormat::Text,
                &[("text", LogFormat::Text), ("json", LogFormat::Json)],
            ),
            data_dir,
        };
        config.check_socket_path(section);
        section.refuse_unknown();
        config
    }

    fn check_socket_path(&self, section: &Section<'_>) {
        let bytes = self.socket.as_os_str().len();
        if bytes > SOCKET_PATH_MAX_BYTES {
            section.error(
                "socket",
                format!(
                    "the path {} is {bytes} bytes long; a socket's path has at most {SOCKET_PATH_MAX_BYTES}, so set a shorter socket",
                    self.socket.display()
                ),
            );
        }
    }
}
