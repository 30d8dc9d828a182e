//! Transfers between sockets and a segment shared with an untrusted process.
//!
//! The kernel copies the bytes. A process that changes them meanwhile corrupts them and nothing
//! else, as with [`word_copy`](crate::word_copy).

use crate::segment::{Offset, Segment};
use std::io::{Error, ErrorKind, IoSlice, Result};
use std::os::fd::{AsRawFd, BorrowedFd};

/// Largest number of slices around the segment's bytes.
pub const MAX_SLICES: usize = 16;

/// Sends the first slices, then bytes of the segment, then the second slices, in one call that does
/// not block. Returns the number of bytes that the system has taken.
///
/// # Errors
/// Those of `sendmsg`, and `InvalidInput` when the range leaves the segment or there are more than
/// [`MAX_SLICES`] slices.
///
/// ```
/// use shm::segment::{Backing, Offset, Segment};
/// use shm::{socket, word_copy};
/// use std::io::{IoSlice, Read};
/// use std::os::fd::AsFd;
///
/// let (first, mut second) = std::os::unix::net::UnixStream::pair()?;
/// let segment = Segment::create(4096, Backing::Memory)?;
/// word_copy::store(&segment, Offset(100), b"wind")?;
/// let head = [IoSlice::new(b"trade ")];
/// let tail = [IoSlice::new(b"s")];
/// assert_eq!(socket::send(first.as_fd(), [&head, &tail], &segment, Offset(100), 4)?, 11);
/// let mut bytes = [0; 11];
/// second.read_exact(&mut bytes)?;
/// assert_eq!(&bytes, b"trade winds");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn send(
    socket: BorrowedFd<'_>,
    [head, tail]: [&[IoSlice<'_>]; 2],
    segment: &Segment,
    at: Offset,
    length: u64,
) -> Result<usize> {
    let bytes = segment.bytes_ptr(at, length).map_err(outside)?;
    let empty = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
    let mut vectors = [empty; MAX_SLICES + 1];
    let total = head.len() + 1 + tail.len();
    if total > vectors.len() {
        return Err(ErrorKind::InvalidInput.into());
    }
    let vector_of = |slice: &IoSlice<'_>| libc::iovec {
        iov_base: slice.as_ptr().cast_mut().cast(),
        iov_len: slice.len(),
    };
    let payload = libc::iovec { iov_base: bytes.cast(), iov_len: length as usize };
    let all = head.iter().map(vector_of).chain([payload]).chain(tail.iter().map(vector_of));
    vectors.iter_mut().zip(all).for_each(|(vector, found)| *vector = found);
    // SAFETY: a message header of zeros is valid: no address, no control data.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = vectors.as_mut_ptr();
    message.msg_iovlen = total as _;
    // SAFETY: the system only reads the vectors, which outlive the call: slices borrowed by the
    // caller, and a range that was checked to lie in the mapping. No reference to the segment's
    // bytes exists, so another process may change them meanwhile.
    let sent = unsafe {
        libc::sendmsg(
            socket.as_raw_fd(),
            &raw const message,
            libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
        )
    };
    count(sent)
}

/// Receives at most `length` bytes into the segment, without blocking. Returns the number of bytes,
/// 0 at the end of the stream.
///
/// # Errors
/// Those of `recv`, and `InvalidInput` when the range leaves the segment.
pub fn receive(
    socket: BorrowedFd<'_>,
    segment: &Segment,
    at: Offset,
    length: u64,
) -> Result<usize> {
    let bytes = segment.bytes_ptr(at, length).map_err(outside)?;
    // SAFETY: the range was checked to lie in the mapping, which outlives the call. No reference to
    // its bytes exists, so another process may access them meanwhile.
    let received = unsafe {
        libc::recv(socket.as_raw_fd(), bytes.cast(), length as usize, libc::MSG_DONTWAIT)
    };
    count(received)
}

fn count(result: isize) -> Result<usize> {
    usize::try_from(result).map_err(|_| Error::last_os_error())
}

fn outside(error: crate::segment::SegmentError) -> Error {
    Error::new(ErrorKind::InvalidInput, error.to_string())
}

/// Sets the number of bytes from which on a socket counts as readable (SO_RCVLOWAT), and returns the
/// number that the system has set. TCP enlarges the buffer of what has arrived so that it holds them.
///
/// # Errors
/// Those of `setsockopt` and `getsockopt`.
///
/// ```
/// use std::net::{TcpListener, TcpStream};
/// use std::os::fd::AsFd;
///
/// let listener = TcpListener::bind("127.0.0.1:0")?;
/// let stream = TcpStream::connect(listener.local_addr()?)?;
/// assert_eq!(shm::socket::set_low_water(stream.as_fd(), 5000)?, 5000);
/// assert_eq!(shm::socket::set_low_water(stream.as_fd(), 1)?, 1);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn set_low_water(socket: BorrowedFd<'_>, bytes: i32) -> Result<i32> {
    let length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the option takes an int, which lives during the call.
    let set = unsafe {
        let value = (&raw const bytes).cast();
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_RCVLOWAT, value, length)
    };
    if set != 0 {
        return Err(Error::last_os_error());
    }
    let mut found: libc::c_int = 0;
    let mut found_length = length;
    // SAFETY: the option is an int; both places live during the call, and the second one states the
    // size of the first.
    let got = unsafe {
        let value = (&raw mut found).cast();
        let length = &raw mut found_length;
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_RCVLOWAT, value, length)
    };
    if got != 0 {
        return Err(Error::last_os_error());
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::Backing;
    use crate::word_copy;
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn bytes_arrive_where_they_belong() {
        let (mut first, second) = UnixStream::pair().expect("sockets");
        let segment = Segment::create(4096, Backing::Memory).expect("a page");
        let nothing =
            receive(second.as_fd(), &segment, Offset(7), 4).expect_err("it does not block");
        assert_eq!(nothing.kind(), ErrorKind::WouldBlock);
        first.write_all(b"passat").expect("the socket has space");
        assert_eq!(receive(second.as_fd(), &segment, Offset(7), 4).expect("it is there"), 4);
        let mut bytes = [0; 6];
        word_copy::load(&segment, Offset(6), &mut bytes).expect("inside");
        assert_eq!(&bytes, b"\0pass\0");
    }

    #[test]
    fn ranges_outside_the_segment_are_refused() {
        let (first, second) = UnixStream::pair().expect("sockets");
        let segment = Segment::create(4096, Backing::Memory).expect("a page");
        for (at, length) in [(4090, 7), (u64::MAX, 2)] {
            let at = Offset(at);
            let sent = send(first.as_fd(), [&[]; 2], &segment, at, length).expect_err("outside");
            let received = receive(second.as_fd(), &segment, at, length).expect_err("outside");
            assert_eq!([sent.kind(), received.kind()], [ErrorKind::InvalidInput; 2]);
        }
        let slices = [IoSlice::new(b""); MAX_SLICES];
        let sent = send(first.as_fd(), [&slices, &slices[..1]], &segment, Offset(0), 1);
        assert!(sent.is_err(), "too many slices");
    }
}
