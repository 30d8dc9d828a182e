//! A pair of fences of unequal cost, for protocols in which both sides store one word and then load
//! the other side's.
//!
//! Two processes that each store a word and then load the other's must not both miss. That takes a
//! full fence on both sides, at about twenty nanoseconds each. Where one side is rare (a thread is
//! about to sleep) and the other is common (a message arrives), Linux can execute the common side's
//! fence on behalf of the rare side: membarrier(2) interrupts every processor that runs a
//! registered process and makes it execute a full fence at that moment.
//!
//! The common side therefore calls [`light`], which costs nothing once [`register`] has succeeded
//! in its process, and the rare side calls [`heavy`]. A process that could not register pays for a
//! full fence in [`light`] itself, so processes need no knowledge of each other. Where the system
//! refuses membarrier to the rare side but not to the common one, a sleeper can miss an arrival;
//! such a sleeper limits its sleep (see [`heavy`]).

use crate::sync::{AtomicBool, Ordering, fence};
use core::sync::atomic::compiler_fence;

/// From linux/membarrier.h.
const GLOBAL_EXPEDITED: libc::c_int = 1 << 1;
const REGISTER_GLOBAL_EXPEDITED: libc::c_int = 1 << 2;

/// Set when [`heavy`] fences of other processes take effect in this process.
static REGISTERED: AtomicBool = AtomicBool::new(false);

fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: the call takes three integers and touches no memory of this process.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

/// Registers this process for the heavy fences of other processes. May be called any number of
/// times; returns whether the system allows it.
///
/// ```
/// // Either way the fences are sound.
/// let _ = shm::fence::register();
/// shm::fence::light();
/// ```
pub fn register() -> bool {
    if !REGISTERED.load(Ordering::Relaxed) && membarrier(REGISTER_GLOBAL_EXPEDITED) {
        // Relaxed: once the system call has returned, light fences of this process are safe, and a
        // thread that reads the old value only executes a full fence.
        REGISTERED.store(true, Ordering::Relaxed);
    }
    REGISTERED.load(Ordering::Relaxed)
}

/// Fence of the common side, between its store and its load.
#[inline]
pub fn light() {
    if REGISTERED.load(Ordering::Relaxed) {
        // Pairs with `heavy`, which makes this processor execute a full fence when it matters.
        compiler_fence(Ordering::SeqCst);
    } else {
        fence(Ordering::SeqCst);
    }
}

/// Fence of the rare side, between its store and its load. Returns false when the system refuses
/// it; a store of the common side may then be missed, so recheck after a bounded time.
pub fn heavy() -> bool {
    // This processor's own fence. A successful call implies one, a refused call need not.
    fence(Ordering::SeqCst);
    membarrier(GLOBAL_EXPEDITED)
}

/// Marks the point between a sequentially consistent read-modify-write and a sequentially
/// consistent load of another word, where no fence is needed.
///
/// The function does nothing: in the total order of such accesses the read-modify-write comes
/// first, and no processor that Rust supports lets the load overtake it. It exists because loom
/// treats sequentially consistent accesses as acquire and release; its tests place a fence here.
#[inline(always)]
pub fn after_exchange() {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::AtomicU64;

    /// Store-buffering litmus test with one light side: never do both sides miss.
    #[test]
    fn a_light_and_a_heavy_side_never_both_miss() {
        register();
        const ROUNDS: usize = 2000;
        let words: Vec<[AtomicU64; 2]> =
            (0..ROUNDS).map(|_| [AtomicU64::new(0), AtomicU64::new(0)]).collect();
        let turn = AtomicU64::new(0);
        let (light_saw, heavy_saw) = std::thread::scope(|scope| {
            let light_side = scope.spawn(|| {
                let mut saw = Vec::with_capacity(ROUNDS);
                for (round, [mine, theirs]) in words.iter().enumerate() {
                    while turn.load(Ordering::Acquire) <= round as u64 {
                        std::thread::yield_now();
                    }
                    mine.store(1, Ordering::Relaxed);
                    light();
                    saw.push(theirs.load(Ordering::Relaxed));
                }
                saw
            });
            let mut saw = Vec::with_capacity(ROUNDS);
            for (round, [theirs, mine]) in words.iter().enumerate() {
                turn.store(round as u64 + 1, Ordering::Release);
                mine.store(1, Ordering::Relaxed);
                heavy();
                saw.push(theirs.load(Ordering::Relaxed));
            }
            (light_side.join().expect("the light side ends"), saw)
        });
        assert!(light_saw.iter().zip(&heavy_saw).all(|(light, heavy)| light + heavy > 0));
    }
}
