//! Payloads in the memory of runs, which a transport sends and receives without a copy of its own.

use super::frame::Route;
use interpreter::Packet;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use shm::segment::{Offset, Segment};
use std::io::IoSlice;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// Shortest payload that is read where it belongs when it has not arrived completely.
pub const PLACED: usize = 8 << 10;

/// Location of a payload in the memory of a run: the payload of one send or receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PayloadLocation {
    /// The rank of the job.
    pub rank: u32,
    /// Number of the communicator.
    pub communicator: u32,
    /// Number of the run on the communicator.
    pub sequence: u64,
    /// Number of the send or receive in the schedule.
    pub operation: u32,
}

impl PayloadLocation {
    /// Returns true if both are of one run.
    pub fn is_of_run(&self, other: &PayloadLocation) -> bool {
        (self.rank, self.communicator, self.sequence)
            == (other.rank, other.communicator, other.sequence)
    }
}

/// A payload in a segment. Keeps the segment mapped.
#[derive(Clone, Debug)]
pub struct SegmentRange {
    /// The segment.
    pub segment: Arc<Segment>,
    /// Start of the payload.
    pub at: Offset,
    /// Its length.
    pub bytes: u64,
}

/// The memory of all runs, for the time of a call of the transport. The default methods are those of
/// a node without runs: no payload can be read, and every message is passed as a whole.
pub trait Payloads {
    /// Writes the first slices, then a range of a payload, then the second slices, to a socket in
    /// one call that does not block. Returns the number of bytes that the system has taken.
    ///
    /// # Errors
    /// Those of `sendmsg`; [`Errno::FAULT`] if the payload cannot be read, or its run has ended.
    fn send(
        &self,
        location: PayloadLocation,
        range: Range<usize>,
        around: [&[IoSlice<'_>]; 2],
        socket: BorrowedFd<'_>,
    ) -> Result<usize, Errno> {
        let _ = (location, range, around, socket);
        Err(Errno::FAULT)
    }

    /// Copies a range of a payload.
    ///
    /// # Errors
    /// [`Errno::FAULT`] if the payload cannot be read, or its run has ended.
    fn load(
        &self,
        location: PayloadLocation,
        range: Range<usize>,
        into: &mut [u8],
    ) -> Result<(), Errno> {
        let _ = (location, range, into);
        Err(Errno::FAULT)
    }

    /// Returns true if a run is under way, so that something may arrive for it.
    fn has_runs(&self) -> bool;

    /// Returns true if a run is under way that receives payloads of [`PLACED`] bytes or more.
    fn expects_long(&self) -> bool {
        false
    }

    /// Returns a copy of a payload.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    fn copy(&mut self, location: PayloadLocation) -> Result<Vec<u8>, Errno> {
        let _ = location;
        Err(Errno::FAULT)
    }

    /// Notes that a payload is no longer needed: it has been sent, or its node is lost.
    fn sent(&mut self, location: PayloadLocation);

    /// Notes that a payload could not be read, which the transport reports to its receiver. Its run
    /// fails.
    fn unreadable(&mut self, location: PayloadLocation);

    /// Assigns a message of a node, of which the header has arrived, the memory of its receive.
    /// `packet` has an empty payload. Returns `None` if the message must be passed as a whole.
    fn admit(
        &mut self,
        node: u32,
        route: Route,
        packet: &Packet,
        bytes: u64,
    ) -> Option<PayloadLocation> {
        let _ = (node, route, packet, bytes);
        None
    }

    /// Takes back the memory of a message that [`admit`](Self::admit) has assigned, because the
    /// message arrives in another way. `packet` is that of `admit`.
    fn withdraw(&mut self, location: PayloadLocation, packet: &Packet) {
        let _ = (location, packet);
    }

    /// Returns the place of a payload that is being sent or received, if it lies in a segment.
    fn range(&mut self, location: PayloadLocation) -> Option<SegmentRange> {
        let _ = location;
        None
    }

    /// Writes bytes of a payload that arrives, from byte `at` on. False if its run has ended.
    fn store(&mut self, location: PayloadLocation, at: usize, bytes: &[u8]) -> bool {
        let _ = (location, at, bytes);
        false
    }

    /// Reads at most `most` bytes of a payload from a socket, from byte `at` on; `None` if its run
    /// has ended.
    fn receive(
        &mut self,
        location: PayloadLocation,
        at: usize,
        most: usize,
        socket: BorrowedFd<'_>,
    ) -> Option<Result<usize, Errno>> {
        let _ = (location, at, most, socket);
        None
    }
}

/// No runs, for transports without an agent.
#[derive(Clone, Copy, Debug)]
pub struct NoPayloads;

impl Payloads for NoPayloads {
    fn has_runs(&self) -> bool {
        false
    }

    fn sent(&mut self, _: PayloadLocation) {}

    fn unreadable(&mut self, _: PayloadLocation) {}
}

/// Writes slices to a socket in one call that does not block.
pub(crate) fn send_slices(socket: BorrowedFd<'_>, slices: &[IoSlice<'_>]) -> Result<usize, Errno> {
    // NOSIGNAL: a connection that the peer has closed is an error here, not a SIGPIPE.
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    sendmsg(socket, slices, &mut SendAncillaryBuffer::default(), flags)
}
