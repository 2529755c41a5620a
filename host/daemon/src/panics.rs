//! What a panic does: it ends the process, since a broken invariant must not go on. What was answered is durable, and the
//! leases bring the jobs back. The exceptions are work on others' data that is caught on purpose, and the compiler's own
//! threads, where a panic is the component's failure.

use std::{
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook},
    thread,
};

thread_local! {
    static CAUGHT_HERE: Cell<bool> = const { Cell::new(false) };
}

/// The threads whose panics end the process: those that the queue depends on.
const VITAL_THREADS: [&str; 3] = ["main", "leasehold-control", "leasehold-writer"];

/// Ends the process at a panic of a vital thread that nobody catches on purpose.
pub(crate) fn abort_on_panic() {
    let report = take_hook();
    set_hook(Box::new(move |panic| {
        if CAUGHT_HERE.get() {
            // The work is on others' data, of which a panic's text may hold a part: only its place is told.
            tracing::error!(at = panic.location().map(ToString::to_string), "a panic was caught");
            return;
        }
        report(panic);
        let is_vital = thread::current().name().is_some_and(|name| VITAL_THREADS.contains(&name));
        if is_vital {
            std::process::abort();
        }
    }));
}

/// Runs work whose panic is an answer; nothing comes back then.
pub(crate) fn caught<T>(work: impl FnOnce() -> T) -> Option<T> {
    let before = CAUGHT_HERE.replace(true);
    let answer = catch_unwind(AssertUnwindSafe(work)).ok();
    CAUGHT_HERE.set(before);
    answer
}

#[cfg(test)]
mod tests {
    #[test]
    fn q11_a_panic_that_is_caught_is_no_answer_and_ends_nothing() {
        assert_eq!(super::caught(|| 7), Some(7));
        assert_eq!(super::caught(|| -> i32 { panic!("on purpose") }), None);
    }
}
