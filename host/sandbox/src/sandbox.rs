//! The sandbox as the daemon sees it: one engine, its threads, and the four things that can be done with a component.

use std::{
    path::PathBuf,
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

use leasehold_domain::{
    Digest, HandlerName,
    grants::{AttemptLimits, Grants},
};
use tokio::sync::{Mutex, oneshot};
use wasmtime::{Engine, Instance, Module, Store, Trap, UpdateDeadline};

use crate::{
    AttemptHost, AttemptRequest, ComponentError, Inspection, Prepared, RunningGuest, SandboxError,
    compiled::CompiledFiles,
    engine::{self, PoolLimits},
    inspect, invoke, prepare,
    stop::{StopSwitch, Stopper},
    threads::{Compiler, GuestRuntime},
};

/// How long the self-test lets a loop run, and how long it waits for its end.
const SELF_TEST_RUN: Duration = Duration::from_millis(10);
const SELF_TEST_PATIENCE: Duration = Duration::from_secs(20);
/// A core module whose function `f` loops for ever.
const ENDLESS_LOOP: &[u8] = b"\0asm\x01\0\0\0\
    \x01\x04\x01\x60\0\0\
    \x03\x02\x01\0\
    \x07\x05\x01\x01f\0\0\
    \x0a\x09\x01\x07\0\x03\x40\x0c\0\x0b\x0b";

/// The numbers that the sandbox is built from.
#[derive(Debug, Clone)]
pub struct SandboxConfig {
    /// How many guests run at once.
    pub slots: usize,
    /// The largest memory that any guest may have.
    pub memory_max_bytes: usize,
    /// The stack of a guest's own code.
    pub stack_max_bytes: usize,
    /// The largest component.
    pub component_max_bytes: usize,
    /// Where compiled components are kept.
    pub compiled_directory: PathBuf,
}

/// Runs components. Cloning it is cheap.
#[derive(Clone)]
pub struct Sandbox(Arc<Parts>);

struct Parts {
    engine: Engine,
    limits: PoolLimits,
    component_max_bytes: usize,
    files: CompiledFiles,
    guests: GuestRuntime,
    compiler: Compiler,
    /// Components are tried out one at a time, so that this never takes more than the pool's spare places.
    trying_out: Mutex<()>,
}

impl std::fmt::Debug for Sandbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sandbox({})", self.0.limits)
    }
}

impl Sandbox {
    /// Starts the engine and its threads and proves that a guest is stopped at its deadline. It blocks for as long as
    /// that takes, some milliseconds.
    pub fn new(config: SandboxConfig) -> Result<Self, SandboxError> {
        let limits = PoolLimits::of(&config)?;
        let engine = engine::start(&limits)?;
        let files = CompiledFiles::open(config.compiled_directory, &engine)?;
        let guests = GuestRuntime::new()?;
        let compiler = Compiler::start()?;
        self_test(&engine, &guests, &compiler)?;
        Ok(Self(Arc::new(Parts {
            engine,
            limits,
            component_max_bytes: config.component_max_bytes,
            files,
            guests,
            compiler,
            trying_out: Mutex::new(()),
        })))
    }

    /// The pool's limits on one line.
    pub fn describe(&self) -> String {
        self.0.limits.to_string()
    }

    /// How many guests can run at once.
    pub fn slots(&self) -> usize {
        self.0.limits.slots()
    }

    /// Looks into a component without compiling it.
    pub fn inspect(&self, bytes: &[u8]) -> Result<Inspection, ComponentError> {
        if bytes.len() > self.0.component_max_bytes {
            return Err(ComponentError::TooLarge { bytes: bytes.len(), max_bytes: self.0.component_max_bytes });
        }
        inspect(bytes)
    }

    /// Checks, compiles (or loads the compiled file), links with exactly the grants of the handler, and instantiates once.
    /// None of it is done on the caller's thread.
    pub async fn prepare(
        &self,
        handler: &HandlerName,
        digest: Digest,
        bytes: &[u8],
        grants: &Grants,
        limits: &AttemptLimits,
    ) -> Result<Prepared, ComponentError> {
        let (engine, files) = (self.0.engine.clone(), self.0.files.clone());
        let (handler, bytes, grants, limits) = (handler.clone(), bytes.to_vec(), grants.clone(), limits.clone());
        let component_max_bytes = self.0.component_max_bytes;
        let work = move || {
            prepare::check(&handler, digest, &bytes, &grants, component_max_bytes)?;
            let component = prepare::compile(&engine, &files, digest, &bytes)?;
            prepare::link(&component, digest, &grants, &limits)
        };
        let gone = |what: &str| ComponentError::Host { message: format!("{what} failed; the daemon's log says more") };
        let prepared = self.0.compiler.run(work).await.ok_or_else(|| gone("the compiler"))??;
        let _one_at_a_time = self.0.trying_out.lock().await;
        let trial = self.0.guests.handle().spawn(prepare::try_out(self.0.engine.clone(), prepared.clone()));
        trial.await.map_err(|_| gone("the trial"))??;
        Ok(prepared)
    }

    /// Starts one attempt on the guests' threads.
    pub fn start(&self, prepared: &Prepared, attempt: AttemptRequest, host: Arc<dyn AttemptHost>) -> RunningGuest {
        let stop = Arc::new(StopSwitch::default());
        let (sender, receiver) = oneshot::channel();
        let run = invoke::run(self.0.engine.clone(), prepared.clone(), attempt, host, stop.clone());
        self.0.guests.handle().spawn(async move {
            // Whoever let go of the report has stopped the guest by that.
            let _ = sender.send(run.await);
        });
        RunningGuest::new(Stopper(stop), receiver)
    }
}

/// Runs an endless loop against a deadline. The caller may be on another runtime's thread, so it waits on a channel.
fn self_test(engine: &Engine, guests: &GuestRuntime, compiler: &Compiler) -> Result<(), SandboxError> {
    let failed = |message: &str| SandboxError::SelfTest { message: message.to_owned() };
    let (sender, receiver) = mpsc::channel();
    let (engine, compiler) = (engine.clone(), compiler.clone());
    guests.handle().spawn(async move {
        let compiling = engine.clone();
        let module = compiler.run(move || Module::from_binary(&compiling, ENDLESS_LOOP)).await;
        let ended = match module {
            Some(Ok(module)) => run_endless_loop(&engine, &module).await,
            Some(Err(error)) => Err(error),
            None => Err(wasmtime::Error::msg("the compiler failed")),
        };
        // Nobody listens any more when this took too long.
        let _ = sender.send(ended);
    });
    match receiver.recv_timeout(SELF_TEST_PATIENCE) {
        Ok(Err(error)) if matches!(error.downcast_ref::<Trap>(), Some(Trap::Interrupt)) => Ok(()),
        Ok(Err(error)) => Err(failed(&format!("{error:#}"))),
        Ok(Ok(())) => Err(failed("the loop ended by itself")),
        Err(_) => Err(failed("the loop was not stopped")),
    }
}

async fn run_endless_loop(engine: &Engine, module: &Module) -> wasmtime::Result<()> {
    let mut store = Store::new(engine, ());
    let deadline = Instant::now() + SELF_TEST_RUN;
    store.set_epoch_deadline(1);
    store.epoch_deadline_callback(move |_| {
        Ok(if Instant::now() >= deadline {
            UpdateDeadline::Interrupt
        } else {
            UpdateDeadline::YieldCustom(1, Box::pin(tokio::task::yield_now()))
        })
    });
    let instance = Instance::new_async(&mut store, module, &[]).await?;
    instance.get_typed_func::<(), ()>(&mut store, "f")?.call_async(&mut store, ()).await
}
