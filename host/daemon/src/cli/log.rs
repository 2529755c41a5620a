//! The daemon's log: one line an event, on standard error, in which what looks like personal data or a secret is masked
//! like everywhere else. It never holds anything of a job on purpose; an error's text may.

use std::io::{self, Write};

use leasehold_domain::redaction::TextMasker;
use tracing_subscriber::EnvFilter;

use crate::config::{Config, LogFormat};

/// The environment variable that filters the log, such as `leasehold=debug`.
const LOG: &str = "LEASEHOLD_LOG";

/// Sets the log up for the life of the process.
pub(super) fn set_up(config: &Config) {
    let filter = EnvFilter::try_from_env(LOG).unwrap_or_else(|_| EnvFilter::new("info"));
    let masks = config.detects();
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(move || Masked { masks });
    match config.daemon.log_format {
        LogFormat::Text => builder.with_ansi(io::IsTerminal::is_terminal(&io::stderr())).init(),
        LogFormat::Json => builder.json().init(),
    }
}

/// Standard error, to which each event comes whole.
struct Masked {
    masks: bool,
}

impl Write for Masked {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        match std::str::from_utf8(event) {
            Ok(text) if self.masks => io::stderr().write_all(TextMasker::by_form().mask(text).as_bytes())?,
            _ => io::stderr().write_all(event)?,
        }
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}
