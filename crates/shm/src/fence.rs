//! A pair of fences of unequal cost, for protocols of the form "store mine, then look at yours" on
//! both sides.
//!
//! Two processes that each store a word and then load the other's must not both miss: that takes a
//! full fence on both sides, some twenty nanoseconds each. Where one side is rare (someone is about
//! to sleep) and the other is not (someone arrives), Linux can run the fence of the frequent side
//! from the rare one: membarrier(2) interrupts every processor that runs a registered process and
//! has it execute a full fence there and then.
//!
//! So a frequent side calls [`light`], which costs nothing once [`register`] has succeeded in its
//! process, and a rare side calls [`heavy`]. A process that could not register pays for a full
//! fence in [`light`] itself: every process decides for itself and nobody has to know about anybody
//! else. Where the system refuses membarrier to the rare side, but not to the frequent one, a
//! sleeper can miss an arrival: whoever sleeps bounds its sleep (see [`heavy`]).

use crate::sync::{AtomicBool, Ordering, fence};
use core::sync::atomic::compiler_fence;

/// From linux/membarrier.h.
const GLOBAL_EXPEDITED: libc::c_int = 1 << 1;
const REGISTER_GLOBAL_EXPEDITED: libc::c_int = 1 << 2;

/// Whether others' [`heavy`] fences reach this process.
static REGISTERED: AtomicBool = AtomicBool::new(false);

fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: the call takes three integers and touches no memory of this process.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

/// Has the heavy fences of other processes reach this one. Called early, any number of times; tells
/// whether the system allows it.
///
/// ```
/// // Either way the fences are sound.
/// let _ = shm::fence::register();
/// shm::fence::light();
/// ```
pub fn register() -> bool {
    if !REGISTERED.load(Ordering::Relaxed) && membarrier(REGISTER_GLOBAL_EXPEDITED) {
        // Relaxed: from the system call's return on, a light fence of this process may be light.
        REGISTERED.store(true, Ordering::Relaxed);
    }
    REGISTERED.load(Ordering::Relaxed)
}

/// The frequent side's fence: between its store and its look.
#[inline]
pub fn light() {
    if REGISTERED.load(Ordering::Relaxed) {
        // Partner: `heavy`, which makes the processor do the rest when it matters.
        compiler_fence(Ordering::SeqCst);
    } else {
        fence(Ordering::SeqCst);
    }
}

/// The rare side's fence: between its store and its look. False when the system refuses it, so that
/// a frequent side in a process with other rights may be missed: look again after a bounded time.
pub fn heavy() -> bool {
    // The own processor's part; the kernel's call has one too, but a refused one need not.
    fence(Ordering::SeqCst);
    membarrier(GLOBAL_EXPEDITED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::AtomicU64;

    /// Store buffering with one light side: the outcome in which both miss never shows.
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
