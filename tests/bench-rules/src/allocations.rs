//! The allocator of this program: the system's, and a count for each thread.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    // A constant without a destructor: looking at it allocates nothing, at any time.
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

/// How often the calling thread has allocated so far, growing what it has included.
pub(crate) fn of_thread() -> u64 {
    COUNT.get()
}

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: every call goes to the system's allocator as it came.
#[expect(unsafe_code, reason = "an allocator is unsafe by its interface")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: the caller's promise is the system's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: as above; the block came from the system's allocator.
        unsafe { System.realloc(block, layout, size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn an_allocation_is_counted_and_a_look_is_none() {
        let before = super::of_thread();
        assert_eq!(super::of_thread(), before);
        drop(std::hint::black_box(Box::new(1_u64)));
        assert_eq!(super::of_thread(), before + 1);
    }
}
