//! Wire format of a message: a header, at most 1,024 bytes, at most 16 descriptors.

use super::error::{BrokerError, MAX_BYTES, MAX_DESCRIPTORS, system};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

/// "TWND": identifies messages of this protocol.
const MAGIC: u32 = u32::from_be_bytes(*b"TWND");
const VERSION: u16 = 1;
/// Magic number (4 bytes), version (2), number of descriptors (2), in the byte order of the machine
/// that both ends share.
const HEADER_BYTES: usize = 8;

/// Received message: bytes, and descriptors that this process now owns (close-on-exec).
#[derive(Debug)]
pub struct Message {
    /// The bytes, at most [`MAX_BYTES`].
    pub bytes: Vec<u8>,
    /// The descriptors, at most [`MAX_DESCRIPTORS`], in the order they were sent.
    pub descriptors: Vec<OwnedFd>,
}

pub(super) fn send(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> Result<(), BrokerError> {
    let count = u16::try_from(descriptors.len())
        .ok()
        .filter(|&count| usize::from(count) <= MAX_DESCRIPTORS);
    let (Some(count), true) = (count, bytes.len() <= MAX_BYTES) else {
        return Err(BrokerError::TooLarge { bytes: bytes.len(), descriptors: descriptors.len() });
    };
    let mut header = [0u8; HEADER_BYTES];
    header[..4].copy_from_slice(&MAGIC.to_ne_bytes());
    header[4..6].copy_from_slice(&VERSION.to_ne_bytes());
    header[6..].copy_from_slice(&count.to_ne_bytes());

    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if count != 0 && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(BrokerError::TooLarge { bytes: bytes.len(), descriptors: descriptors.len() });
    }
    let parts = [IoSlice::new(&header), IoSlice::new(bytes)];
    loop {
        // NOSIGNAL: a closed connection is reported as an error, without a SIGPIPE.
        match sendmsg(socket, &parts, &mut control, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            // A SEQPACKET socket sends a message whole or not at all.
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN | Errno::NOBUFS) => return Err(BrokerError::NotReading),
            Err(Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN) => {
                return Err(BrokerError::Closed);
            }
            Err(error) => return Err(system("send a message")(error)),
        }
    }
}

/// Receives a message; `None` if none waits.
pub(super) fn receive(socket: BorrowedFd<'_>) -> Result<Option<Message>, BrokerError> {
    let mut header = [0u8; HEADER_BYTES];
    let mut bytes = [0u8; MAX_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        let mut parts = [IoSliceMut::new(&mut header), IoSliceMut::new(&mut bytes)];
        match recvmsg(
            socket,
            &mut parts,
            &mut control,
            RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC,
        ) {
            Ok(received) => break received,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(None),
            Err(Errno::CONNRESET | Errno::NOTCONN) => return Err(BrokerError::Closed),
            Err(error) => return Err(system("receive a message")(error)),
        }
    };
    // Extracted first: if the message turns out to be malformed, dropping the vector closes its
    // descriptors.
    let descriptors: Vec<OwnedFd> = control
        .drain()
        .filter_map(|part| match part {
            RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
            _ => None,
        })
        .flatten()
        .collect();
    // Every message has a header, so zero bytes mean that the other side has closed.
    if received.bytes == 0 {
        return Err(BrokerError::Closed);
    }
    let expected = check_header(&header, received.bytes)?;
    if received.flags.contains(ReturnFlags::TRUNC) {
        return Err(BrokerError::Truncated { missing: "bytes", bytes: Vec::new() });
    }
    let bytes = bytes[..received.bytes.saturating_sub(HEADER_BYTES).min(MAX_BYTES)].to_vec();
    // The kernel drops descriptors that do not fit the control buffer or this process's table.
    if received.flags.contains(ReturnFlags::CTRUNC) || descriptors.len() != expected {
        return Err(BrokerError::Truncated { missing: "descriptors", bytes });
    }
    Ok(Some(Message { bytes, descriptors }))
}

/// Checks the header; returns the number of descriptors it announces.
fn check_header(header: &[u8; HEADER_BYTES], received: usize) -> Result<usize, BrokerError> {
    let [m0, m1, m2, m3, v0, v1, c0, c1] = *header;
    let magic = u32::from_ne_bytes([m0, m1, m2, m3]);
    let theirs = u16::from_ne_bytes([v0, v1]);
    if magic != MAGIC {
        return Err(BrokerError::WrongMagic { found: magic });
    }
    if received < HEADER_BYTES {
        return Err(BrokerError::Truncated { missing: "bytes", bytes: Vec::new() });
    }
    if theirs != VERSION {
        return Err(BrokerError::WrongVersion { theirs, ours: VERSION });
    }
    Ok(usize::from(u16::from_ne_bytes([c0, c1])))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use std::os::fd::AsFd;

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .expect("two sockets")
    }

    /// Sends these bytes without a valid header and receives them.
    fn sent_raw(bytes: &[u8]) -> Result<Option<Message>, BrokerError> {
        let (ours, theirs) = pair();
        rustix::net::send(&ours, bytes, SendFlags::empty()).expect("space");
        receive(theirs.as_fd())
    }

    fn header(magic: u32, version: u16, descriptors: u16) -> Vec<u8> {
        [&magic.to_ne_bytes()[..], &version.to_ne_bytes(), &descriptors.to_ne_bytes()].concat()
    }

    #[test]
    fn malformed_messages_have_distinct_errors() {
        assert!(matches!(sent_raw(b"GET / HTTP/1.1"), Err(BrokerError::WrongMagic { .. })));
        assert!(matches!(
            sent_raw(&header(MAGIC, 9, 0)),
            Err(BrokerError::WrongVersion { theirs: 9, ours: VERSION })
        ));
        assert!(matches!(
            sent_raw(&header(MAGIC, VERSION, 0)[..6]),
            Err(BrokerError::Truncated { missing: "bytes", .. })
        ));
        let promised = sent_raw(&[&header(MAGIC, VERSION, 1)[..], b"abc"].concat());
        assert!(
            matches!(promised, Err(BrokerError::Truncated { missing: "descriptors", bytes }) if bytes == b"abc")
        );
        let mut long = header(MAGIC, VERSION, 0);
        long.resize(HEADER_BYTES + MAX_BYTES + 1, 0);
        assert!(matches!(sent_raw(&long), Err(BrokerError::Truncated { missing: "bytes", .. })));
        long.pop();
        let whole = sent_raw(&long).expect("well formed").expect("one");
        assert_eq!((whole.bytes.len(), whole.descriptors.len()), (MAX_BYTES, 0));
    }

    #[test]
    fn no_message_and_closed_are_distinct() {
        let (ours, theirs) = pair();
        assert!(matches!(receive(theirs.as_fd()), Ok(None)));
        send(ours.as_fd(), b"", &[]).expect("space");
        drop(ours);
        let last = receive(theirs.as_fd()).expect("sent before the end").expect("one");
        assert!(last.bytes.is_empty());
        assert!(matches!(receive(theirs.as_fd()), Err(BrokerError::Closed)));
        assert!(matches!(send(theirs.as_fd(), b"", &[]), Err(BrokerError::Closed)));
    }

    #[test]
    fn sending_to_a_peer_that_does_not_read_fails() {
        let (ours, _theirs) = pair();
        let full = std::iter::repeat_with(|| send(ours.as_fd(), &[0; MAX_BYTES], &[]))
            .find_map(Result::err);
        assert!(matches!(full, Some(BrokerError::NotReading)));
    }

    #[test]
    fn oversized_messages_are_refused_before_sending() {
        let (ours, theirs) = pair();
        let many = [theirs.as_fd(); MAX_DESCRIPTORS + 1];
        let long = send(ours.as_fd(), &[0; MAX_BYTES + 1], &[]);
        assert!(matches!(long, Err(BrokerError::TooLarge { bytes, .. }) if bytes == MAX_BYTES + 1));
        assert!(matches!(
            send(ours.as_fd(), &[], &many),
            Err(BrokerError::TooLarge { descriptors: 17, .. })
        ));
        send(ours.as_fd(), &[1; MAX_BYTES], &many[..MAX_DESCRIPTORS]).expect("just fits");
        assert_eq!(
            receive(theirs.as_fd()).expect("whole").expect("one").descriptors.len(),
            MAX_DESCRIPTORS
        );
    }
}
