//! The acts that run into a limit. The optimiser is kept from seeing through them; none of them has another effect.

use std::{
    hint::black_box,
    sync::atomic::{AtomicU32, Ordering},
};

use leasehold_guest::log;

/// How much is allocated at a time.
const BLOCK_BYTES: usize = 1024 * 1024;

/// Spins for ever.
pub fn spin() -> ! {
    let mut turns = 0_u64;
    loop {
        turns = black_box(turns.wrapping_add(1));
    }
}

/// Allocates and touches memory until the host refuses, and says after how many MiB that was. When told to insist it
/// allocates once more in the way that can't fail softly, as ordinary Rust code does.
pub fn fill_memory(insist: bool) -> usize {
    let mut blocks: Vec<Vec<u8>> = Vec::with_capacity(8192);
    while blocks.len() < blocks.capacity() {
        let mut block = Vec::new();
        if block.try_reserve_exact(BLOCK_BYTES).is_err() {
            break;
        }
        block.resize(BLOCK_BYTES, 1);
        blocks.push(block);
    }
    if insist {
        black_box(vec![1_u8; BLOCK_BYTES]);
    }
    black_box(blocks).len()
}

/// Recurses until the stack ends: the engine's, or with wide frames the one in linear memory.
pub fn overflow_stack(wide: bool) -> u64 {
    if wide { descend_wide(0) } else { descend(0) }
}

#[inline(never)]
fn descend(depth: u64) -> u64 {
    if black_box(depth) == u64::MAX {
        return 0;
    }
    black_box(descend(depth + 1)) ^ depth
}

#[inline(never)]
fn descend_wide(depth: u64) -> u64 {
    let frame = black_box([depth; 512]);
    if frame[0] == u64::MAX {
        return 0;
    }
    black_box(descend_wide(depth + 1)) ^ frame[511]
}

/// Logs so many lines of that length.
pub fn flood(lines: u64, length: usize) {
    let line = "f".repeat(length);
    for _ in 0..lines {
        log::info(&line);
    }
}

/// Counts up in the instance's memory: more than 1 means that the instance has served another attempt.
pub fn count() -> u32 {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    COUNT.fetch_add(1, Ordering::Relaxed) + 1
}
