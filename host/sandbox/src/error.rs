//! Why the sandbox can't be had and why a component can't be used, in words that say what to do.

use std::{io, path::PathBuf};

use leasehold_domain::Digest;

use crate::Need;

/// The sandbox could not be started.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// A number of the configuration is out of range.
    #[error("[sandbox] {key} is {value}; allowed is {allowed}")]
    Config {
        /// The configuration's key.
        key: &'static str,
        /// What it is.
        value: usize,
        /// What it may be.
        allowed: String,
    },
    /// The engine refused its configuration.
    #[error("the WebAssembly engine could not be started ({pool}): {message}")]
    Engine {
        /// The limits that were asked for.
        pool: String,
        /// The engine's words.
        message: String,
    },
    /// A thread could not be started.
    #[error("{what} could not be started")]
    Threads {
        /// Which.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
    /// The directory of compiled components can't be used.
    #[error("the directory of compiled components {} can't be used; it must be writable and the daemon's own", path.display())]
    Directory {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A guest that loops for ever was not stopped.
    #[error("the sandbox does not stop a guest at its deadline on this machine, so it can't be used: {message}")]
    SelfTest {
        /// What happened instead.
        message: String,
    },
}

/// A component can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ComponentError {
    /// There are no bytes.
    #[error("the file is empty; a handler is a WebAssembly component")]
    Empty,
    /// It is text.
    #[error("the file is text, not a binary component; build it, or turn WAT into a binary with `wasm-tools parse`")]
    Text,
    /// It ends too early.
    #[error("the component is cut off after {bytes} bytes; copy it again, whole")]
    Truncated {
        /// How many bytes there are.
        bytes: usize,
    },
    /// It is a core module.
    #[error(
        "the file is a core WebAssembly module, not a component; build it for wasm32-wasip2, or link it with \
         wasm-component-ld"
    )]
    CoreModule,
    /// It is over the limit.
    #[error("the component is {bytes} bytes long; [sandbox] component_max_bytes allows {max_bytes}")]
    TooLarge {
        /// How long it is.
        bytes: usize,
        /// How long it may be.
        max_bytes: usize,
    },
    /// It is not what its digest says.
    #[error("the component has the digest {found}, not {expected}; store it again")]
    DigestMismatch {
        /// What was asked for.
        expected: Digest,
        /// What is there.
        found: Digest,
    },
    /// It is no handler.
    #[error("the component is no handler of the world leasehold:job/handler@0.1.0: {message}")]
    WrongWorld {
        /// What is missing or has another type.
        message: String,
    },
    /// It imports what its handler was not granted.
    #[error("the component imports what its handler was not granted: {}", list(needs))]
    NotGranted {
        /// Each import, with the line of configuration that grants it.
        needs: Vec<Need>,
    },
    /// It imports what can't be granted.
    #[error("the component imports what no handler can be granted: {}; the host offers {offered}", imports.join(", "))]
    UnknownImport {
        /// The imports.
        imports: Vec<String>,
        /// What there is.
        offered: &'static str,
    },
    /// It is not valid.
    #[error("the component is not valid: {message}")]
    Invalid {
        /// What is wrong, and where.
        message: String,
    },
    /// It can't be instantiated.
    #[error("the component can't be instantiated: {message}")]
    StartFailed {
        /// What happened.
        message: String,
    },
    /// It begins with more memory or tables than it may have.
    #[error(
        "the component needs more memory or tables than its handler may have: {message}; raise memory_max_bytes \
             in its limits (or [sandbox]), or build it smaller"
    )]
    TooMuchMemory {
        /// How much.
        message: String,
    },
    /// The host could not do its part; nothing is wrong with the component as far as is known.
    #[error("the component could not be prepared: {message}")]
    Host {
        /// What went wrong.
        message: String,
    },
}

impl ComponentError {
    /// A stable name for programs.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Empty => "component_empty",
            Self::Text => "component_text",
            Self::Truncated { .. } => "component_truncated",
            Self::CoreModule => "component_core_module",
            Self::TooLarge { .. } => "component_too_large",
            Self::DigestMismatch { .. } => "component_digest_mismatch",
            Self::WrongWorld { .. } => "component_wrong_world",
            Self::NotGranted { .. } => "component_not_granted",
            Self::UnknownImport { .. } => "component_unknown_import",
            Self::Invalid { .. } => "component_invalid",
            Self::StartFailed { .. } => "component_start_failed",
            Self::TooMuchMemory { .. } => "component_too_much_memory",
            Self::Host { .. } => "component_not_prepared",
        }
    }
}

fn list(needs: &[Need]) -> String {
    needs.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}
