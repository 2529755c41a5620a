//! Where a handler's first allocations come from. An instance lives for one job, so that what most jobs need is taken one
//! after the other from a piece of memory that the instance has from its beginning. Growing its memory instead would have
//! the host change the protection of pages twice for each job, which stops every core for a moment. What goes beyond the
//! piece comes from the usual allocator, which grows the memory. It never takes memory back but from the last allocation.

// An allocator hands out raw memory.
#![allow(unsafe_code)]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::{Cell, UnsafeCell},
};

/// Enough for a job with a small payload, and little beside the memory that its code takes.
const ARENA_BYTES: usize = 256 << 10;

#[global_allocator]
static ALLOCATOR: ArenaFirst = ArenaFirst { arena: Arena(UnsafeCell::new([0; ARENA_BYTES])), used_bytes: Cell::new(0) };

#[repr(align(16))]
struct Arena(UnsafeCell<[u8; ARENA_BYTES]>);

struct ArenaFirst {
    arena: Arena,
    used_bytes: Cell<usize>,
}

// SAFETY: A component's instance has one thread.
unsafe impl Sync for ArenaFirst {}

impl ArenaFirst {
    fn start(&self) -> *mut u8 {
        self.arena.0.get().cast()
    }

    /// How far into the arena an address lies, if it does.
    fn offset(&self, address: *mut u8) -> Option<usize> {
        (address as usize).checked_sub(self.start() as usize).filter(|offset| *offset < ARENA_BYTES)
    }

    /// Takes the place from an offset on, if the arena is large enough.
    fn take(&self, offset: usize, size: usize) -> bool {
        let end = offset.checked_add(size).filter(|end| *end <= ARENA_BYTES);
        if let Some(end) = end {
            self.used_bytes.set(end);
        }
        end.is_some()
    }

    fn is_last(&self, offset: usize, size: usize) -> bool {
        offset + size == self.used_bytes.get()
    }
}

// SAFETY: Pieces of the arena do not overlap: each begins where the one before ended, rounded up to its alignment, and only
// the last one is given back or grows. The arena is aligned to 16 bytes, and what needs more goes to the system's allocator,
// which is asked for nothing that lies in the arena.
unsafe impl GlobalAlloc for ArenaFirst {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let offset = self.used_bytes.get().next_multiple_of(layout.align());
        if layout.align() <= 16 && self.take(offset, layout.size()) {
            return unsafe { self.start().add(offset) };
        }
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        match self.offset(address) {
            Some(offset) if self.is_last(offset, layout.size()) => self.used_bytes.set(offset),
            Some(_) => {}
            None => unsafe { System.dealloc(address, layout) },
        }
    }

    unsafe fn realloc(&self, address: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        match self.offset(address) {
            None => return unsafe { System.realloc(address, layout, size) },
            Some(offset) if self.is_last(offset, layout.size()) && self.take(offset, size) => return address,
            Some(_) => {}
        }
        let moved = unsafe { self.alloc(Layout::from_size_align_unchecked(size, layout.align())) };
        if !moved.is_null() {
            unsafe {
                std::ptr::copy_nonoverlapping(address, moved, layout.size().min(size));
                self.dealloc(address, layout);
            }
        }
        moved
    }
}
