//! Bytes that a connection holds while neither end reads it.
//!
//! Connections between ranks are to hold a message of 1 MiB at both ends: at the sender's, so that a
//! start hands over all of it; at the receiver's, so that a rank that computes stops no sender. The
//! ranks agree on the least that their systems grant.

use crate::error::{Error, refused, system};
use rustix::net::{AddressFamily, SocketType, socket, sockopt};
use shm::socket::set_low_water;
use std::os::fd::{AsFd, BorrowedFd};

/// Bytes that each connection holds: the system begins with 64 KiB for what has arrived, and with
/// more for what has not been sent, which holds the headers.
pub(super) const LEAST: u64 = 65 << 10;

/// Returns true if the system grants buffers for what has not been sent that hold so many bytes. A
/// buffer of a fixed size grows no more, so a smaller one would slow down later messages.
fn grants_send_buffers(bytes: u64) -> Result<bool, Error> {
    let what = "size the buffers of connections";
    let probe = socket(AddressFamily::INET, SocketType::STREAM, None).map_err(refused(what))?;
    set_send_buffer(probe.as_fd(), bytes)?;
    let granted = sockopt::socket_send_buffer_size(&probe).map_err(refused(what))?;
    // The buffer also counts the system's own records of what it has.
    Ok(granted as u64 >= bytes + bytes / 8)
}

fn set_send_buffer(socket: BorrowedFd<'_>, bytes: u64) -> Result<(), Error> {
    sockopt::set_socket_send_buffer_size(socket, bytes as usize)
        .map_err(refused("size the buffer of a connection"))
}

/// Makes connections hold at least `wanted` bytes in each direction, and returns how many they
/// hold: these, or as many as all connections where the system does not grant them.
pub(super) fn enlarge<'a>(
    sockets: impl Iterator<Item = BorrowedFd<'a>>,
    wanted: u64,
) -> Result<u64, Error> {
    let Some(low_water) = i32::try_from(wanted).ok().filter(|_| wanted > LEAST) else {
        return Ok(LEAST);
    };
    if !grants_send_buffers(wanted)? {
        return Ok(LEAST);
    }
    let mut are_large = true;
    for socket in sockets {
        // A size of the other buffer would be limited to less than what this enlarges it to, and
        // would fix it.
        let set = |bytes| {
            set_low_water(socket, bytes)
                .map_err(|error| system("size a connection's buffer", error))
        };
        are_large &= set(low_water)? == low_water;
        set(1)?;
        set_send_buffer(socket, wanted)?;
    }
    Ok(if are_large { wanted } else { LEAST })
}
