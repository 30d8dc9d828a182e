//! Names of programs that have published none.

use crate::error::system;
use crate::wire::NameError;

/// Beginning of the names of programs that have published none. It is no character of a name.
pub(crate) const PRIVATE: char = ':';

/// Beginning of the names of programs that stand for clients on other nodes; the node follows.
pub(crate) const REMOTE: &str = ":@";

/// Returns an unused name for the program of a client.
pub(crate) fn private_name() -> Result<String, NameError> {
    let random: [u8; 16] =
        shm::random::bytes().map_err(system("get random bytes from the system"))?;
    Ok(format!("{PRIVATE}{}.{:032x}", std::process::id(), u128::from_ne_bytes(random)))
}
