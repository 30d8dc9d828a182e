//! Unpredictable bytes from the operating system.

use std::io;

/// Returns `N` random bytes. Uses no descriptor, so it works when the descriptor table is full.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// assert_ne!(shm::random::bytes::<16>()?, shm::random::bytes::<16>()?);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Returns the error of getrandom(2).
pub fn bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)?;
    Ok(bytes)
}
