//! WASI without a world outside: clocks, randomness, streams, an empty environment, no files. Stdout and stderr go into
//! the job's log. Sockets are never linked.

use std::sync::Arc;

use bytes::Bytes;
use wasmtime::component::Linker;
use wasmtime_wasi::{
    WasiCtx, WasiView,
    cli::{IsTerminal, StdoutStream, WasiCli, WasiCliView},
    filesystem::{WasiFilesystem, WasiFilesystemView},
    p2::{
        OutputStream, Pollable, StreamResult,
        bindings::{cli, filesystem, random},
    },
    random::WasiRandom,
};

use crate::{
    job_log::{JobLog, LogLevel},
    state::GuestState,
};

/// A line without an end is written all the same at this length.
const LINE_MAX_BYTES: usize = 8 << 10;
/// How much a guest may write at once.
const WRITE_MAX_BYTES: usize = 64 << 10;
/// How many random bytes a guest gets at once.
const RANDOM_MAX_BYTES: u64 = 1 << 20;
/// What the Rust runtime writes to stderr when a guest panics.
const PANIC_MARK: &str = "panicked at";

pub(crate) fn add(linker: &mut Linker<GuestState>) -> wasmtime::Result<()> {
    wasmtime_wasi::p2::add_to_linker_proxy_interfaces_async(linker)?;
    filesystem::types::add_to_linker::<GuestState, WasiFilesystem>(linker, GuestState::filesystem)?;
    filesystem::preopens::add_to_linker::<GuestState, WasiFilesystem>(linker, GuestState::filesystem)?;
    random::insecure::add_to_linker::<GuestState, WasiRandom>(linker, |state| state.ctx().ctx.random())?;
    random::insecure_seed::add_to_linker::<GuestState, WasiRandom>(linker, |state| state.ctx().ctx.random())?;
    cli::exit::add_to_linker::<GuestState, WasiCli>(linker, GuestState::cli)?;
    cli::environment::add_to_linker::<GuestState, WasiCli>(linker, GuestState::cli)?;
    cli::terminal_input::add_to_linker::<GuestState, WasiCli>(linker, GuestState::cli)?;
    cli::terminal_output::add_to_linker::<GuestState, WasiCli>(linker, GuestState::cli)?;
    cli::terminal_stdin::add_to_linker::<GuestState, WasiCli>(linker, GuestState::cli)?;
    cli::terminal_stdout::add_to_linker::<GuestState, WasiCli>(linker, GuestState::cli)?;
    cli::terminal_stderr::add_to_linker::<GuestState, WasiCli>(linker, GuestState::cli)
}

/// A context in which nothing of the daemon's own is visible.
pub(crate) fn context(log: &Arc<JobLog>) -> WasiCtx {
    let mut builder = WasiCtx::builder();
    builder
        .stdout(LogStream::new(log, LogLevel::Info))
        .stderr(LogStream::new(log, LogLevel::Warn))
        .max_random_size(RANDOM_MAX_BYTES)
        .allow_tcp(false)
        .allow_udp(false)
        .allow_ip_name_lookup(false);
    builder.build()
}

/// Stdout or stderr, line by line into the job's log.
struct LogStream {
    log: Arc<JobLog>,
    level: LogLevel,
    unfinished: Vec<u8>,
}

impl LogStream {
    fn new(log: &Arc<JobLog>, level: LogLevel) -> Self {
        Self { log: log.clone(), level, unfinished: Vec::new() }
    }

    fn take(&mut self, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.unfinished.extend_from_slice(piece);
            if piece.ends_with(b"\n") || self.unfinished.len() >= LINE_MAX_BYTES {
                self.finish_line();
            }
        }
    }

    fn finish_line(&mut self) {
        let line = String::from_utf8_lossy(&self.unfinished).into_owned();
        self.unfinished.clear();
        let line = line.trim_end_matches(['\n', '\r']);
        if self.level == LogLevel::Warn && (line.contains(PANIC_MARK) || self.log.is_panicking()) {
            self.log.note_panic(line);
        }
        self.log.write(self.level, line);
    }
}

impl Drop for LogStream {
    fn drop(&mut self) {
        if !self.unfinished.is_empty() {
            self.finish_line();
        }
    }
}

impl IsTerminal for LogStream {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for LogStream {
    fn async_stream(&self) -> Box<dyn tokio::io::AsyncWrite + Send + Sync> {
        // Only guests of a later WASI, which are not linked, would write through this.
        Box::new(tokio::io::sink())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(Self::new(&self.log, self.level))
    }
}

#[wasmtime_wasi::async_trait]
impl Pollable for LogStream {
    async fn ready(&mut self) {}
}

impl OutputStream for LogStream {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.take(&bytes);
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(WRITE_MAX_BYTES)
    }
}
