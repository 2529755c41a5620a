//! Work that reads, hashes or parses a lot, on threads that may block: the one thread that serves requests and extends
//! leases never does it.

/// Runs work on a thread that may block. A panic of the work is the caller's.
pub(crate) async fn off_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime ends, and with it whoever waits here.
            Err(_) => std::future::pending().await,
        },
    }
}
