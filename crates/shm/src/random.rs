//! Bytes that nobody can guess.

use std::io;

/// So many random bytes, from the system. It takes no descriptor, of which there may be none left.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// assert_ne!(shm::random::bytes::<16>()?, shm::random::bytes::<16>()?);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// When the system has none to give.
pub fn bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)?;
    Ok(bytes)
}
