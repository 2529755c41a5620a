//! The threads that guests and the compiler run on, both at a lower priority than the daemon's own, so that neither
//! delays heartbeats or the writer. The compiler leaves half of the cores to the jobs.

use std::{io, num::NonZero, sync::mpsc, thread};

use rayon::{ThreadPool, ThreadPoolBuilder};
use tokio::{runtime, sync::oneshot};

use crate::SandboxError;

/// Guests give way to everything else that the daemon does.
const GUEST_NICE: i32 = 10;
/// The compiler gives way to guests too.
const COMPILER_NICE: i32 = 15;

/// The runtime that guests run on.
pub(crate) struct GuestRuntime {
    runtime: Option<runtime::Runtime>,
    handle: runtime::Handle,
}

impl GuestRuntime {
    pub(crate) fn new() -> Result<Self, SandboxError> {
        let runtime = runtime::Builder::new_multi_thread()
            .worker_threads(cores())
            // A guest that is started, or woken by another thread, is looked at whenever one gives way. Left to itself the
            // runtime would let some sixty of them run before.
            .global_queue_interval(1)
            .thread_name("leasehold-guest")
            .on_thread_start(|| lower_priority(GUEST_NICE))
            .enable_all()
            .build()
            .map_err(|source| SandboxError::Threads { what: "the guests' runtime", source })?;
        let handle = runtime.handle().clone();
        Ok(Self { runtime: Some(runtime), handle })
    }

    pub(crate) fn handle(&self) -> &runtime::Handle {
        &self.handle
    }
}

impl Drop for GuestRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Waiting here could block a thread of another runtime.
            runtime.shutdown_background();
        }
    }
}

type Work = Box<dyn FnOnce() + Send>;

/// Compiles on threads of its own, one component after the other.
#[derive(Clone)]
pub(crate) struct Compiler(mpsc::Sender<Work>);

impl Compiler {
    pub(crate) fn start() -> Result<Self, SandboxError> {
        let failed = |source| SandboxError::Threads { what: "the compiler's threads", source };
        let pool = compile_pool().map_err(failed)?;
        let (sender, receiver) = mpsc::channel::<Work>();
        thread::Builder::new()
            .name("leasehold-compile".into())
            .spawn(move || {
                lower_priority(COMPILER_NICE);
                while let Ok(work) = receiver.recv() {
                    pool.install(work);
                }
            })
            .map_err(failed)?;
        Ok(Self(sender))
    }

    /// Runs work on those threads; nothing comes back when the work panicked.
    pub(crate) async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let (sender, receiver) = oneshot::channel();
        let work = move || {
            // A defect of the compiler on one component must not end the thread for all others.
            if let Ok(value) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)) {
                let _ = sender.send(value);
            }
        };
        self.0.send(Box::new(work)).ok()?;
        receiver.await.ok()
    }
}

/// The threads among which the compiler shares out a component's functions. With one for each core a job would wait for
/// the scheduler to take the compiler off at each of its steps, which on Linux may be several milliseconds, whatever the
/// compiler's priority.
fn compile_pool() -> io::Result<ThreadPool> {
    ThreadPoolBuilder::new()
        .num_threads((cores() / 2).max(1))
        .thread_name(|_| "leasehold-compile".into())
        .start_handler(|_| lower_priority(COMPILER_NICE))
        .build()
        .map_err(io::Error::other)
}

fn cores() -> usize {
    thread::available_parallelism().map_or(2, NonZero::get)
}

fn lower_priority(nice: i32) {
    let thread = rustix::thread::gettid();
    // On Linux a priority set by thread id is that thread's own. Failing costs latency, not correctness.
    if let Err(error) = rustix::process::setpriority_process(Some(thread), nice) {
        tracing::warn!(%error, nice, "the thread's priority could not be lowered; busy guests may delay the daemon");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nice() -> i32 {
        rustix::process::getpriority_process(Some(rustix::thread::gettid())).unwrap()
    }

    #[tokio::test]
    async fn h5_guests_and_the_compiler_give_way_and_nobody_else_does() {
        let before = nice();
        let guests = GuestRuntime::new().unwrap();
        assert_eq!(guests.handle().spawn(async { nice() }).await.unwrap(), GUEST_NICE);
        let compiler = Compiler::start().unwrap();
        assert_eq!(compiler.run(nice).await, Some(COMPILER_NICE));
        assert_eq!(nice(), before);
    }

    #[tokio::test]
    async fn h4_the_compiler_leaves_half_of_the_cores_alone() {
        let compiler = Compiler::start().unwrap();
        let threads = compiler.run(rayon::current_num_threads).await.unwrap();
        assert!(threads == 1 || threads * 2 <= cores(), "{threads} of {}", cores());
    }

    #[tokio::test]
    async fn h3_a_panic_of_the_compiler_ends_one_component_alone() {
        let compiler = Compiler::start().unwrap();
        assert_eq!(compiler.run(|| -> i32 { panic!("a defect of the compiler") }).await, None);
        assert_eq!(compiler.run(|| 1).await, Some(1));
    }
}
