//! A handler whose instantiation never ends: `_initialize` is what a component runs before anything else can be called.

use leasehold_guest::{Failure, Job, Raw, Success};

#[leasehold_guest::handler]
fn handle(_job: Job<Raw>) -> Result<Success, Failure> {
    Ok(Success::done())
}

/// Spins for ever.
// The symbol's name is what makes it run at instantiation; nothing else in this component has it.
#[cfg(target_arch = "wasm32")]
#[allow(unsafe_code)]
#[unsafe(no_mangle)]
extern "C" fn _initialize() {
    let mut turns = 0_u64;
    loop {
        turns = std::hint::black_box(turns.wrapping_add(1));
    }
}
