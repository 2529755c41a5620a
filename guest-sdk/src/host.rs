//! The one place where this crate chooses what it talks to: the component's imports, or natively the mock host. Both offer
//! the same functions under these types. It never decides anything.

#[cfg(target_arch = "wasm32")]
pub(crate) use crate::component::imports::{
    Bucket, OpenStep, annotate, begin, enqueue, log, now_ms, open_store, random_bytes, send, setting, sleep_ms,
};
#[cfg(not(target_arch = "wasm32"))]
pub(crate) use crate::mock::imports::{
    Bucket, OpenStep, annotate, begin, enqueue, log, now_ms, open_store, random_bytes, send, setting, sleep_ms,
};

/// How the host answered the beginning of a step.
pub(crate) enum Begun {
    /// The record is durable: the effect runs now.
    Fresh(OpenStep),
    /// An earlier run may have applied the effect.
    InDoubt(OpenStep),
    /// The effect was applied before, with this stored result.
    Applied(Vec<u8>),
}
