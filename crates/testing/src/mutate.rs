//! Damage of bytes and of shared memory.

use std::sync::atomic::{AtomicBool, Ordering};

/// Words of any bits, of which a third are small. A generator after Marsaglia's xorshift.
pub fn noise(seed: u64) -> impl Iterator<Item = u64> {
    let mut state = seed | 1;
    std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        if state.is_multiple_of(3) { state >> (state % 64) } else { state }
    })
}

/// Runs `body` while a thread overwrites shared words again and again: `store` writes a value to the
/// word of an index below `words`.
///
/// # Panics
///
/// Panics if `body` panics.
pub fn while_overwritten<R>(
    words: usize,
    store: impl Fn(usize, u64) + Sync,
    body: impl FnOnce() -> R,
) -> R {
    /// Ends the thread, also when the body panics.
    struct Done<'a>(&'a AtomicBool);
    impl Drop for Done<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut noise = noise(0x9e37_79b9_7f4a_7c15);
            while !done.load(Ordering::Relaxed) {
                (0..words).zip(&mut noise).for_each(|(index, value)| store(index, value));
                std::thread::yield_now();
            }
        });
        let _done = Done(&done);
        body()
    })
}
